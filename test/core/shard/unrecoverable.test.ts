/**
 * A loss beyond the code is reported, confirmed and told to callers. Three tests are of defects that random
 * schedules once found.
 */
import { afterEach, describe, expect, it } from 'vitest';
import { Cluster, type ClusterOptions, kind, tableSpec } from '../harness.js';

let cluster: Cluster;
const start = (options: Partial<ClusterOptions> = {}): Cluster => {
  cluster = new Cluster({ k: 2, r: 1, spares: 1, ...options });
  return cluster;
};
afterEach(() => cluster.close());
const id = (index: number): number => cluster.nodes[index]!.id;

/** Shard 0 lives on the spare with lost rows, and then the only parity goes. */
function beyondRepair(): void {
  start();
  cluster.client.push({ 0: [{ keys: [1, 2, 3] }], 1: [{ keys: [1] }] });
  cluster.settle();
  cluster.lose(kind('equation'));
  cluster.crash(0);
  cluster.settle();
  cluster.crash(2, { noticed: false });
}

describe('rule 26: beyond repair', () => {
  it('an owner with lost blocks and no parity left reports instead of asking for ever', () => {
    beyondRepair();
    cluster.notice(2);
    cluster.settle();
    expect(cluster.eventsNamed('shard.unrecoverable')).toMatchObject([
      { group: 0, member: 0, reason: 'no parity of this shard is left' },
    ]);
    expect(cluster.sent('unrecoverable')[0]).toMatchObject({
      message: { v: cluster.map.groups[0]!.version },
    });
    expect(cluster.scheduler!.status()).toMatchObject({
      redundancy: 'lost',
      unrecoverable: [{ g: 0, m: 0 }],
    });
    // Every tick finds the same dead end, and must return.
    cluster.advance(3000);
    expect(cluster.eventsNamed('shard.unrecoverable')).toHaveLength(1);
  });

  it('asks no faster for what three parities cannot decode (seed 2510008233)', () => {
    start({ k: 4, r: 3, spares: 4 });
    cluster.client.push(Object.fromEntries([0, 1, 2, 3].map((m) => [m, [{ keys: [1, 2, 3] }]])));
    cluster.settle();
    for (const m of [0, 1, 2, 3]) cluster.crash(m, { noticed: false });
    for (const m of [0, 1, 2, 3]) cluster.notice(m);
    // Once each answer that solved nothing caused questions to two more parities, without end.
    cluster.settle();
    expect(cluster.scheduler!.status().unrecoverable).toHaveLength(4);
    const askedIn = (ms: number): number => {
      const mark = cluster.history.length;
      cluster.advance(ms);
      return cluster.sent('recover', mark).length;
    };
    const first = askedIn(2000);
    expect(first).toBeGreaterThan(0);
    expect(askedIn(2000)).toBeLessThanOrEqual(first);
  });

  it('fails pulls and pushes only after the scheduler has confirmed the loss', () => {
    beyondRepair();
    const confirmation = cluster.hold(kind('confirmedLost'));
    cluster.notice(2);
    const pull = cluster.client.pull({ 0: [{ keys: [1] }] });
    const push = cluster.client.push({ 0: [{ keys: [1] }] });
    cluster.settle();
    expect(confirmation.packets.length).toBeGreaterThan(0);
    expect([pull.done, push.done]).toEqual([false, false]);
    confirmation.release();
    cluster.settle();
    expect([pull.error, push.error]).toEqual(['UNRECOVERABLE', 'UNRECOVERABLE']);
    const later = cluster.client.pull({ 0: [{ keys: [2] }] });
    cluster.settle();
    expect(later.error).toBe('UNRECOVERABLE');
    expect(cluster.read(1, 1)).toBe(1);
  });

  it('is not confirmed to an owner whose version of the group is old', () => {
    beyondRepair();
    cluster.notice(2);
    const { gen, node } = cluster.map.groups[0]!.data[0]!;
    cluster.settle();
    const mark = cluster.history.length;
    const v = cluster.map.groups[0]!.version - 1;
    cluster.send(node, 0, { t: 'unrecoverable', g: 0, m: 0, gen, v, blocks: 1 });
    cluster.settle();
    expect(cluster.sent('confirmedLost', mark)).toEqual([]);
  });

  it('a confirmation of another version than the newest is ignored', () => {
    start();
    cluster.client.push({ 0: [{ keys: [1, 2, 3], value: 6 }] });
    cluster.settle();
    const equations = cluster.hold(kind('equation'));
    cluster.crash(0);
    cluster.settle();
    const { gen, node } = cluster.map.groups[0]!.data[0]!;
    const { version } = cluster.map.groups[0]!;
    const pull = cluster.client.pull({ 0: [{ keys: [1] }] });
    cluster.send(0, node, { t: 'confirmedLost', g: 0, m: 0, gen, v: version - 1 });
    cluster.settle();
    expect(pull.done).toBe(false);
    equations.release();
    cluster.settle();
    expect([pull.error, pull.rows[0]?.[0]]).toEqual([undefined, 6]);
  });

  it('more lost members than parities: stuck equations are reported', () => {
    start({ k: 3, r: 1, spares: 2 });
    cluster.client.push({ 0: [{ keys: [1] }], 1: [{ keys: [1] }], 2: [{ keys: [1] }] });
    cluster.settle();
    for (const index of [0, 1]) cluster.crash(index, { noticed: false });
    for (const index of [0, 1]) cluster.notice(index);
    cluster.settle();
    cluster.advance(900);
    expect(cluster.eventsNamed('shard.unrecoverable')).toContainEqual(
      expect.objectContaining({ reason: 'fewer equations than lost members' }),
    );
    expect(cluster.scheduler!.status().redundancy).toBe('lost');
    expect(cluster.read(2, 1)).toBe(1);
  });

  it('a shard whose every sink is empty or gone says that nobody has it', () => {
    start({ k: 1, r: 1, spares: 1 });
    cluster.client.push({ 0: [{ keys: [1] }] });
    cluster.settle();
    for (const index of [0, 1]) cluster.crash(index, { noticed: false });
    for (const index of [0, 1]) cluster.notice(index);
    cluster.settle();
    expect(cluster.eventsNamed('shard.unrecoverable')).toMatchObject([{ reason: 'no sink has this shard' }]);
    const pull = cluster.client.pull({ 0: [{ keys: [1] }] });
    cluster.settle();
    expect(pull.error).toBe('UNRECOVERABLE');
  });

  /** A new parity has followed shards 0 and 1 only, and then shard 2 is lost: no sink knows it. */
  function nobodyKnowsShardTwo(contentOfOne: boolean): void {
    start({ k: 3, r: 1, spares: 4 });
    cluster.client.push({ 0: [{ keys: [1] }], 1: [{ keys: [1] }], 2: [{ keys: [1] }] });
    cluster.settle();
    cluster.lose(({ message }) => message.t === 'start' && message.m === 2);
    const content = cluster.lose(({ message }) => message.t === 'content' && message.m === 1);
    if (contentOfOne) content();
    cluster.crash(3);
    cluster.settle();
    for (const index of [1, 2]) cluster.crash(index, { noticed: false });
    for (const index of [1, 2]) cluster.notice(index);
    cluster.settle();
    cluster.advance(3000);
  }

  it('a shard that no sink knows does not keep another one from being decoded', () => {
    nobodyKnowsShardTwo(true);
    expect(cluster.eventsNamed('shard.unrecoverable')).toMatchObject([
      { member: 2, reason: 'no sink has this shard' },
    ]);
    expect(cluster.owner(1).complete).toBe(true);
    expect(cluster.read(1, 1)).toBe(1);
  });

  it('a shard that no sink knows does not keep another one from being called lost', () => {
    nobodyKnowsShardTwo(false);
    expect(cluster.eventsNamed('shard.unrecoverable')).toMatchObject([
      { member: 2, reason: 'no sink has this shard' },
      { member: 1, reason: 'fewer equations than lost members' },
    ]);
    const push = cluster.client.push({ 1: [{ keys: [1] }] });
    cluster.settle();
    expect(push.error).toBe('UNRECOVERABLE');
    expect(cluster.read(0, 1)).toBe(1);
  });
});

describe('found by random schedules', () => {
  it('a late promise of an older generation does not start the stream of a started sink again', () => {
    const { client } = start();
    client.push({ 0: [{ keys: [1], value: 2 }] });
    cluster.settle();
    cluster.crash(0);
    cluster.settle();
    const { gen } = cluster.map.groups[0]!.data[0]!;
    const promise = cluster.sent('openAck').find(({ message }) => message.gen === gen && message.m === 0)!;
    expect(promise.message.sgen).not.toBe(gen);
    client.push({ 0: [{ keys: [1], value: 4 }] });
    cluster.settle();
    const mark = cluster.history.length;
    cluster.deliver(promise);
    cluster.settle();
    expect(cluster.sent('start', mark)).toEqual([]);
    expect([...cluster.owner(0).stream.followers.values()].map(({ state }) => state)).toEqual(['started']);
    expect(cluster.read(0, 1)).toBe(6);
  });

  it.each([2, 3])('extents travel in Recover: node %i never got the only delta of a table', (without) => {
    const { client } = start({ r: 2, tables: [tableSpec('t'), tableSpec('u')] });
    client.push({ 0: [{ keys: [1], value: 2 }], 1: [{ keys: [1], value: 2 }] });
    cluster.settle();
    const cut = cluster.hold(kind('delta', { to: id(without) }));
    const push = client.push({ 0: [{ table: 2, keys: [1, 2, 3], value: 5 }] });
    cluster.settle();
    cut.drop();
    const resent = cluster.hold(kind('push'));
    const mark = cluster.history.length;
    cluster.crash(0);
    cluster.settle();
    cluster.advance(900);
    // The other parity rolled its delta back and still knows the extent of the table.
    const columns = cluster
      .sent('recover', mark)
      .flatMap(({ parts }) => [...new Uint32Array(parts[0]!.slice().buffer)].filter((_, i) => i % 2 === 0));
    expect(columns).toContain(2 * 2 + 1);
    expect([cluster.owner(0).complete, cluster.read(0, 1), cluster.read(0, 1, 2)]).toEqual([true, 2, 0]);
    resent.release();
    cluster.settle();
    expect([push.done, cluster.read(0, 1, 2)]).toEqual([true, 5]);
    cluster.advance(900);
    expect(cluster.checkParities()).toBeGreaterThan(0);
  });
});
