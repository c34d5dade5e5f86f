/** A job that goes on from a checkpoint: who loads what, and when it serves. */
import { afterEach, describe, expect, it } from 'vitest';
import { restoredJob } from '../../../src/core/scheduler/scheduler.js';
import type { SavePlan } from '../../../src/protocol/saving.js';
import { Cluster, type ClusterOptions, kind } from '../harness.js';

const PLAN: SavePlan = { url: 'memory', everyMs: 0, keep: 3, rate: 0, kind: 'full job' };
const open: Cluster[] = [];
afterEach(() => {
  for (const cluster of open.splice(0)) cluster.close();
});

function tell(cluster: Cluster, message: Parameters<Cluster['send']>[2]): void {
  cluster.stepScheduler({ kind: 'message', from: cluster.client.id, role: 'client', message });
  cluster.settle();
}

/** A job that has saved rows 1 to 4 of two shards, in two checkpoints. */
function saved(): Cluster {
  const cluster = new Cluster({ k: 2, r: 1 });
  open.push(cluster);
  // A question with the number of an earlier one is a repetition of that.
  const push = (id: number, value: number, keys: number[]) => {
    cluster.client.push({ 0: [{ keys, value }], 1: [{ keys, value }] });
    cluster.settle();
    tell(cluster, { t: 'saveNow', id, name: 'all' });
    cluster.advance(600);
  };
  tell(cluster, { t: 'setPlan', id: 1, name: 'all', plan: PLAN });
  push(2, 1, [1, 2, 3, 4]);
  push(3, 10, [1]);
  expect(cluster.place.manifests.length).toBe(2);
  return cluster;
}

function restored(from: Cluster, options: Partial<ClusterOptions> = {}): Cluster {
  const { k = 2, r = 1 } = options;
  const pools = [{ name: 'embedding', k, r, groups: 1 }];
  const state = () => restoredJob('again', k + r, pools, 'memory', from.place.manifests.at(-1)!);
  const cluster = new Cluster({ k, r, tables: [], state, place: from.place, ...options });
  open.push(cluster);
  return cluster;
}

describe('a job that goes on from a checkpoint', () => {
  it('has its rows, its parities and the numbers of its clients', () => {
    const before = saved();
    const [old] = before.clients;
    const cluster = restored(before);
    cluster.advance(3000);
    expect(cluster.eventsNamed('restore.done')).toMatchObject([{ number: 2 }]);
    expect([1, 2, 4].map((key) => cluster.read(0, key))).toEqual([11, 1, 1]);
    expect(cluster.scheduler!.status()).toMatchObject({ redundancy: 'full' });
    expect(cluster.scheduler!.status().restoring).toBeUndefined();
    expect(cluster.disk.restore).toBeUndefined();
    expect(cluster.client.id).toBeGreaterThan(old!.id);
    cluster.crash(0);
    cluster.restart(0);
    cluster.advance(3000);
    expect(cluster.read(0, 1)).toBe(11);
  });

  it('has another number of parities, if that is wanted', () => {
    const before = saved();
    const cluster = restored(before, { r: 2 });
    cluster.advance(3000);
    expect(cluster.scheduler!.status().redundancy).toBe('full');
    expect(cluster.read(1, 1)).toBe(11);
  });

  it('serves a shard when it is durable that it is loaded, and not before', () => {
    const cluster = restored(saved());
    const held = cluster.hold(kind('shardLoaded'));
    cluster.advance(1000);
    expect(cluster.owner(0).isLoaded).toBe(true);
    expect(cluster.owner(0).phase).toBe('RESTORE');
    const ticket = cluster.client.push({ 0: [{ keys: [1], value: 1 }] });
    cluster.advance(1000);
    expect(ticket.done).toBe(false);
    expect(cluster.scheduler!.status().restoring).toMatchObject({ number: 2, shardsLeft: 2 });
    held.release();
    cluster.advance(3000);
    expect(ticket.done).toBe(true);
    expect(cluster.read(0, 1)).toBe(12);
  });

  it('loads a shard again whose owner dies before it serves', () => {
    const cluster = restored(saved(), { spares: 1 });
    const held = cluster.hold(kind('shardLoaded'));
    cluster.advance(1000);
    expect(cluster.owner(0).isLoaded).toBe(true);
    cluster.crash(0);
    held.release();
    cluster.advance(5000);
    expect(cluster.eventsNamed('restore.done').length).toBe(1);
    expect(cluster.read(0, 1)).toBe(11);
    expect(cluster.eventsNamed('shard.unrecoverable')).toEqual([]);
  });

  it('says why a shard is not loaded, and tries again', () => {
    const before = saved();
    before.place.fetchFails = 'BAD_CHECKPOINT';
    const cluster = restored(before);
    cluster.advance(3000);
    expect(cluster.eventsNamed('restore.failed')[0]).toMatchObject({ code: 'BAD_CHECKPOINT' });
    expect(cluster.scheduler!.status().restoring!.failure).toMatchObject({ code: 'BAD_CHECKPOINT' });
    before.place.fetchFails = undefined;
    cluster.advance(3000);
    expect(cluster.read(0, 1)).toBe(11);
  });

  it('goes on after a restart of the scheduler in the middle', () => {
    const cluster = restored(saved());
    const held = cluster.hold(kind('shardLoaded'));
    cluster.advance(1000);
    cluster.crashScheduler();
    cluster.restartScheduler();
    expect(cluster.disk.restore!.shards.size).toBe(2);
    held.release();
    cluster.advance(3000);
    expect(cluster.read(0, 1)).toBe(11);
  });

  it('is not made of an export', () => {
    const before = saved();
    const draft = { ...before.place.manifests[0]!, kind: 'export' as const };
    expect(() => restoredJob('j', 3, draft.pools, 'memory', draft)).toThrow(/is an export/);
  });
});
