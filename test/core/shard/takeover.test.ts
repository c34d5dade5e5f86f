/**
 * A change of owner. Rules 19 to 21: the new owner and all sinks agree on a base before it serves. Rule 10: a
 * new sink starts at the committed position.
 */
import { afterEach, describe, expect, it } from 'vitest';
import type { Follower } from '../../../src/core/shard/follower.js';
import { agreedBase, mergeExtents } from '../../../src/core/shard/takeover.js';
import { DEFAULT_SCHEDULER_POLICY } from '../../../src/core/shared/policy.js';
import { Cluster, type ClusterOptions, kind, section } from '../harness.js';
import { pushMessage } from '../packed.js';

let cluster: Cluster;
const start = (options: Partial<ClusterOptions> = {}): Cluster => {
  cluster = new Cluster({ k: 2, r: 2, spares: 1, ...options });
  return cluster;
};
afterEach(() => cluster.close());

const id = (index: number): number => cluster.nodes[index]!.id;
/** The Starts that the newest owner of shard 0 has sent. */
const starts = (since = 0) => {
  const { gen } = cluster.map.groups[0]!.data[0]!;
  return cluster.sent('start', since).filter(({ message }) => message.m === 0 && message.gen === gen);
};
const activeBases = (m = 0) =>
  cluster.eventsNamed('shard.active').flatMap((e) => (e.member === m ? [e.base] : []));

describe('rule 19: FENCE', () => {
  it('waits for the promise of every sink', () => {
    start();
    const last = cluster.hold(kind('openAck', { from: id(3) }));
    cluster.crash(0);
    cluster.settle();
    cluster.advance(1000);
    expect([cluster.owner(0).phase, starts()]).toEqual(['FENCE', []]);
    last.release();
    cluster.settle();
    expect([cluster.owner(0).phase, starts().length]).toEqual(['ACTIVE', 2]);
  });

  it('asks again until the promise comes', () => {
    start();
    const stop = cluster.lose(kind('open', { to: id(3) }));
    cluster.crash(0);
    cluster.settle();
    stop();
    expect(cluster.owner(0).phase).toBe('FENCE');
    cluster.advance(300);
    expect(cluster.owner(0).phase).toBe('ACTIVE');
  });

  it('follows the map: a sink that is gone is not waited for', () => {
    start();
    cluster.lose(kind('open', { to: id(3) }));
    cluster.crash(0);
    cluster.settle();
    expect(cluster.owner(0).phase).toBe('FENCE');
    cluster.crash(3);
    cluster.settle();
    expect(cluster.owner(0).phase).toBe('ACTIVE');
  });

  it('starts at the minimum: a delta on one of two parities is rolled back, no acknowledged one', () => {
    const { client } = start();
    const acknowledged = client.push({ 0: [{ keys: [1], value: 1 }] });
    cluster.settle();
    const cut = cluster.hold(kind('delta', { to: id(3) }));
    const open = client.push({ 0: [{ keys: [1], value: 2 }] });
    cluster.settle();
    expect([acknowledged.done, open.done]).toEqual([true, false]);
    expect(cluster.sent('applied').at(-1)!.message.applied).toBe(2);
    cut.drop();
    const resent = cluster.hold(kind('push'));
    cluster.crash(0);
    cluster.settle();
    expect(activeBases()).toEqual([1]);
    expect(cluster.read(0, 1)).toBe(1);
    resent.release();
    cluster.settle();
    expect([open.done, cluster.read(0, 1)]).toEqual([true, 3]);
    expect(cluster.checkParities()).toBeGreaterThan(0);
  });
});

describe('rule 20: START', () => {
  it('waits for the answer of every sink that has the shard, and repeats itself', () => {
    const { client } = start();
    client.push({ 0: [{ keys: [1] }] });
    cluster.settle();
    const lost = cluster.hold(kind('startAck', { from: id(2) }));
    cluster.crash(0);
    cluster.settle();
    expect([cluster.owner(0).phase, lost.packets.length]).toEqual(['START', 1]);
    lost.drop();
    cluster.advance(300);
    expect(cluster.owner(0).phase).toBe('ACTIVE');
  });

  it('inherits dedup: a push whose acknowledgement was lost is not applied again', () => {
    const { client } = start();
    const stop = cluster.lose(kind('pushAck'));
    const push = client.push({ 0: [{ keys: [1], value: 5 }] });
    cluster.settle();
    stop();
    expect([push.done, cluster.read(0, 1)]).toEqual([false, 5]);
    const mark = cluster.history.length;
    cluster.crash(0);
    cluster.settle();
    expect(cluster.sent('push', mark).length).toBeGreaterThan(0);
    expect([push.done, push.error, cluster.read(0, 1)]).toEqual([true, undefined, 5]);
  });

  it('inherits dedup of uncommitted pushes that are in all sinks', () => {
    const { client } = start();
    const applied = cluster.hold(kind('applied'));
    const push = client.push({ 0: [{ keys: [1], value: 5 }] });
    cluster.settle();
    applied.drop();
    cluster.crash(0);
    cluster.settle();
    expect(activeBases()).toEqual([1]);
    expect([push.done, cluster.read(0, 1)]).toEqual([true, 5]);
  });
});

describe('rule 21: ACTIVE', () => {
  it('hands out new slots only once all keys are back', () => {
    const { client } = start();
    client.push({ 0: [{ keys: [1, 2, 3], value: 1 }] });
    cluster.settle();
    const equations = cluster.hold(kind('equation'));
    cluster.crash(0);
    cluster.settle();
    const fresh = client.push({ 0: [{ keys: [4], value: 4 }] });
    const pull = client.pull({ 0: [{ keys: [5] }] });
    cluster.settle();
    expect(cluster.owner(0).phase).toBe('ACTIVE');
    expect([cluster.owner(0).native.keysReady, fresh.done, pull.done]).toEqual([false, false, false]);
    equations.release();
    cluster.settle();
    cluster.advance(300);
    expect([fresh.done, pull.done]).toEqual([true, true]);
    expect([1, 2, 3, 4, 5].map((key) => cluster.read(0, key))).toEqual([1, 1, 1, 4, 0]);
    expect(cluster.owner(0).native.extents()[0]![2]).toBe(4);
  });

  it('an owner that is cut off cannot acknowledge any more: its deltas are fenced', () => {
    const { client } = start();
    client.push({ 0: [{ keys: [1], value: 1 }] });
    cluster.settle();
    const old = { epoch: cluster.map.epoch, owner: cluster.nodes[0]!.node!.ownerAt(0, 0)! };
    const stop = cluster.lose(kind('mapDiff', { to: id(0) }));
    cluster.notice(0);
    cluster.settle();
    expect(cluster.map.groups[0]!.data[0]!.node).toBe(id(4));
    const mark = cluster.history.length;
    const bytes = section([{ keys: [1], value: 8 }], true);
    const message = pushMessage(old.epoch, [0, 0, 2], bytes.byteLength);
    cluster.send(client.id, id(0), message, [bytes]);
    cluster.settle();
    expect(old.owner.phase).toBe('ACTIVE');
    expect(cluster.sent('delta', mark).map(({ from }) => from)).toEqual([id(0), id(0)]);
    expect([cluster.sent('applied', mark), cluster.sent('pushAck', mark)]).toEqual([[], []]);
    stop();
    cluster.advance(2 * DEFAULT_SCHEDULER_POLICY.lateMapMs);
    expect(cluster.nodes[0]!.node!.ownerAt(0, 0)).toBeUndefined();
    expect(cluster.read(0, 1)).toBe(1);
  });

  it('requests that came too early are served then, in the order of their client', () => {
    const { client } = start();
    const acks = cluster.hold(kind('openAck'));
    cluster.crash(0);
    cluster.settle();
    const pushes = [1, 2, 4].map((value) => client.push({ 0: [{ keys: [1], value }] }));
    const pull = client.pull({ 0: [{ keys: [9] }] });
    cluster.settle();
    expect([pull.done, ...pushes.map((push) => push.done)]).toEqual([false, false, false, false]);
    const mark = cluster.history.length;
    acks.release();
    cluster.settle();
    expect([pull.done, ...pushes.map((push) => push.done)]).toEqual([true, true, true, true]);
    expect(cluster.sent('push', mark)).toEqual([]);
    expect(cluster.read(0, 1)).toBe(7);
  });

  it('a parked pull has a deadline', () => {
    const { client } = start({ policy: { parkedPullMs: 1000 } });
    cluster.lose(kind('openAck'));
    cluster.crash(0);
    cluster.settle();
    const pull = client.pull({ 0: [{ keys: [9] }] });
    cluster.advance(900);
    expect(pull.done).toBe(false);
    cluster.advance(600);
    expect(pull.error).toBe('TIMEOUT');
  });
});

describe('rule 10: a sink that is new to an active owner', () => {
  it('starts at the committed position, with dedup there and the uncommitted deltas behind', () => {
    const { client } = start();
    client.push({ 0: [{ keys: [1], value: 1 }] });
    cluster.settle();
    cluster.lose(kind('applied', { from: id(3) }));
    client.push({ 0: [{ keys: [1], value: 2 }] });
    cluster.settle();
    const mark = cluster.history.length;
    cluster.crash(2);
    cluster.settle();
    const stream = cluster.history
      .slice(mark)
      .filter(({ from, to }) => from === id(0) && to === id(4))
      .map(({ message }) => message);
    expect(stream[0]).toMatchObject({ t: 'start', m: 0, base: 1, dedup: [[client.id, 1, []]] });
    expect(stream[1]).toMatchObject({ t: 'delta', m: 0, seq: 2 });
  });

  it('counts for acknowledgement from its Start on, long before it is complete', () => {
    const { client } = start({ r: 1 });
    client.push({ 0: [{ keys: [1, 2, 3, 4] }] });
    cluster.settle();
    cluster.lose(kind('content'));
    const applied = cluster.hold(kind('applied', { from: id(3) }));
    cluster.crash(2);
    cluster.settle();
    const push = client.push({ 0: [{ keys: [1] }] });
    cluster.settle();
    expect([applied.packets.length, push.done]).toEqual([1, false]);
    applied.release();
    cluster.settle();
    expect([push.done, cluster.sink(0).complete]).toEqual([true, false]);
  });

  it('added during a change of owner, is not waited for and starts once the owner is active', () => {
    const { client } = start({ spares: 2 });
    client.push({ 0: [{ keys: [1], value: 3 }] });
    cluster.settle();
    const acks = cluster.hold(kind('startAck', { from: id(3) }));
    cluster.crash(0);
    cluster.settle();
    cluster.crash(2);
    cluster.settle();
    expect(cluster.map.groups[0]!.sinks.map(({ node }) => node).sort()).toEqual([id(3), id(5)]);
    expect(starts().filter(({ to }) => to === id(5))).toEqual([]);
    acks.release();
    cluster.settle();
    cluster.advance(600);
    expect(starts().filter(({ to }) => to === id(5))).toMatchObject([{ message: { base: 1 } }]);
    expect([cluster.read(0, 1), cluster.sink(0).complete]).toEqual([3, true]);
    expect(cluster.checkParities()).toBeGreaterThan(0);
  });
});

describe('the two decisions, as functions', () => {
  const follower = (fields: Partial<Follower>): Follower =>
    ({ none: false, extents: [], ...fields }) as Follower;

  it('base is the minimum over the sinks that have the shard', () => {
    const empty = follower({ none: true, applied: 0 });
    expect(agreedBase([follower({ applied: 7 }), empty, follower({ applied: 5 })])).toBe(5);
    expect(agreedBase([empty])).toBeUndefined();
    expect(agreedBase([])).toBeUndefined();
  });

  it('extents are the maximum per table', () => {
    const merged = mergeExtents([
      follower({ extents: [[1, 16, 5]] }),
      follower({
        extents: [
          [1, 16, 3],
          [2, 32, 9],
        ],
      }),
    ]);
    expect(merged).toEqual([
      [1, 16, 5],
      [2, 32, 9],
    ]);
  });
});
