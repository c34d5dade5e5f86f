/** A job in another shape than the checkpoint that it goes on from: each shard takes the rows of its keys. */
import { afterEach, describe, expect, it } from 'vitest';
import { restoredJob } from '../../../src/core/scheduler/scheduler.js';
import { locate, type Pool } from '../../../src/protocol/map.js';
import type { SavePlan } from '../../../src/protocol/saving.js';
import { Cluster, type ClusterOptions, native } from '../harness.js';

const PLAN: SavePlan = { url: 'memory', everyMs: 0, keep: 3, rate: 0, kind: 'full job' };
const KEYS = Array.from({ length: 40 }, (_, i) => i + 1);
const open: Cluster[] = [];
afterEach(() => {
  for (const cluster of open.splice(0)) cluster.close();
});

const poolOf = (k: number, groups: number): Pool => ({ name: 'embedding', k, r: 1, groups, firstGroup: 0 });

/** Where the keys of a job of this shape are. */
function byShard({ k, groups }: Pool, keys: readonly number[]): { g: number; m: number; keys: number[] }[] {
  const { order, starts } = native.partition(BigUint64Array.from(keys, BigInt), k * groups);
  return Array.from({ length: k * groups }, (_, shard) => {
    const { group: g, member: m } = locate(poolOf(k, groups), shard);
    return { g, m, keys: [...order.subarray(starts[shard], starts[shard + 1])].map((at) => keys[at]!) };
  });
}

function push(cluster: Cluster, shape: Pool, value: number, keys: readonly number[]): void {
  for (const { g, m, keys: own } of byShard(shape, keys))
    if (own.length > 0) cluster.client.push({ [m]: [{ keys: own, value }] }, g);
  cluster.settle();
}

function tell(cluster: Cluster, message: Parameters<Cluster['send']>[2]): void {
  cluster.stepScheduler({ kind: 'message', from: cluster.client.id, role: 'client', message });
  cluster.settle();
}

/** A session of a range that is open in both checkpoints, and what each shard has of it. */
const SESSION = 7;
const PUSHED = 9;

/** A job with two checkpoints: row n has n, and the first ten rows 100 more. */
function saved(shape: Pool): Cluster {
  const cluster = new Cluster({ k: shape.k, r: 1, groups: shape.groups });
  open.push(cluster);
  tell(cluster, { t: 'setPlan', id: 1, name: 'all', plan: PLAN });
  for (const key of KEYS) push(cluster, shape, key, [key]);
  for (const { g, m, keys } of byShard(shape, KEYS))
    for (let n = 0; n < PUSHED && keys.length > 0; n++)
      cluster.client.push({ [m]: [{ keys: [keys[0]!], value: 0 }] }, g, SESSION);
  cluster.settle();
  tell(cluster, { t: 'saveNow', id: 2, name: 'all' });
  cluster.advance(600);
  push(cluster, shape, 100, KEYS.slice(0, 10));
  tell(cluster, { t: 'saveNow', id: 3, name: 'all' });
  cluster.advance(600);
  expect(cluster.place.manifests.length).toBe(2);
  return cluster;
}

function restored(from: Cluster, { k, groups }: Pool, options: Partial<ClusterOptions> = {}): Cluster {
  const pools = [{ name: 'embedding', k, r: 1, groups }];
  const state = () => restoredJob('again', k + 1, pools, 'memory', from.place.manifests.at(-1)!);
  const cluster = new Cluster({ k, r: 1, groups, tables: [], state, place: from.place, ...options });
  open.push(cluster);
  return cluster;
}

/** Rows of every shard, by key. */
function rowsOf(cluster: Cluster, { k, groups }: Pool): Map<number, number> {
  const rows = new Map<number, number>();
  for (let shard = 0; shard < k * groups; shard++) {
    const { group: g, member: m } = locate(poolOf(k, groups), shard);
    const { keys } = cluster.owner(m, g).native.keys(1, 0, 1000);
    for (const key of keys) {
      expect(rows.has(Number(key))).toBe(false);
      const ticket = cluster.client.pull({ [m]: [{ keys: [Number(key)] }] }, g);
      cluster.settle();
      rows.set(Number(key), ticket.rows[0]![0]!);
    }
  }
  return rows;
}

const expected = new Map(KEYS.map((key) => [key, key + (key <= 10 ? 100 : 0)]));

describe('a job in another shape than its checkpoint', () => {
  it.each([
    [poolOf(2, 1), poolOf(3, 1)],
    [poolOf(3, 1), poolOf(2, 1)],
    [poolOf(2, 2), poolOf(3, 1)],
    [poolOf(2, 1), poolOf(2, 3)],
    [poolOf(4, 1), poolOf(2, 2)],
  ])('has every row once, where its key belongs (%#)', (before, after) => {
    const cluster = restored(saved(before), after);
    cluster.advance(5000);
    expect(cluster.eventsNamed('restore.done').length).toBe(1);
    expect(cluster.scheduler!.status()).toMatchObject({ redundancy: 'full' });
    expect([...rowsOf(cluster, after)].sort(([a], [b]) => a - b)).toEqual([...expected]);
    for (const { g, m, keys } of byShard(after, KEYS))
      expect(cluster.owner(m, g).native.stats()[0]!.rows).toBe(keys.length);
    cluster.crash(0);
    cluster.restart(0);
    cluster.advance(5000);
    expect([...rowsOf(cluster, after)].sort(([a], [b]) => a - b)).toEqual([...expected]);
  });

  it('asks for files of those shards only that have keys in common', () => {
    const cluster = restored(saved(poolOf(4, 1)), poolOf(2, 1));
    cluster.advance(3000);
    const asked = cluster
      .sent('loadShard')
      .map(({ message: { m, parts } }) => [m, parts.map((p) => p.member)]);
    expect(asked).toContainEqual([0, [0, 1]]);
    expect(asked).toContainEqual([1, [2, 3]]);
    expect(asked.every(([, members]) => (members as number[]).length === 2)).toBe(true);
  });

  it('goes on with numbers that its shards have never seen', () => {
    const shape = poolOf(3, 1);
    const cluster = restored(saved(poolOf(2, 1)), shape);
    cluster.advance(3000);
    const { m, keys } = byShard(shape, KEYS)[0]!;
    const before = cluster.read(m, keys[0]!);
    // A worker that goes on with a range takes what is done as given; it is less than the shards before had.
    const count = PUSHED - 4;
    cluster.client.step({ kind: 'skip', client: SESSION, items: [{ g: 0, m, count }] });
    const ticket = cluster.client.push({ [m]: [{ keys: [keys[0]!], value: 1000 }] }, 0, SESSION);
    cluster.settle();
    expect(ticket).toMatchObject({ done: true, error: undefined });
    expect(cluster.read(m, keys[0]!)).toBe(before + 1000);
    expect(cluster.sent('skipTo').map(({ message }) => message.next)).toEqual([count + 1]);
    // The next owner of the shard knows it, too.
    cluster.crash(m);
    cluster.restart(m);
    cluster.advance(5000);
    const next = cluster.client.push({ [m]: [{ keys: [keys[0]!], value: 1 }] }, 0, SESSION);
    cluster.settle();
    expect(next.done).toBe(true);
    expect(cluster.read(m, keys[0]!)).toBe(before + 1001);
    expect(cluster.sent('skipTo').length).toBe(1);
  });

  it('is loaded again where its owner died, and by a scheduler that was started again', () => {
    const cluster = restored(saved(poolOf(2, 1)), poolOf(3, 1), { spares: 1 });
    const held = cluster.hold(({ message }) => message.t === 'shardLoaded');
    cluster.advance(1000);
    cluster.crash(1);
    cluster.crashScheduler();
    cluster.restartScheduler();
    held.release();
    cluster.advance(6000);
    expect([...rowsOf(cluster, poolOf(3, 1))].sort(([a], [b]) => a - b)).toEqual([...expected]);
  });

  it('trains each sample once from a cut of one instant, and at least once from any other', () => {
    const before = saved(poolOf(2, 1));
    const draft = before.place.manifests.at(-1)!;
    const pools = [{ name: 'embedding', k: 3, r: 1, groups: 1 }];
    const of = (barrier: boolean) => restoredJob('j', 4, pools, 'memory', { ...draft, barrier }).restore;
    expect(of(false)).toMatchObject({ atLeastOnce: true });
    expect(of(true)!.atLeastOnce).toBeUndefined();
    const same = restoredJob('j', 3, draft.pools, 'memory', { ...draft, barrier: false }).restore;
    expect(same!.atLeastOnce).toBeUndefined();
  });

  it('needs the pools of its tables', () => {
    const draft = saved(poolOf(2, 1)).place.manifests.at(-1)!;
    const pools = [{ name: 'other', k: 3, r: 1, groups: 1 }];
    expect(() => restoredJob('j', 4, pools, 'memory', draft)).toThrow(/no pool "embedding"/);
  });
});
