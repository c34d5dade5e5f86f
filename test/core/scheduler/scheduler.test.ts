/**
 * The scheduler: who is alive, durable before visible, tables (rules 1, 2, 27 and 29). Where shards go:
 * placement.test.ts.
 */
import { afterEach, describe, expect, it } from 'vitest';
import { MAX_TABLES } from '../../../src/core/scheduler/tables.js';
import type { MessageOf } from '../../../src/protocol/messages.js';
import { Cluster, type ClusterOptions, kind, tableSpec } from '../harness.js';

let cluster: Cluster;
const start = (options: Partial<ClusterOptions> = {}): Cluster => {
  cluster = new Cluster({ k: 2, r: 1, ...options });
  return cluster;
};
afterEach(() => cluster.close());

const id = (index: number): number => cluster.nodes[index]!.id;
const group = () => cluster.map.groups[0]!;
const seats = () => [...group().data, ...group().sinks].map(({ node }) => node);
const redundancy = () => cluster.scheduler!.status().redundancy;

describe('forming', () => {
  it('makes groups when enough nodes that are no standbys have joined, and not before', () => {
    start();
    const reasons = cluster.events
      .filter(({ name }) => name === 'map.durable')
      .map(({ fields }) => fields.reason);
    expect(reasons).toEqual(['join', 'join', 'join', 'formed', 'tables']);
    expect(seats()).toEqual([id(0), id(1), id(2)]);
    expect([...group().data, ...group().sinks].every((entry) => entry.init)).toBe(true);
    cluster.advance(300);
    expect(redundancy()).toBe('full');
  });

  it('a standby holds nothing until a node is lost, and is preferred then', () => {
    start();
    const standby = cluster.addNode({ standby: true });
    cluster.settle();
    expect(seats()).not.toContain(standby.id);
    cluster.crash(1);
    expect(group().data[1]!.node).toBe(standby.id);
  });
});

describe('rule 1: identities', () => {
  it('a new process of a name gets a new incarnation, and what the old one held is lost', () => {
    start({ spares: 1 });
    const { gen } = group().data[0]!;
    cluster.nodes[0]!.node!.close();
    cluster.nodes[0]!.node = undefined;
    cluster.restart(0);
    cluster.settle();
    expect([cluster.nodes[0]!.id, cluster.nodes[0]!.inc]).toEqual([1, 2]);
    expect(group().data[0]!.gen).toBeGreaterThan(gen);
    expect(group().data[0]!.init).toBe(false);
    cluster.advance(900);
    expect(redundancy()).toBe('full');
  });

  it('refuses a process whose name was taken over, and its heartbeats', () => {
    start({ spares: 1 });
    const before = cluster.replies.length;
    cluster.crash(0);
    cluster.restart(0);
    const message: MessageOf<'join'> = { t: 'join', name: 'ps-0', host: 'a', address: 'a:1', standby: false };
    cluster.stepScheduler({ kind: 'join', link: 77, message: { ...message, id: 1, inc: 1 } });
    expect(cluster.replies.slice(before)).toContainEqual({
      link: 77,
      message: { t: 'stale', code: 'STALE_NODE' },
    });
    const { epoch } = cluster.map;
    const old = {
      t: 'heartbeat' as const,
      inc: 1,
      epoch: 1,
      completeSinks: [],
      completeShards: [],
      recoveries: [],
      owned: [],
      bytes: 1,
      rows: 1,
    };
    const mark = cluster.history.length;
    cluster.stepScheduler({ kind: 'message', from: 1, role: 'node', message: old });
    expect([cluster.map.epoch, cluster.sent('mapDiff', mark)]).toEqual([epoch, []]);
  });

  it('a process that only reconnects keeps its identity and its shards', () => {
    start();
    const before = structuredClone(cluster.map);
    cluster.stepScheduler({ kind: 'closed', peer: 1, inc: 1 });
    expect(cluster.probes).toEqual([{ node: 1, inc: 1 }]);
    const message: MessageOf<'join'> = {
      t: 'join',
      name: 'ps-0',
      host: 'ps-0',
      address: 'ps-0:1',
      standby: false,
      id: 1,
      inc: 1,
    };
    cluster.stepScheduler({ kind: 'join', link: 78, message });
    cluster.advance(3000);
    expect(cluster.map).toEqual(before);
  });
});

describe('rule 2: durable before anyone sees it', () => {
  it('sends nothing of a decision before it is persisted', () => {
    start({ spares: 1 });
    cluster.slowDisk = true;
    const { epoch } = cluster.map;
    const mark = cluster.history.length;
    cluster.crash(0);
    cluster.settle();
    expect(cluster.scheduler!.map.epoch).toBeGreaterThan(epoch);
    expect(cluster.sent('mapDiff', mark)).toEqual([]);
    cluster.persist();
    const epochs = cluster.sent('mapDiff', mark).map(({ message }) => message.to);
    expect(new Set(epochs)).toEqual(new Set([cluster.scheduler!.map.epoch]));
  });

  it('answers of steps that decide nothing wait behind decisions that are not durable yet', () => {
    start();
    cluster.slowDisk = true;
    const specs = [tableSpec('v')];
    const ask = () =>
      cluster.stepScheduler({
        kind: 'message',
        from: 9,
        role: 'client',
        message: { t: 'createTables', id: 1, specs },
      });
    ask();
    // The second one finds the table: it still must not be told of a table that a crash would undo.
    ask();
    expect(cluster.sent('tablesCreated').filter(({ to }) => to === 9)).toEqual([]);
    cluster.persist();
    expect(cluster.sent('tablesCreated').filter(({ to }) => to === 9)).toHaveLength(2);
  });

  it('gives nobody an identity before it is durable', () => {
    start();
    cluster.slowDisk = true;
    const before = cluster.replies.length;
    cluster.stepScheduler({ kind: 'attach', link: 50, message: { t: 'attach' } });
    expect(cluster.replies.length).toBe(before);
    cluster.persist();
    expect(cluster.replies.slice(before).map(({ link, message }) => [link, message.t])).toEqual([
      [50, 'welcome'],
    ]);
  });

  it('writes in one transaction what was decided during the last one, and tells of it after that', () => {
    start({ spares: 1 });
    cluster.slowDisk = true;
    cluster.crash(0);
    const first = cluster.scheduler!.map.epoch;
    const ask = (id: number, name: string) =>
      cluster.stepScheduler({
        kind: 'message',
        from: 9,
        role: 'client',
        message: { t: 'createTables', id, specs: [tableSpec(name)] },
      });
    ask(1, 'v');
    ask(2, 'w');
    expect(cluster.persisting).toHaveLength(1);
    const mark = cluster.history.length;
    const [one] = cluster.persisting.splice(0);
    const effects = cluster.scheduler!.step({ kind: 'persisted', version: one!.version });
    const maps = effects.flatMap((e) =>
      e.kind === 'broadcast' && e.message.t === 'mapDiff' ? [e.message.to] : [],
    );
    expect([maps, effects.some((e) => e.kind === 'send')]).toEqual([[first], false]);
    const [two] = effects.filter((effect) => effect.kind === 'persist');
    expect([...two!.changes.keys()].sort()).toEqual(['head', 'table/2', 'table/3']);
    expect(cluster.sent('tablesCreated', mark)).toEqual([]);
    const after = cluster.scheduler!.step({ kind: 'persisted', version: two!.version });
    expect(after.filter((effect) => effect.kind === 'send')).toHaveLength(2);
  });
});

describe('rule 27: loss', () => {
  it('homes lost data at once, on the spare, with a generation never used before', () => {
    start({ spares: 1 });
    cluster.crash(1);
    expect(group().data[1]).toEqual({ node: id(3), inc: 1, gen: cluster.map.epoch, init: false });
    expect([group().version, group().data[0]!.gen]).toEqual([cluster.map.epoch, 1]);
    expect(redundancy()).toBe('recovering');
    cluster.settle();
    cluster.advance(900);
    expect(redundancy()).toBe('full');
    expect(cluster.events.filter((e) => e.name === 'redundancy').map((e) => e.fields.state)).toEqual(
      expect.arrayContaining(['recovering', 'full']),
    );
  });

  it('without a free node goes to the parity holder, is degraded, and spreads when a newcomer joins', () => {
    start();
    cluster.client.push({ 0: [{ keys: [1, 2, 3], value: 3 }], 1: [{ keys: [1] }] });
    cluster.settle();
    const old = group().sinks[0]!.sid;
    cluster.crash(0);
    cluster.settle();
    cluster.advance(900);
    expect(seats()).toEqual([id(2), id(1), id(2)]);
    expect(cluster.scheduler!.status()).toMatchObject({
      redundancy: 'degraded',
      reasons: ['embedding group 0: two members share a node'],
    });
    const contents = cluster.hold(kind('content'));
    cluster.restart(0);
    cluster.settle();
    cluster.advance(600);
    // The second parity of the same index is there; the first one stays until the second is complete.
    expect(group().sinks.map(({ sid, index }) => [sid === old, index])).toEqual([
      [true, 0],
      [false, 0],
    ]);
    contents.release();
    cluster.settle();
    cluster.advance(900);
    expect(group().sinks.map(({ sid, node }) => [sid === old, node])).toEqual([[false, id(0)]]);
    expect([redundancy(), cluster.read(0, 1)]).toEqual(['full', 3]);
    expect(cluster.checkParities()).toBeGreaterThan(0);
  });

  it('suspects a node that is silent, and takes it back empty-handed when it speaks again', () => {
    start({ spares: 1 });
    const stop = cluster.lose(kind('heartbeat', { from: id(0) }));
    cluster.advance(4800);
    expect(cluster.eventsNamed('node.lost')).toEqual([]);
    cluster.advance(600);
    expect(cluster.eventsNamed('node.lost')).toMatchObject([{ node: id(0), reason: 'silent' }]);
    expect(group().data[0]!.node).toBe(id(3));
    expect(cluster.scheduler!.status().nodes[0]!.alive).toBe(false);
    stop();
    cluster.advance(600);
    expect(cluster.scheduler!.status().nodes[0]!.alive).toBe(true);
    expect([seats().includes(id(0)), redundancy()]).toEqual([false, 'full']);
    expect(cluster.nodes[0]!.node!.telemetry(false)).toMatchObject({ dataShards: 0, parityShards: 0 });
  });

  it('a closed connection alone is no death; one that does not come back is', () => {
    start({ spares: 1 });
    const { epoch } = cluster.map;
    cluster.crash(0, { noticed: false });
    cluster.stepScheduler({ kind: 'closed', peer: id(0), inc: 1 });
    cluster.advance(900);
    expect(cluster.map.epoch).toBe(epoch);
    cluster.advance(600);
    expect(cluster.eventsNamed('node.lost')).toMatchObject([{ reason: 'did not reconnect' }]);
  });

  it('a refused probe of an older incarnation, or of a node that is back, is ignored', () => {
    start({ spares: 1 });
    const { epoch } = cluster.map;
    cluster.stepScheduler({ kind: 'refused', node: id(0), inc: 1 });
    cluster.stepScheduler({ kind: 'closed', peer: id(0), inc: 9 });
    cluster.stepScheduler({ kind: 'refused', node: id(0), inc: 9 });
    expect([cluster.map.epoch, cluster.eventsNamed('node.lost')]).toEqual([epoch, []]);
  });
});

describe('rule 29: restart', () => {
  it('has the same map, decides nothing again, and goes on numbering', () => {
    start({ spares: 1 });
    cluster.advance(600);
    const before = structuredClone(cluster.disk);
    cluster.crashScheduler();
    cluster.restartScheduler();
    cluster.settle();
    cluster.advance(3000);
    // That it was restarted is an event.
    const after = { ...cluster.disk, events: before.events };
    expect([after, redundancy()]).toEqual([before, 'full']);
    cluster.crash(2);
    expect(group().sinks[0]!.sid).toBe(before.nextSid);
    expect(cluster.map.epoch).toBe(before.map.epoch + 1);
  });

  it('does not mend again what was mended before it', () => {
    start({ spares: 1 });
    cluster.crash(0);
    cluster.settle();
    cluster.advance(900);
    const { map, nextSid } = structuredClone(cluster.disk);
    cluster.crashScheduler();
    cluster.restartScheduler();
    cluster.settle();
    cluster.advance(3000);
    expect([cluster.map.groups, cluster.disk.nextSid]).toEqual([map.groups, nextSid]);
    expect([redundancy(), cluster.scheduler!.status().nodes[0]!.alive]).toEqual(['full', false]);
  });

  it('a decision that was not durable never happened', () => {
    start({ spares: 1 });
    const before = structuredClone(cluster.map);
    cluster.slowDisk = true;
    cluster.crash(0);
    expect(cluster.scheduler!.map.epoch).toBeGreaterThan(before.epoch);
    cluster.crashScheduler();
    cluster.slowDisk = false;
    cluster.restartScheduler();
    expect(cluster.map).toEqual(before);
    cluster.settle();
    cluster.advance(1800);
    expect(group().data[0]!.node).toBe(id(3));
  });

  it('asks at once who died meanwhile, and gives up who is certainly gone', () => {
    start({ spares: 1 });
    cluster.advance(600);
    cluster.crash(0, { noticed: false });
    cluster.crashScheduler();
    cluster.probes.length = 0;
    cluster.restartScheduler();
    expect(cluster.probes.map(({ node }) => node)).toEqual([id(0), id(1), id(2), id(3)]);
    for (const node of [id(0), id(1)]) cluster.stepScheduler({ kind: 'refused', node, inc: 1 });
    expect(cluster.eventsNamed('node.lost')).toMatchObject([{ node: id(0), reason: 'refused' }]);
    expect(group().data[0]!.node).toBe(id(3));
  });

  it('gives nodes time to come back before it calls them dead', () => {
    start({ spares: 1 });
    cluster.crashScheduler();
    cluster.now += 60_000;
    cluster.restartScheduler({ rejoin: false });
    cluster.advance(300);
    cluster.advance(600);
    expect(cluster.eventsNamed('node.lost')).toEqual([]);
  });
});

describe('a sink that is to be replaced', () => {
  const replace = (sid: number) => {
    const mark = cluster.history.length;
    const message = { t: 'replaceSink' as const, id: 7, g: 0, sid };
    cluster.stepScheduler({ kind: 'message', from: cluster.client.id, role: 'client', message });
    cluster.settle();
    return cluster.sent('sinkReplaced', mark).map((packet) => packet.message.done);
  };

  it('goes while nobody lacks anything, and is built anew', () => {
    start({ spares: 1 });
    cluster.client.push({ 0: [{ keys: [1] }], 1: [{ keys: [1] }] });
    cluster.advance(600);
    const { sid } = group().sinks[0]!;
    expect(replace(sid)).toEqual([true]);
    expect(replace(sid)).toEqual([false]);
    cluster.advance(1500);
    expect([group().sinks.length, group().sinks[0]!.sid > sid, redundancy()]).toEqual([1, true, 'full']);
    expect(cluster.checkParities()).toBeGreaterThan(0);
  });

  it('stays while a member needs it', () => {
    start({ spares: 1 });
    cluster.client.push({ 0: [{ keys: [1] }], 1: [{ keys: [1] }] });
    cluster.advance(600);
    const equations = cluster.hold(kind('equation'));
    cluster.crash(0);
    cluster.settle();
    const { sid } = group().sinks[0]!;
    expect(replace(sid)).toEqual([false]);
    expect(group().sinks[0]!.sid).toBe(sid);
    equations.release();
    cluster.advance(1500);
    expect([cluster.read(0, 1), replace(sid)]).toEqual([1, [true]]);
  });
});

describe('tables', () => {
  const answer = () => cluster.sent('tablesCreated').at(-1)!.message;

  it('the same specification again is the same table; another one of that name is TABLE_EXISTS', () => {
    start();
    const { epoch } = cluster.map;
    cluster.createTables([tableSpec('t')]);
    expect([answer().tables.map(({ id: table }) => table), cluster.map.epoch]).toEqual([[1], epoch]);
    cluster.createTables([tableSpec('u'), tableSpec('t', { kind: 'sgd', lr: 0.5 })]);
    expect([answer().code, answer().tables, cluster.map.tables.length]).toEqual(['TABLE_EXISTS', [], 1]);
    cluster.createTables([tableSpec('u'), tableSpec('t'), tableSpec('u')]);
    expect(answer().tables.map(({ id: table, name }) => [table, name])).toEqual([
      [2, 'u'],
      [1, 't'],
      [2, 'u'],
    ]);
  });

  it('of which one message names more than a job has are refused, also when they are known', () => {
    start({ schedulerPolicy: { maxTables: 2 } });
    cluster.createTables([tableSpec('t')]);
    cluster.createTables([tableSpec('t'), tableSpec('t')]);
    expect(answer().tables).toHaveLength(2);
    cluster.createTables([tableSpec('t'), tableSpec('t'), tableSpec('t')]);
    expect(answer()).toMatchObject({ tables: [], code: 'LIMIT' });
  });

  it.each([
    ['a pool that does not exist', { ...tableSpec('x'), pool: 'p' }],
    ['no name', tableSpec('')],
    ['dim 0', tableSpec('x', { kind: 'sgd', lr: 1 }, 0)],
    ['a learning rate that is no number', tableSpec('x', { kind: 'sgd', lr: Number.NaN })],
    ['an optimizer that does not exist', tableSpec('x', { kind: 'lion' } as never)],
  ])('refuses %s', (_, spec) => {
    start();
    cluster.createTables([spec]);
    expect([answer().code, cluster.map.tables.length]).toEqual(['BAD_ARGUMENT', 1]);
  });

  it('has a limit', () => {
    start({ schedulerPolicy: { maxTables: 1 } });
    cluster.createTables([tableSpec('u')]);
    expect(answer()).toMatchObject({
      code: 'LIMIT',
      message: '2 tables are too many: kintsugi scheduler --limit maxTables=N (maxTables = 1)',
    });
  });

  it('has a limit that nobody can raise: what the engine takes in a shard', () => {
    start({ schedulerPolicy: { maxTables: MAX_TABLES * 2 } });
    cluster.createTables(Array.from({ length: MAX_TABLES + 1 }, (_, i) => tableSpec(`t${i}`)));
    expect(answer()).toMatchObject({
      code: 'LIMIT',
      message: `${MAX_TABLES + 1} tables are too many: a shard takes no more (maxTables = ${MAX_TABLES})`,
    });
  });
});
