// The policy of a table changes in a running job: replicas, checkpoints and a restore have the newest one.
import { expect, it, onTestFinished } from 'vitest';
import { poolsFor } from '../../../src/core/placement/job.js';
import { setSavePlan } from '../../../src/library/tools/checkpoints.js';
import { digest } from '../../../src/library/tools/digest.js';
import { checkParity } from '../../../src/library/tools/parity.js';
import { startReplica } from '../../../src/roles/replica/replica.js';
import {
  COUNTING,
  client,
  cluster,
  keysFrom,
  noticed,
  ps,
  redundant,
  rejection,
  scheduler,
  silent,
  statusWhere,
  temporaryDirectory,
} from '../../roles/support.js';

const DIM = COUNTING.dim;

it('reaches owners, replicas, checkpoints and the restored job', async () => {
  const running = await cluster({ code: '2+1', ps: 3, groups: 1 });
  const job = await client(running.address);
  const table = await job.createTable({ name: 'items', ...COUNTING, policy: { ttl: 5 } });
  const url = temporaryDirectory();
  await setSavePlan(job, 'checkpoint', { url, everyMs: 0, keep: 100, rate: 0, kind: 'full job' });
  const replica = await startReplica({ scheduler: running.address, name: 'replica', log: silent });
  onTestFinished(() => replica.close());
  const push = (keys: BigUint64Array) => table.push(keys, new Float32Array(keys.length * DIM).fill(1));
  const steps = async (count: number) => {
    for (let step = 0; step < count; step++) await push(keysFrom(0, 50));
  };
  await statusWhere(job, 'a replica that has all', ({ replicas = [] }) =>
    replicas.some(({ shards, complete, lagMs }) => shards > 0 && complete === shards && lagMs < 1e6),
  );
  const reader = await client(running.address, { replica: true });
  /** Asks the replica until it has what was pushed last. */
  const readsAs = async (keys: BigUint64Array, value: number) => {
    for (;;) {
      const rows = await reader.table('items').pull(keys);
      if (rows.every((x) => x === value)) return;
    }
  };
  await push(keysFrom(1000, 2000));
  await readsAs(keysFrom(1000, 50), 1);
  await steps(6);
  await readsAs(keysFrom(1000, 50), 0);
  // A thousand rows of each shard are gone, and most of them wait to be evicted.
  await table.set({ policy: { ttl: 1000, counter: 2 } });
  const last = keysFrom(2900, 100);
  await readsAs(last, 0);
  await running.kill(1);
  await noticed(job, 'ps-1');
  expect([...(await table.pull(last))].every((x) => x === 0)).toBe(true);
  await steps(1);
  await readsAs(last, 0);
  await running.restart(1);
  await redundant(job, 3);
  // The first sighting of a new row changes nothing now.
  await push(last);
  expect([...(await table.pull(last))].every((x) => x === 0)).toBe(true);
  await push(last);
  expect([...(await table.pull(last))].every((x) => x === 1)).toBe(true);
  await steps(50);
  await readsAs(last, 1);
  expect([...(await reader.table('items').pull(keysFrom(1000, 1500)))].every((x) => x === 0)).toBe(true);
  expect(reader.table('items').spec.policy).toEqual({ ttl: 1000, counter: 2 });
  expect(await checkParity(job)).toMatchObject({ blocksUnprotected: 0, mismatched: 0 });

  await job.checkpoint();
  const before = (await digest(job)).sha256;
  const restored = await scheduler({ nodes: 3, pools: poolsFor({ k: 2, r: 1 }, 3), restore: { url } });
  for (const n of [0, 1, 2])
    await ps({ scheduler: restored.address, name: `new-${n}`, hostLabel: `new-${n}` });
  const next = await client(restored.address);
  await redundant(next, 3);
  expect((await digest(next)).sha256).toBe(before);
  const there = next.table('items');
  expect(there.spec).toMatchObject({ policy: { ttl: 1000, counter: 2 }, policyVersion: 2 });
  // Workers of the restored job have the policy of the creation.
  await next.createTable({ name: 'items', ...COUNTING, policy: { ttl: 5 } });
  await there.set({ policy: { ttl: 1 } });
  for (let step = 0; step < 3; step++) await there.push(keysFrom(0, 50), new Float32Array(50 * DIM).fill(1));
  expect([...(await there.pull(last))].every((x) => x === 0)).toBe(true);
});

it('is refused with a sentence where it cannot be', async () => {
  const running = await cluster({ code: '1+1', ps: 2, groups: 1 });
  const job = await client(running.address);
  const plain = await job.createTable({ name: 'plain', dim: 2 });
  const items = await job.createTable({ name: 'items', dim: 2, policy: { ttl: 5 } });
  const refused = async (change: Promise<void>) => (await rejection(change)) as Error & { code: string };
  for (const policy of [{ ttl: 5 }, { maxRows: 5 }, { memory: true } as const]) {
    const { code, message } = await refused(plain.set({ policy }));
    expect([code, message]).toEqual([
      'BAD_ARGUMENT',
      expect.stringContaining('table "plain": it has no policy'),
    ]);
  }
  expect((await refused(items.set({ policy: {} }))).message).toContain('at least one of');
  expect((await refused(items.set({ policy: null as never }))).message).toBe('set: policy must not be null');
  expect((await refused(items.set({ policy: { ttl: 1.5 } }))).message).toContain('ttl must be an integer');
  expect((await refused(items.set({}))).message).toContain('policy');
  await items.set({ policy: { maxRows: 7 }, lr: 0.5 });
  expect(items.spec).toMatchObject({ policy: { maxRows: 7 }, optimizer: { lr: 0.5 } });
});
