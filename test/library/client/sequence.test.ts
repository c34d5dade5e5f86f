/** Pushes under numbers that several clients share: whoever repeats one, every shard applies it once. */
import { expect, it } from 'vitest';
import { loadNative } from '../../../src/engine/native.js';
import { auditKeys } from '../../../src/library/client/audit.js';
import type { Client, PushRequest } from '../../../src/library/client/client.js';
import { Dataset, type DatasetSpec, UNBOUNDED } from '../../../src/library/client/dataset.js';
import { PushSequence } from '../../../src/library/client/sequence.js';
import { checkPushes } from '../../../src/library/tools/audit.js';
import { poolOf } from '../../../src/protocol/map.js';
import { COUNTING, client, cluster, keysOf, noticed } from '../../roles/support.js';

const SPEC: DatasetSpec = {
  files: [{ name: 'a', size: 100, rangeBytes: 100 }],
  ...{ batch: 1, epochs: 1, seed: 1, shuffle: false, staleness: UNBOUNDED },
};
const ROWS = 40;

/** A few keys of each batch, so that most batches leave some shards out; gradients differ from key to key. */
function batch(index: number): PushRequest[] {
  const keys = keysOf(...[0, 1, 2].map((i) => (index * 7 + i * 11) % ROWS));
  return [{ table: 't', keys, gradients: Float32Array.from({ length: 6 }, (_, i) => 1 + ((index + i) % 4)) }];
}

function sumOf(batches: number): Float32Array {
  const sums = new Float32Array(ROWS * 2);
  for (let index = 0; index < batches; index++) {
    const { keys, gradients } = batch(index)[0]!;
    for (const [i, key] of keys.entries())
      for (const column of [0, 1]) sums[Number(key) * 2 + column]! += gradients[i * 2 + column]!;
  }
  return sums;
}

async function rowsOf(from: Client): Promise<Float32Array> {
  const [rows] = await from.pull([
    { table: 't', keys: keysOf(...Array.from({ length: ROWS }, (_, i) => i)) },
  ]);
  return rows!;
}

async function two(): Promise<{ job: Awaited<ReturnType<typeof cluster>>; a: Client; b: Client }> {
  const job = await cluster({ code: '2+1' });
  const [a, b] = [await client(job.address, { audit: true }), await client(job.address, { audit: true })];
  await a.createTable({ name: 't', ...COUNTING });
  await b.createTable({ name: 't', ...COUNTING });
  return { job, a, b };
}

it('another worker resumes the range of a lost one, also when a PS dies; nothing is repeated', async () => {
  const { job, a, b } = await two();
  const mine = await Dataset.open(a, 'd', SPEC);
  const theirs = await Dataset.open(b, 'd', SPEC);
  const lease = (await mine.acquire(0))!;
  const sequence = new PushSequence(a, lease.session);
  const pushes = [0, 1, 2, 3, 4].map((index) => sequence.push(batch(index)));
  await Promise.all(pushes);
  mine.report(lease, 3, 5, 3);
  // Everything that is sent before the goodbye arrives: some of it may be durable without anyone knowing.
  const last = sequence.push(batch(5)).catch(() => {});
  const waiting = theirs.acquire(0);
  await a.close();
  await last;
  const taken = (await waiting)!;
  expect(taken).toMatchObject({ range: lease.range, session: lease.session, done: 3, begun: 5 });
  const second = new PushSequence(b, taken.session);
  for (const index of [0, 1, 2]) second.skip(batch(index));
  await second.push(batch(3));
  await job.kill(0);
  await noticed(b, 'ps-0');
  for (const index of [4, 5, 6, 7, 8, 9]) await second.push(batch(index));
  expect(await rowsOf(b)).toEqual(sumOf(10));
  const counts = second.counts().map((each) => ({ ...each, acknowledged: each.sent }));
  const audit = await checkPushes(b, [{ client: taken.session, counts }]);
  expect(audit).toMatchObject({ lost: 0, duplicated: 0 });
  const keys = auditKeys(loadNative(), poolOf(b.clusterMap, 'embedding')!, taken.session);
  const [applied] = await b.pull([{ table: '__audit/embedding', keys }]);
  expect(applied!.reduce((sum, row) => sum + row, 0)).toBe(counts.reduce((sum, { sent }) => sum + sent, 0));
  await theirs.release(taken, { outcome: 'finished', done: 10, begun: 10, samples: 10, redone: 2 });
  expect(await Dataset.status(b, 'd')).toMatchObject({ complete: true, samples: [10], redone: 2 });
  expect(await theirs.acquire(10)).toBeUndefined();
});

it('two clients that push the same batches at the same time change each row once', async () => {
  const { a, b } = await two();
  const lease = (await (await Dataset.open(a, 'd', SPEC)).acquire(0))!;
  const both = [a, b].map((each) => new PushSequence(each, lease.session));
  await Promise.all(
    both.map((sequence) =>
      Promise.all(Array.from({ length: 30 }, (_, index) => sequence.push(batch(index)))),
    ),
  );
  expect(await rowsOf(a)).toEqual(sumOf(30));
  const [one, other] = both.map((sequence) => sequence.counts());
  expect(one).toEqual(other);
  for (const { sent, acknowledged } of one!) expect(acknowledged).toBe(sent);
  // A client's own numbers have nothing to do with them.
  expect(a.pushCounts()).toEqual([]);
  await a.push(batch(30));
  expect(await rowsOf(b)).toEqual(sumOf(31));
});

it('a push that goes out in several rounds has its numbers before the next push has any', async () => {
  const { a, b } = await two();
  await a.createTable({ name: 'wide', ...COUNTING, dim: 64 });
  const lease = (await (await Dataset.open(a, 'd', SPEC)).acquire(0))!;
  const rows = 80_000;
  const keys = BigUint64Array.from({ length: rows }, (_, i) => BigInt(i));
  const wide = [{ table: 'wide', keys, gradients: new Float32Array(rows * 64).fill(1) }];
  const sequence = new PushSequence(a, lease.session);
  await Promise.all([sequence.push(wide), sequence.push(wide), sequence.push(batch(0))]);
  // A client that goes on behind them gets the same numbers by counting.
  const other = new PushSequence(b, lease.session);
  await b.createTable({ name: 'wide', ...COUNTING, dim: 64 });
  other.skip([{ table: 'wide', keys }]);
  await Promise.all([other.push(wide), other.push(batch(0)), other.push(batch(1))]);
  expect(await rowsOf(b)).toEqual(sumOf(2));
  const [values] = await b.pull([{ table: 'wide', keys: keys.slice(0, 500) }]);
  expect(values!.every((value) => value === 2)).toBe(true);
});

it('a closed sequence pushes nothing more: the next one of its session has the right numbers', async () => {
  const { a } = await two();
  const lease = (await (await Dataset.open(a, 'd', SPEC)).acquire(0))!;
  const sequence = new PushSequence(a, lease.session);
  for (const index of [0, 1, 2]) await sequence.push(batch(index));
  sequence.close();
  // A reader that is ahead notices late.
  const late = { code: 'ABORTED' };
  expect(() => sequence.skip(batch(0))).toThrow(expect.objectContaining(late));
  await expect(sequence.push(batch(3))).rejects.toMatchObject(late);
  const next = new PushSequence(a, lease.session);
  for (const index of [0, 1, 2]) next.skip(batch(index));
  await next.push(batch(3));
  expect(await rowsOf(a)).toEqual(sumOf(4));
});

it('what waits for its numbers when a sequence is closed gets none', async () => {
  const { a } = await two();
  await a.createTable({ name: 'wide', ...COUNTING, dim: 64 });
  const lease = (await (await Dataset.open(a, 'd', SPEC)).acquire(0))!;
  const sequence = new PushSequence(a, lease.session);
  const keys = BigUint64Array.from({ length: 80_000 }, (_, i) => BigInt(i));
  const wide = [{ table: 'wide', keys, gradients: new Float32Array(keys.length * 64) }];
  const both = Promise.allSettled([sequence.push(wide), sequence.push(batch(0))]);
  await new Promise((resolve) => setImmediate(resolve));
  sequence.close();
  const aborted = { status: 'rejected', reason: { code: 'ABORTED' } };
  expect(await both).toMatchObject([aborted, aborted]);
  expect(await rowsOf(a)).toEqual(sumOf(0));
});

it('nothing takes the numbers of a push that failed before it had any', async () => {
  const { a } = await two();
  const lease = (await (await Dataset.open(a, 'd', SPEC)).acquire(0))!;
  const sequence = new PushSequence(a, lease.session);
  const wrong = [{ ...batch(1)[0]!, gradients: new Float32Array(2) }];
  const all = await Promise.allSettled([
    sequence.push(batch(0)),
    sequence.push(wrong),
    sequence.push(batch(2)),
  ]);
  expect(all).toMatchObject([
    { status: 'fulfilled' },
    { status: 'rejected', reason: { code: 'LENGTH_MISMATCH' } },
    { status: 'rejected', reason: { code: 'ABORTED' } },
  ]);
  expect(await rowsOf(a)).toEqual(sumOf(1));
});
