// Rows that are deleted are gone for everybody and durably, in parities, replicas and checkpoints, too. They
// are as new when their keys come back.
import { expect, it, onTestFinished } from 'vitest';
import type { Client } from '../../../src/library/client/client.js';
import { setSavePlan } from '../../../src/library/tools/checkpoints.js';
import { digest } from '../../../src/library/tools/digest.js';
import { load } from '../../../src/library/tools/load.js';
import { checkParity } from '../../../src/library/tools/parity.js';
import { startReplica } from '../../../src/roles/replica/replica.js';
import { readManifest } from '../../../src/stores/checkpoint/checkpoints.js';
import { openPlace } from '../../../src/stores/checkpoint/open.js';
import {
  COUNTING,
  client,
  cluster,
  firstKeys,
  keysIn,
  keysOf,
  noticed,
  redundant,
  rejection,
  silent,
  statusWhere,
  temporaryDirectory,
} from '../../roles/support.js';

const ROWS = 500;
const DIM = COUNTING.dim;
const ones = (rows: number) => new Float32Array(rows * DIM).fill(1);
const EVEN = firstKeys(ROWS).filter((key) => key % 2n === 0n);

async function filled(job: Client, name = 'counts', pool = 'embedding') {
  const table = await job.createTable({ name, ...COUNTING, pool });
  await table.push(firstKeys(ROWS), ones(ROWS));
  return table;
}

const odd = [...firstKeys(ROWS)].filter((key) => key % 2n === 1n);

it('a row is gone, and starts anew when its key is pushed', async () => {
  const job = await client((await cluster({ code: '2+1' })).address);
  const start = { kind: 'uniform', low: -1, high: 1 } as const;
  const table = await job.createTable({ name: 'items', dim: 4, initializer: start });
  const keys = keysOf(1, 2, 3);
  const initial = await table.pull(keys);
  const gradients = new Float32Array(12).fill(1);
  await table.push(keys, gradients);
  const once = await job.pullFull([{ table, keys }]);
  await table.push(keys, gradients);
  // Twice in one call, and a key that has no row.
  await table.delete(keysOf(2, 2, 77));
  expect(await keysIn(job, 'items')).toEqual([1n, 3n]);
  expect((await table.pull(keys)).slice(4, 8)).toEqual(initial.slice(4, 8));
  await table.delete(keys);
  expect(await table.pull(keys)).toEqual(initial);
  expect(await keysIn(job, 'items')).toEqual([]);
  // As after the first push: of the optimizer's state nothing is left.
  await table.push(keys, gradients);
  expect(await job.pullFull([{ table, keys }])).toEqual(once);
});

it('what is no deletion is refused', async () => {
  const job = await client((await cluster({ code: 'none', ps: 1 })).address);
  const table = await filled(job);
  const [a, b] = [keysOf(1), keysOf(2)];
  const codeOf = async (promise: Promise<unknown>) => (await rejection(promise)).code;
  expect(await codeOf(table.delete([1n] as never))).toBe('KEY_TYPE');
  expect(await codeOf(table.delete(keysOf(2n ** 64n - 1n)))).toBe('KEY_RESERVED');
  expect(await codeOf(job.delete([{ table: 'none', keys: a }]))).toBe('UNKNOWN_TABLE');
  const twice = [
    { table, keys: a },
    { table, keys: b },
  ];
  expect(await codeOf(job.delete(twice))).toBe('BAD_ARGUMENT');
  const withRows = [{ table, keys: a, gradients: ones(1) }];
  expect(await codeOf(job.delete(withRows))).toBe('BAD_ARGUMENT');
  const audited = await client((await cluster({ code: 'none', ps: 1 })).address, { audit: true });
  const counted = await filled(audited);
  expect(await rejection(counted.delete(a))).toMatchObject({
    code: 'BAD_ARGUMENT',
    message: 'a client with an audit cannot delete rows',
  });
  expect((await keysIn(job, 'counts')).length).toBe(ROWS);
});

it.each(['embedding', 'mirrored'])('is durable: PS of pool "%s" die and come back', async (pool) => {
  const running = await cluster({ code: '2+1', ps: 3, groups: 4 });
  const job = await client(running.address);
  const table = await filled(job, 'counts', pool);
  await table.delete(EVEN);
  for (const index of [0, 1, 2]) {
    await running.kill(index);
    await noticed(job, `ps-${index}`);
    // Slots of deleted rows are used again.
    await table.push(EVEN.subarray(0, 50), ones(50));
    await table.delete(EVEN.subarray(0, 50));
    await running.restart(index);
    await redundant(job, 3);
    expect(await keysIn(job, 'counts')).toEqual(odd);
  }
  expect(await checkParity(job)).toMatchObject({ blocksUnprotected: 0, mismatched: 0 });
  await table.push(firstKeys(ROWS), ones(ROWS));
  const rows = await table.pull(firstKeys(ROWS));
  expect(rows.every((value, i) => value === (Math.floor(i / DIM) % 2 === 0 ? 1 : 2))).toBe(true);
});

it('the next checkpoint does not have it, and neither has a job that is restored from that', async () => {
  const running = await cluster({ code: '2+1', ps: 3, groups: 2 });
  const job = await client(running.address);
  const table = await filled(job);
  const url = temporaryDirectory();
  const plan = { url, everyMs: 0, keep: 100, rate: 0, kind: 'full job' as const };
  await setSavePlan(job, 'checkpoint', plan);
  await job.checkpoint();
  await table.delete(EVEN);
  // Increments name the keys.
  expect(await job.checkpoint()).toMatchObject({ rows: 0 });
  await table.push(keysOf(1), ones(1));
  await job.checkpoint();
  const { shards } = await readManifest(await openPlace(url));
  const rows = shards.flatMap(({ segments }) => segments.map((segment) => segment.rows));
  expect(rows.reduce((sum, count) => sum + count, 0)).toBe(ROWS + 1);
  const restored = await client((await cluster({ code: '1+1' })).address);
  await load(restored, url);
  expect(await digest(restored)).toEqual(await digest(job));
  expect(await keysIn(restored, 'counts')).toEqual(odd);
});

it('a replica does not have it any more', async () => {
  const running = await cluster({ code: '2+1', ps: 3 });
  const job = await client(running.address);
  const table = await filled(job);
  const replica = await startReplica({ scheduler: running.address, name: 'replica', log: silent });
  onTestFinished(() => replica.close());
  await statusWhere(job, 'a replica that has all', ({ replicas = [] }) =>
    replicas.some(({ shards, complete, lagMs }) => shards > 0 && complete === shards && lagMs < 1e6),
  );
  const reader = await client(running.address, { replica: true });
  await table.delete(EVEN);
  const expected = Float32Array.from({ length: ROWS * DIM }, (_, i) => Math.floor(i / DIM) % 2);
  for (;;) {
    const rows = await reader.table('counts').pull(firstKeys(ROWS));
    if (rows.every((value, i) => value === expected[i])) break;
  }
});
