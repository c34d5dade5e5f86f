/** Scores of rows, in real jobs: which rows make room, and what becomes of a score when a PS is lost. */
import { expect, it, onTestFinished } from 'vitest';
import { poolsFor } from '../../../src/core/placement/job.js';
import type { TablePolicy } from '../../../src/engine/policies.js';
import type { Client } from '../../../src/library/client/client.js';
import type { Table } from '../../../src/library/client/options.js';
import { setSavePlan } from '../../../src/library/tools/checkpoints.js';
import { digest } from '../../../src/library/tools/digest.js';
import { plannedEvictions } from '../../../src/library/tools/evictions.js';
import { load } from '../../../src/library/tools/load.js';
import { checkParity } from '../../../src/library/tools/parity.js';
import { save } from '../../../src/library/tools/save.js';
import { startReplica } from '../../../src/roles/replica/replica.js';
import {
  COUNTING,
  client,
  cluster,
  keysFrom,
  keysIn,
  noticed,
  ps,
  redundant,
  rejection,
  scheduler,
  silent,
  temporaryDirectory,
} from '../../roles/support.js';

const DIM = COUNTING.dim;
const MOST = 100;
const SCORED = { maxRows: MOST, score: true } as const;

const ones = (keys: BigUint64Array) => new Float32Array(keys.length * DIM).fill(1);
const pushed = (table: Table, keys: BigUint64Array, score: (key: number) => number) =>
  table.push(keys, ones(keys), { scores: Float32Array.from(keys, (key) => score(Number(key))) });

async function scoresOf(job: Client, keys: BigUint64Array): Promise<number[]> {
  const [rows] = await job.pullFull([{ table: 'items', keys }]);
  const width = job.rowWidth(job.table('items').spec);
  return Array.from(keys, (_, i) => rows![(i + 1) * width - 3]!);
}

it('rows of the lowest score make room, in all places where the rows are', async () => {
  const running = await cluster({ code: '2+1', ps: 3, groups: 2 });
  const job = await client(running.address);
  const table = await job.createTable({ name: 'items', ...COUNTING, policy: SCORED });
  const url = temporaryDirectory();
  const replica = await startReplica({ scheduler: running.address, name: 'replica', log: silent });
  onTestFinished(() => replica.close());
  const dear = keysFrom(0, 40);
  await pushed(table, dear, (key) => 10 + key);
  // Later rows are seen more often.
  for (let step = 0; step < 30; step++) await pushed(table, keysFrom(1000 + step * 20, 20), (key) => -key);
  expect((await keysIn(job, 'items')).slice(0, 40)).toEqual([...dear]);
  const lost = running.kill(1);
  await pushed(table, keysFrom(0, 10), (key) => 200 + key);
  await lost;
  await noticed(job, 'ps-1');
  for (let step = 0; step < 10; step++) await pushed(table, keysFrom(2000 + step * 20, 20), () => -1);
  await running.restart(1);
  await redundant(job, 3);
  const expected = [...dear].map((key) => (key < 10n ? 200 : 10) + Number(key));
  expect(await scoresOf(job, dear)).toEqual(expected);
  expect((await keysIn(job, 'items')).slice(0, 40)).toEqual([...dear]);
  // A push without scores changes none, and a key that comes back begins with 0.
  await table.push(dear, ones(dear));
  expect(await scoresOf(job, dear)).toEqual(expected);
  const back = keysFrom(1000, 3);
  expect((await keysIn(job, 'items')).some((key) => back.includes(key))).toBe(false);
  await table.push(back, ones(back));
  expect(await scoresOf(job, back)).toEqual([0, 0, 0]);
  expect(await plannedEvictions(job, 'items', { policy: { maxRows: 1, score: true } })).toMatchObject({
    displaced: MOST - 4,
  });
  expect(await checkParity(job)).toMatchObject({ blocksUnprotected: 0, mismatched: 0 });
  const reader = await client(running.address, { replica: true });
  for (;;) {
    const rows = await reader.table('items').pull(dear);
    if (rows.every((value, i) => value === (i < 10 * DIM ? 3 : 2))) break;
  }
  expect(await save(job, url)).toMatchObject({ rows: MOST });
  const before = await digest(job);
  for (const each of [reader, replica, job, running]) await each.close();
  // In a job with other shards a row has its score, and so it has in one that loads what was saved.
  const other = await client((await cluster({ code: '1+1', ps: 2 })).address);
  await load(other, url);
  expect(await digest(other)).toEqual(before);
  expect(await scoresOf(other, dear)).toEqual(expected);
  await pushed(other.table('items'), keysFrom(5000, 20), () => 1);
  expect((await keysIn(other, 'items')).slice(0, 40)).toEqual([...dear]);
});

it('a checkpoint has the scores of rows, for any number of shards', async () => {
  const running = await cluster({ code: '2+1', ps: 3 });
  const job = await client(running.address);
  const table = await job.createTable({ name: 'items', ...COUNTING, policy: SCORED });
  const keys = keysFrom(0, 60);
  await pushed(table, keys, (key) => key / 7 - 3);
  const url = temporaryDirectory();
  await setSavePlan(job, 'checkpoint', { url, everyMs: 0, keep: 100, rate: 0, kind: 'full job' });
  await job.checkpoint();
  const before = await digest(job);
  await job.close();
  await running.close();
  for (const { k, names } of [
    { k: 2, names: ['a', 'b', 'c'] },
    { k: 3, names: ['a', 'b', 'c', 'd'] },
  ]) {
    const pools = poolsFor({ k, r: 1 }, names.length);
    const restored = await scheduler({ nodes: names.length, pools, restore: { url } });
    for (const name of names) await ps({ scheduler: restored.address, name });
    const after = await client(restored.address);
    expect(await digest(after)).toEqual(before);
    expect(await scoresOf(after, keys)).toEqual([...keys].map((key) => Math.fround(Number(key) / 7 - 3)));
  }
});

it('of a key that comes twice the highest counts, also in a push that is cut into sections', async () => {
  const job = await client((await cluster({ code: 'none', ps: 1 })).address);
  const table = await job.createTable({ name: 'items', ...COUNTING, policy: SCORED });
  const few = BigUint64Array.of(1n, 2n, 1n, 3n, 2n, 1n);
  await table.push(few, ones(few), { scores: Float32Array.of(-3, 5, -1, 0.5, 2, -2) });
  expect(await scoresOf(job, keysFrom(1, 3))).toEqual([-1, 5, 0.5]);
  const many = BigUint64Array.from({ length: 900_000 }, (_, i) => BigInt(1 + (i % 3)));
  const scores = Float32Array.from(many, (_, i) => -1 - ((i * 7919) % 900_001));
  await table.push(many, ones(many), { scores });
  const highest = [0, 1, 2].map((at) =>
    scores
      .filter((_, i) => i % 3 === at)
      .sort()
      .at(-1),
  );
  expect(await scoresOf(job, keysFrom(1, 3))).toEqual(highest);
  // Counts of these keys are what they are without scores.
  await table.push(few, ones(few), { scores: new Float32Array(6), counts: new Uint32Array(6).fill(2) });
  const [rows] = await job.pullFull([{ table: 'items', keys: keysFrom(1, 3) }]);
  const words = new Uint32Array(rows!.buffer, rows!.byteOffset, rows!.length);
  const width = job.rowWidth(table.spec);
  expect([0, 1, 2].map((i) => words[(i + 1) * width - 1])).toEqual([300_009, 300_006, 300_003]);
});

it('scores that say nothing are refused, and change nothing', async () => {
  const job = await client((await cluster({ code: 'none', ps: 1 })).address);
  const keys = keysFrom(0, 2);
  const make = (name: string, policy?: TablePolicy) =>
    job.createTable({ name, ...COUNTING, ...(policy && { policy }) });
  const items = await make('items', SCORED);
  const refused = (table: Table, scores: unknown) =>
    rejection(table.push(keys, ones(keys), { scores: scores as Float32Array }));
  for (const wrong of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 1e39])
    expect(await refused(items, Float32Array.of(1, wrong))).toMatchObject({
      code: 'BAD_ARGUMENT',
      message: expect.stringMatching(
        /^table "items": scores\[1\] is (NaN|-?Infinity), but a score is a finite/,
      ),
    });
  expect(await refused(items, Float32Array.of(1))).toMatchObject({ code: 'LENGTH_MISMATCH' });
  expect(await refused(items, [1, 2])).toMatchObject({ code: 'BAD_ARGUMENT' });
  for (const table of [
    await make('plain'),
    await make('ageing', { ttl: 5 }),
    await make('full', { maxRows: 5 }),
  ])
    expect(await refused(table, Float32Array.of(1, 2))).toMatchObject({
      code: 'BAD_ARGUMENT',
      message: expect.stringContaining('its rows have no scores: it takes them where it was created with'),
    });
  const gradients = new Float32Array(2 * job.rowWidth(items.spec));
  const whole = job.assign([{ table: items, keys, gradients, scores: Float32Array.of(1, 1) }]);
  expect(await rejection(whole)).toMatchObject({ code: 'BAD_ARGUMENT' });
  expect(await items.pull(keys)).toEqual(new Float32Array(2 * DIM));
  // Whole rows bring their scores; a NaN is none.
  const width = gradients.length / 2;
  gradients[width - 3] = 7;
  gradients[2 * width - 3] = Number.NaN;
  await job.assign([{ table: items, keys, gradients }]);
  expect(await scoresOf(job, keys)).toEqual([7, 0]);
});

it('a table has scores from its creation on, or never', async () => {
  const job = await client((await cluster({ code: 'none', ps: 1 })).address);
  for (const policy of [{ score: true as const }, { score: true as const, ttl: 5, counter: 2 }])
    expect(await rejection(job.createTable({ name: 'items', ...COUNTING, policy }))).toMatchObject({
      code: 'BAD_ARGUMENT',
      message: expect.stringContaining(
        'score says which rows go for maxRows or memory: it needs one of them',
      ),
    });
  const items = await job.createTable({ name: 'items', ...COUNTING, policy: SCORED });
  const full = await job.createTable({ name: 'full', ...COUNTING, policy: { maxRows: MOST } });
  expect(job.rowWidth(items.spec)).toBe(job.rowWidth(full.spec) + 1);
  const set = (table: Table, policy: TablePolicy) => rejection(table.set({ policy }));
  expect(await set(items, { maxRows: MOST })).toMatchObject({
    code: 'BAD_ARGUMENT',
    message: expect.stringContaining('a table keeps score from its creation on'),
  });
  expect(await set(items, { score: true, ttl: 5 })).toMatchObject({ code: 'BAD_ARGUMENT' });
  expect(await set(full, SCORED)).toMatchObject({
    code: 'BAD_ARGUMENT',
    message: expect.stringContaining('a table has score from its creation on, or never'),
  });
  expect(
    await rejection(job.createTable({ name: 'items', ...COUNTING, policy: { maxRows: MOST } })),
  ).toMatchObject({ code: 'TABLE_EXISTS' });
  const keys = keysFrom(0, 3);
  const another = { ...items, spec: { ...items.spec, policy: { maxRows: MOST } } } as Table;
  expect(await rejection(job.push([{ table: another, keys, gradients: ones(keys) }]))).toMatchObject({
    code: 'BAD_ARGUMENT',
    message: 'table "items" is not as this job has it',
  });
  await items.set({ policy: { memory: true, score: true, ttl: 500 } });
  await pushed(items, keys, (key) => key);
  expect(await scoresOf(job, keys)).toEqual([0, 1, 2]);
});
