/**
 * A shard that the system refuses memory while it is taken over: another node gets it, and no other shard of
 * the node notices.
 */
import { afterEach, expect, it, vi } from 'vitest';
import { KintsugiError } from '../../../src/common/errors.js';
import { Cluster, native } from '../harness.js';

let cluster: Cluster;
afterEach(() => {
  vi.restoreAllMocks();
  cluster.close();
});

const owner = (m = 0) => cluster.map.groups[0]!.data[m]!;

function pushToAll(): void {
  for (let m = 0; m < 2; m++) cluster.client.push({ [m]: [{ keys: [1, 2, 3] }] });
  cluster.settle();
}

/** Refuses memory at this call to the next shards that are taken over, `times` times. */
function refuse(call: 'adopt' | 'addEquations', times: number): void {
  const create = native.createShard.bind(native);
  let left = times;
  vi.spyOn(native, 'createShard').mockImplementation((...args) => {
    const shard = create(...args);
    const real = shard[call].bind(shard) as (...given: unknown[]) => unknown;
    vi.spyOn(shard, call).mockImplementation(((...given: unknown[]) => {
      if (left-- > 0) throw new KintsugiError('MEMORY_LIMIT', 'no more');
      return real(...given);
    }) as never);
    return shard;
  });
}

/** Nodes that were refused memory, in their order. */
const refused = (): unknown[] => cluster.eventsNamed('shard.refused');

function expectAllDone(pushes: number): void {
  expect(cluster.client.core.unacknowledged).toBe(0);
  for (let m = 0; m < 2; m++) expect(cluster.read(m, 2)).toBe(pushes);
  expect(cluster.checkParities()).toBeGreaterThan(0);
}

for (const call of ['adopt', 'addEquations'] as const) {
  it(`goes to another node when ${call} is refused`, () => {
    cluster = new Cluster({ k: 2, r: 1, spares: 2 });
    pushToAll();
    refuse(call, 1);
    const { node } = owner();
    cluster.crash(0);
    cluster.advance(10_000);
    expect(refused()).toHaveLength(1);
    const [first] = cluster.eventsNamed('shard.refused') as [{ gen: number }];
    expect(owner().gen).toBeGreaterThan(first.gen);
    expect(owner().node).not.toBe(node);
    pushToAll();
    cluster.advance(10_000);
    expectAllDone(2);
  });
}

it('waits where no other node is, and is tried again', () => {
  cluster = new Cluster({ k: 2, r: 1 });
  pushToAll();
  refuse('adopt', 2);
  cluster.crash(0);
  cluster.advance(2000);
  expect(refused()).toHaveLength(2);
  const { node, gen } = owner();
  expect(node).toBe(0);
  pushToAll();
  cluster.advance(30_000);
  expect(owner().gen).toBeGreaterThan(gen);
  expectAllDone(2);
});

it('does not begin a second time in the same generation', () => {
  cluster = new Cluster({ k: 2, r: 2, spares: 2 });
  pushToAll();
  refuse('adopt', 1);
  const hold = cluster.hold(({ message }) => message.t === 'shardRefused');
  cluster.crash(0);
  cluster.advance(2000);
  const { node, gen } = owner();
  const { version } = cluster.map.groups[0]!;
  cluster.crash(3);
  cluster.settle();
  expect(cluster.map.groups[0]!.version).toBeGreaterThan(version);
  expect(owner()).toMatchObject({ node, gen });
  expect(cluster.nodeById(node).node!.ownerAt(0, 0)).toBeUndefined();
  hold.release();
  cluster.advance(10_000);
  expect(owner().gen).toBeGreaterThan(gen);
  expectAllDone(1);
});

it('stays beside a mirror that has everything, whatever the scheduler that hears of it knows', () => {
  cluster = new Cluster({ k: 2, r: 1, spares: 2 });
  pushToAll();
  cluster.advance(600);
  refuse('adopt', 1);
  const found = cluster.lose(({ message }) => message.t === 'shardRefused');
  const { id: node } = cluster.nodes[3]!;
  cluster.stepScheduler({ kind: 'move', g: 0, member: 0, node });
  cluster.advance(2000);
  expect(refused()).toHaveLength(1);
  // Completeness comes back with heartbeats, and refusals are told before the next heartbeat.
  cluster.crashScheduler();
  found();
  cluster.restartScheduler();
  const hold = cluster.hold(({ message }) => message.t === 'heartbeat');
  cluster.advance(300);
  const mirror = expect.objectContaining({ kind: 'M', index: 0, node });
  expect(cluster.map.groups[0]!.sinks).toContainEqual(mirror);
  expect(owner().node).toBe(node);
  // So the group can lose another member.
  cluster.crash(1);
  hold.release();
  cluster.advance(10_000);
  pushToAll();
  cluster.advance(10_000);
  expectAllDone(2);
});

it('has its node left out by planned moves for a while', () => {
  cluster = new Cluster({ k: 2, r: 1, spares: 2 });
  pushToAll();
  refuse('adopt', 1);
  cluster.crash(0);
  cluster.advance(3000);
  expect(refused()).toHaveLength(1);
  const used = [...cluster.map.groups[0]!.data, ...cluster.map.groups[0]!.sinks].map(({ node }) => node);
  const free = cluster.nodes.filter(({ id, node }) => node && !used.includes(id));
  expect(free).toHaveLength(1);
  const drain = { t: 'drain', id: 2, node: 'ps-1', timeoutMs: 0 } as const;
  cluster.stepScheduler({ kind: 'message', from: cluster.client.id, role: 'client', message: drain });
  cluster.advance(3000);
  expect(cluster.eventsNamed('move.begun')).toEqual([]);
  cluster.advance(10_000);
  expect(cluster.eventsNamed('move.begun')).toMatchObject([{ to: free[0]!.name }]);
  expect(cluster.left).toEqual(['ps-1']);
  expectAllDone(1);
});
