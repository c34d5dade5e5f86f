import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Manifest, manifestName, type SavedShard } from '../../../src/protocol/checkpoints.js';
import { bytesOf } from '../../../src/stores/checkpoint/bytes.js';
import {
  checkpointNumbers,
  publishCheckpoint,
  readManifest,
  readSegment,
} from '../../../src/stores/checkpoint/checkpoints.js';
import { compactCheckpoint } from '../../../src/stores/checkpoint/compact.js';
import { DirectoryPlace } from '../../../src/stores/checkpoint/directory.js';
import { KeySet } from '../../../src/stores/checkpoint/key-set.js';
import type { Place } from '../../../src/stores/checkpoint/place.js';
import { keepNewest } from '../../../src/stores/checkpoint/retention.js';
import { verifyCheckpoint } from '../../../src/stores/checkpoint/verify.js';
import { draftOf, random, rows, shardOf, store, TABLES, temporaryDirectory, writeShards } from './support.js';

/** Content of a restore: the bytes of every row, by shard, table and key; and if all came once. */
async function contentOf(
  place: Place,
  manifest: Manifest,
): Promise<{ rows: Map<string, string>; once: boolean }> {
  const content = new Map<string, string>();
  let count = 0;
  for (const shard of manifest.shards) {
    for (const ref of shard.segments) {
      const { tables } = await readSegment(place, ref);
      for (const { name, dim, keys, values, state, removed } of tables) {
        const key = (of: bigint) => `${shard.shard}/${name}/${of}`;
        for (const gone of removed) content.delete(key(gone));
        const width = state.length / Math.max(1, keys.length);
        for (const [i, of] of keys.entries()) {
          const parts = [values.subarray(i * dim, (i + 1) * dim), state.subarray(i * width, (i + 1) * width)];
          content.set(key(of), parts.map((part) => Buffer.from(bytesOf(part)).toString('hex')).join());
          count++;
        }
      }
    }
  }
  return { rows: content, once: count === content.size };
}

/** Each checkpoint writes some keys, as rows or as removed, in several segments. */
const increments = fc.array(
  fc.record({
    keys: fc.uniqueArray(fc.integer({ min: 0, max: 40 }), { maxLength: 25 }),
    removed: fc.integer({ min: 0, max: 5 }),
    segments: fc.integer({ min: 1, max: 3 }),
  }),
  { minLength: 1, maxLength: 5 },
);

async function write(
  place: Place,
  steps: readonly { keys: number[]; removed: number; segments: number }[],
): Promise<Manifest> {
  const next = random(steps.length);
  let segments: SavedShard['segments'] = [];
  const still = await writeShards(place, 1);
  for (const [i, { keys, removed, segments: count }] of steps.entries()) {
    const number = i + 1;
    const gone = number === 1 ? [] : keys.slice(0, removed);
    const kept = keys.slice(gone.length);
    for (let part = 0; part < count; part++) {
      const of = (list: number[]) => list.filter((_, at) => at % count === part).map(BigInt);
      const [table, other] = TABLES as [(typeof TABLES)[0], (typeof TABLES)[0]];
      const first = { ...rows(table, of(kept), next), removed: [BigUint64Array.from(of(gone))] };
      const to = { number, attempt: 'cccccccc', shard: 0, part, position: number };
      const isLast = part === count - 1;
      const sessions = isLast
        ? ([[5, number, [[number, 'LIMIT']]]] as [[number, number, [[number, 'LIMIT']]]])
        : undefined;
      segments = [...segments, await store(place, to, [first, rows(other, of(kept), next)], sessions)];
    }
    await publishCheckpoint(place, draftOf(number, [shardOf(0, segments, number), still[1]!]));
  }
  return readManifest(place);
}

describe('compaction', () => {
  test('keeps every row and no other, each once, also in several passes', async () => {
    await fc.assert(
      fc.asyncProperty(increments, fc.constantFrom(16, 200, undefined), async (steps, indexBytes) => {
        const place = new DirectoryPlace(temporaryDirectory());
        const before = await write(place, steps);
        const { rows: wanted } = await contentOf(place, before);
        const manifest = await compactCheckpoint(place, undefined, { indexBytes, segmentBytes: 600 });
        const found = await contentOf(place, manifest);
        expect(found.rows).toEqual(wanted);
        expect(found.once).toBe(true);
        expect(manifest).toMatchObject({
          number: steps.length + 1,
          compactionOf: steps.length,
          createdAt: before.createdAt,
          samples: before.samples,
        });
        const { name } = manifest.shards[0]!.segments.at(-1)!;
        const last = await readSegment(place, manifest.shards[0]!.segments.at(-1)!);
        expect(last.sessions, name).toEqual([[5, steps.length, [[steps.length, 'LIMIT']]]]);
        await keepNewest(place, 1);
        expect(await checkpointNumbers(place)).toEqual([steps.length + 1]);
        expect((await verifyCheckpoint(place)).bad).toEqual([]);
      }),
      { numRuns: 15 },
    );
  });

  test('leaves shards of one part as they are', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    const before = await write(place, [{ keys: [1, 2], removed: 0, segments: 2 }]);
    const manifest = await compactCheckpoint(place, 1);
    expect(manifest.shards).toEqual(before.shards);
    expect(manifest.parents).toEqual([1]);
  });

  test('takes the newest only, and loses to a job that writes the same number', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    const steps = [1, 2, 3].map((key) => ({ keys: [key], removed: 0, segments: 1 }));
    await write(place, steps);
    await expect(compactCheckpoint(place, 2)).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
    await expect(compactCheckpoint(place, 7)).rejects.toMatchObject({ code: 'CHECKPOINT_MISSING' });
    const jobWins = async () => {
      await publishCheckpoint(place, draftOf(4, await writeShards(place, 4)));
    };
    // The job wins while the compaction reads.
    let published: Promise<void> | undefined;
    const slow = Object.assign(Object.create(place) as Place, {
      get: async (...args: Parameters<Place['get']>) => {
        const file = await place.get(...args);
        if (args[0].endsWith('.safetensors')) {
          published ??= jobWins();
          await published;
        }
        return file;
      },
    });
    await expect(compactCheckpoint(slow)).rejects.toMatchObject({ code: 'CHECKPOINT_TAKEN' });
    const names: string[] = [];
    for await (const { name } of place.list('000004/')) names.push(name);
    expect(names).toHaveLength(3);
    expect((await verifyCheckpoint(place)).bad).toEqual([]);
  });

  test('is taken back when a job has published a newer one, and removed its files', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    await write(
      place,
      [1, 2, 3].map((key) => ({ keys: [key], removed: 0, segments: 1 })),
    );
    // Attempt 4 of the job has failed. Attempt 5 is complete just before the compaction is.
    const later = await writeShards(place, 5);
    const overtaken = Object.assign(Object.create(place) as Place, {
      put: async (...args: Parameters<Place['put']>) => {
        if (args[0] === manifestName(4)) {
          await publishCheckpoint(place, draftOf(5, later));
          await keepNewest(place, 3);
        }
        return place.put(...args);
      },
    });
    await expect(compactCheckpoint(overtaken)).rejects.toMatchObject({ code: 'CHECKPOINT_TAKEN' });
    expect(await checkpointNumbers(place)).toEqual([2, 3, 5]);
    for (const number of [2, 3, 5]) expect((await verifyCheckpoint(place, number)).bad).toEqual([]);
  });
});

test('a set of keys holds what was added', () => {
  const next = random(5);
  const [set, wanted] = [new KeySet(), new Set<bigint>()];
  for (let i = 0; i < 20_000; i++) {
    // Some keys are close together, some differ in their upper half only, zero is among them.
    const [low, high] = [next() % 5000, next() % 3 === 0 ? next() % 4 : 0];
    const key = (BigInt(high) << 32n) | BigInt(low);
    expect(set.has(low, high)).toBe(wanted.has(key));
    expect(set.add(low, high)).toBe(!wanted.has(key));
    wanted.add(key);
  }
  expect(set.bytes).toBeLessThan(wanted.size * 32);
});
