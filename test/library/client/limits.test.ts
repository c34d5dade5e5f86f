// The library at the ends of what it takes: values that are no numbers, the first and the last key, nothing
// at all, more than fits a frame, and a node without memory. Everywhere: a documented result or a code, and
// nothing lost.
import { describe, expect, it } from 'vitest';
import type { Client, Table } from '../../../src/library/client/client.js';
import { internalsOf } from '../../../src/library/client/connected.js';
import { ROUND_BYTES, SECTION_BYTES } from '../../../src/library/client/sections.js';
import { COUNTING, client, cluster, firstKeys, keysOf, rejection } from '../../roles/support.js';

const LAST = 2n ** 64n - 2n;
const RESERVED = 2n ** 64n - 1n;

async function connected(options: Parameters<typeof cluster>[0] = {}, connect = {}): Promise<Client> {
  const job = await cluster({ code: '2+1', ...options });
  return client(job.address, connect);
}

/** Every parity block is the sum of its members, asked of the sinks themselves. */
async function mismatches(job: Client): Promise<number> {
  let count = 0;
  for (const group of job.clusterMap.groups) {
    for (const { sid, node } of group.sinks) {
      const message = { t: 'check' as const, epoch: 0, id: 0, g: group.id, sid };
      count += await internalsOf(job).session.query({ to: { node }, message }, (answer) =>
        answer.t === 'checked' ? answer.mismatched + answer.unprotected : 1,
      );
    }
  }
  return count;
}

describe('gradients that are no numbers', () => {
  it('are applied as they are: only their own values change, and parities follow bit for bit', async () => {
    const job = await connected();
    const table = await job.createTable({ name: 't', ...COUNTING });
    await table.push(keysOf(1, 2, 3), Float32Array.of(1, 2, 3, 4, 5, 6));
    await table.push(
      keysOf(1, 2),
      Float32Array.of(Number.NaN, 1, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
    );
    expect([...(await table.pull(keysOf(1, 2, 3)))]).toEqual([
      Number.NaN,
      3,
      Number.POSITIVE_INFINITY,
      Number.NEGATIVE_INFINITY,
      5,
      6,
    ]);
    await table.push(keysOf(1, 2, 3), new Float32Array(6).fill(1));
    const rows = await table.pull(keysOf(1, 2, 3));
    expect([...rows]).toEqual([Number.NaN, 4, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 6, 7]);
    expect(await mismatches(job)).toBe(0);
  });
});

describe('keys', () => {
  it('at both ends of their range are ordinary; the reserved one is refused, nothing changes', async () => {
    const job = await connected();
    const table = await job.createTable({ name: 't', ...COUNTING });
    const ends = BigUint64Array.of(0n, 1n, LAST - 1n, LAST, 2n ** 63n, 2n ** 63n - 1n);
    const gradients = Float32Array.from({ length: 12 }, (_, i) => i + 1);
    await table.push(ends, gradients);
    expect(await table.pull(ends)).toEqual(gradients);
    const refusal = await rejection(table.push(BigUint64Array.of(RESERVED), new Float32Array(2)));
    expect(refusal.code).toBe('KEY_RESERVED');
    expect((await rejection(table.pull(BigUint64Array.of(RESERVED)))).code).toBe('KEY_RESERVED');
    await table.push(ends, gradients);
    expect(await table.pull(ends)).toEqual(gradients.map((value) => value * 2));
  });

  it('that repeat are summed before the optimizer sees them', async () => {
    const job = await connected();
    const table = await job.createTable({
      name: 't',
      dim: 1,
      optimizer: { kind: 'adagrad', lr: 1, eps: 0, initialAccumulator: 0 },
      initializer: { kind: 'zeros' },
    });
    await table.push(keysOf(7, 8, 7, 7), Float32Array.of(1, 4, 1, 1));
    // One Adagrad step of gradient 3: -3 / sqrt(9). Three steps of 1 would be -1 - 1/sqrt(2) - 1/sqrt(3).
    expect([...(await table.pull(keysOf(7, 8)))]).toEqual([-1, -1]);
  });
});

describe('nothing', () => {
  it('is pushed and pulled without effect', async () => {
    const job = await connected();
    const table = await job.createTable({ name: 't', ...COUNTING });
    await table.push(keysOf(), new Float32Array(0));
    await job.push([]);
    await job.push([
      { table, keys: keysOf(), gradients: new Float32Array(0) },
      { table: 't', keys: keysOf(5), gradients: Float32Array.of(1, 1) },
    ]);
    expect(await table.pull(keysOf())).toEqual(new Float32Array(0));
    expect(await job.pull([])).toEqual([]);
    expect(await table.pull(keysOf(5))).toEqual(Float32Array.of(1, 1));
    expect(job.pushCounts().reduce((sum, count) => sum + count.sent, 0)).toBe(1);
  });
});

describe('a push that is larger than a frame', () => {
  const large = async (job: Client, count: number, dim: number): Promise<Table> => {
    const table = await job.createTable({ name: 'large', ...COUNTING, dim });
    const gradients = new Float32Array(count * dim);
    for (let i = 0; i < count; i++) gradients.fill(1 + (i % 100), i * dim, (i + 1) * dim);
    await table.push(firstKeys(count), gradients);
    return table;
  };

  it('of a million keys is applied once, row by row, and pulled in one call', async () => {
    const count = 1_000_000;
    const dim = 20; // 88 MB for one shard; 64 MiB is the largest frame
    const job = await connected({ code: '1+1', groups: 1 });
    const table = await large(job, count, dim);
    const rows = await table.pull(firstKeys(count));
    let wrong = 0;
    for (let i = 0; i < rows.length; i++) if (rows[i] !== 1 + (Math.floor(i / dim) % 100)) wrong++;
    expect([rows.length, wrong]).toEqual([count * dim, 0]);
    const counts = job.pushCounts();
    expect(counts.every(({ sent, acknowledged, refused }) => sent === acknowledged && refused === 0)).toBe(
      true,
    );
    // Cut as documented: so many sections at least, and not many more.
    const sections = counts.reduce((sum, { sent }) => sum + sent, 0);
    const least = (count * (8 + 4 * dim)) / SECTION_BYTES;
    expect(sections).toBeGreaterThanOrEqual(least);
    expect(sections).toBeLessThan(least + 2 * counts.length);
    expect(await mismatches(job)).toBe(0);
  });

  it('sums repeated keys over the whole call, also when they fall into different sections', async () => {
    const job = await connected({ code: '1+1', groups: 1 });
    const dim = 64;
    const distinct = 3 * Math.floor(SECTION_BYTES / (8 + 4 * dim));
    const table = await job.createTable({
      name: 't',
      dim,
      optimizer: { kind: 'adagrad', lr: 1, eps: 0, initialAccumulator: 0 },
      initializer: { kind: 'zeros' },
    });
    const keys = BigUint64Array.from({ length: distinct * 2 }, (_, i) => BigInt(i % distinct));
    await table.push(keys, new Float32Array(keys.length * dim).fill(2));
    const rows = await table.pull(firstKeys(distinct));
    expect(rows.every((value) => value === -1)).toBe(true);
  });

  it('of the longest rows goes through, one row to a section if need be', async () => {
    const job = await connected({ code: '1+1' });
    const dim = 65_536;
    const count = 2 * Math.ceil(ROUND_BYTES / (dim * 4)) + 3;
    const table = await large(job, count, dim);
    const rows = await table.pull(firstKeys(count));
    expect(rows.length).toBe(count * dim);
    for (let i = 0; i < count; i++) {
      expect([rows[i * dim], rows[(i + 1) * dim - 1]]).toEqual([1 + (i % 100), 1 + (i % 100)]);
    }
  });

  it('is counted exactly by an audit', async () => {
    const job = await connected({ code: '1+1', groups: 2 }, { audit: true });
    await large(job, 30_000, 200);
    const counts = job.pushCounts();
    expect(counts.some(({ sent }) => sent > 2)).toBe(true);
    const total = counts.reduce((sum, { acknowledged }) => sum + acknowledged, 0);
    expect(total).toBe(counts.reduce((sum, { sent }) => sum + sent, 0));
  });
});

describe('a node without memory', () => {
  it('refuses a push whole, keeps what was there, and says so again', async () => {
    const job = await connected({ code: '1+1', groups: 1, memoryBytes: 2 << 20 });
    const table = await job.createTable({ name: 't', ...COUNTING, dim: 256 });
    await table.push(firstKeys(100), new Float32Array(100 * 256).fill(1));
    const stats = { t: 'shardStats' as const, epoch: 0, id: 0, g: 0, m: 0 };
    const rowsHeld = () =>
      internalsOf(job).session.query({ to: { g: 0, m: 0 }, message: stats }, (answer) =>
        answer.t === 'shardStatsReply' ? answer.tables.map((each) => each.rows) : [],
      );
    expect(await rowsHeld()).toEqual([100]);
    const many = BigUint64Array.from({ length: 3000 }, (_, i) => BigInt(i));
    for (let again = 0; again < 2; again++) {
      const refusal = await rejection(table.push(many, new Float32Array(many.length * 256).fill(1)));
      expect(refusal.code).toBe('MEMORY_LIMIT');
    }
    // Rows of the refused push that exist were not touched, the others were not made.
    await table.push(firstKeys(100), new Float32Array(100 * 256).fill(1));
    const rows = await table.pull(many);
    expect(rows.subarray(0, 100 * 256).every((value) => value === 2)).toBe(true);
    expect(rows.subarray(100 * 256).every((value) => value === 0)).toBe(true);
    expect(await rowsHeld()).toEqual([100]);
    expect(await mismatches(job)).toBe(0);
  });
});

describe('rows that pulls have asked for', () => {
  it('take no more than maxInFlightBytes, whoever asks, and a larger pull goes alone', async () => {
    const [width, limit] = [256, 8192];
    const job = await connected({}, { maxInFlightBytes: limit });
    const table = await job.createTable({ ...COUNTING, name: 't', dim: width });
    const room = internalsOf(job).session.answers as unknown as { taken: number; free(bytes: number): void };
    const seen: number[] = [];
    const free = room.free.bind(room);
    room.free = (bytes) => {
      seen.push(room.taken);
      free(bytes);
    };
    const sizes = [1, 4, 7, 20, 3, 8, 1, 1, 12, 5];
    const rows = await Promise.all(sizes.map((count) => table.pull(firstKeys(count))));
    expect(rows.map(({ length }) => length / width)).toEqual(sizes);
    expect(seen).toHaveLength(sizes.length);
    const alone = sizes.map((count) => count * width * 4).filter((bytes) => bytes > limit);
    expect(seen.filter((bytes) => bytes > limit).sort()).toEqual(alone.sort());
    expect(room.taken).toBe(0);
    const pull = table.pull(firstKeys(8));
    await expect(table.pull(firstKeys(8), { signal: AbortSignal.abort() })).rejects.toMatchObject({
      code: 'ABORTED',
    });
    await pull;
    expect(room.taken).toBe(0);
  });
});

it('rows that no array holds are refused before anything is asked, and the client goes on', async () => {
  const job = await connected();
  const table = await job.createTable({ name: 'wide', ...COUNTING, dim: 65_536 });
  expect(await rejection(table.pull(new BigUint64Array(1_000_000)))).toEqual({
    code: 'BAD_ARGUMENT',
    message: 'table "wide": no array of this process holds 65536000000 floats: pull fewer keys at once',
  });
  expect(await table.pull(keysOf(1))).toHaveLength(65_536);
});
