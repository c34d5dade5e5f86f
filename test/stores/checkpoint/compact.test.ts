import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { rowFloats, rowStride } from '../../../src/engine/filters.js';
import { manifestName } from '../../../src/protocol/checkpoints.js';
import {
  checkpointNumbers,
  publishCheckpoint,
  readSegment,
} from '../../../src/stores/checkpoint/checkpoints.js';
import { compactCheckpoint } from '../../../src/stores/checkpoint/compact.js';
import { DirectoryPlace } from '../../../src/stores/checkpoint/directory.js';
import { KeySet } from '../../../src/stores/checkpoint/key-set.js';
import type { Place } from '../../../src/stores/checkpoint/place.js';
import { keepNewest } from '../../../src/stores/checkpoint/retention.js';
import { statePartsOf } from '../../../src/stores/checkpoint/segment.js';
import { verifyCheckpoint } from '../../../src/stores/checkpoint/verify.js';
import { contentOf, increments, writeSteps } from './increments.js';
import {
  draftOf,
  filterOf,
  POOL,
  random,
  rows,
  shardOf,
  store,
  TABLES,
  temporaryDirectory,
  writeShards,
} from './support.js';

describe('compaction', () => {
  test('keeps every row and no other, each once, also in several passes', async () => {
    await fc.assert(
      fc.asyncProperty(increments, fc.constantFrom(16, 200, undefined), async (steps, indexBytes) => {
        const place = new DirectoryPlace(temporaryDirectory());
        const before = await writeSteps(place, steps);
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
    const before = await writeSteps(place, [{ keys: [1, 2], removed: 0, segments: 2 }]);
    const manifest = await compactCheckpoint(place, 1);
    expect(manifest.shards).toEqual(before.shards);
    expect(manifest.parents).toEqual([1]);
  });

  test('keeps the filter of the newest part, once, also where keys are forgotten', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    const [items] = TABLES as [(typeof TABLES)[0]];
    const next = random(3);
    const table = { ...items, policy: { bloom: { sightings: 2 } } };
    const tableRows = (key: bigint) => ({
      ...rows(items, [key], next),
      stateParts: statePartsOf(table.dim, table.optimizer, table.policy),
      state: [new Float32Array(rowFloats(table) - table.dim)],
    });
    const parts = [];
    const width = rowStride(table);
    const filters = [[100], [101, 102], [103]].map((slots) => filterOf(slots, width, next));
    for (const [i, number] of [1, 2, 2].entries()) {
      const to = { number, attempt: '0123abcd', shard: 0, part: i, position: number };
      const written = { ...tableRows(BigInt(i)), filter: filters[i]! };
      parts.push(await store(place, to, [written], i === 1 ? undefined : [[3, number, []]]));
    }
    const shard = shardOf(0, parts, 2);
    const other = { ...shardOf(1, [], 2), segments: [] };
    const draft = {
      ...draftOf(2, [shard]),
      tables: [table],
      lost: [{ pool: POOL.name, shard: other.shard }],
    };
    await publishCheckpoint(place, draft);
    const forgotten = new KeySet();
    forgotten.add(2, 0);
    // Several passes over the keys of increments, and several files.
    for (const options of [
      { indexBytes: 16, segmentBytes: 50 },
      { forgotten: new Map([['items', forgotten]]) },
    ]) {
      const manifest = await compactCheckpoint(place, undefined, options);
      expect((await verifyCheckpoint(place)).bad).toEqual([]);
      const found = new Map<bigint, number[]>();
      for (const ref of manifest.shards[0]!.segments) {
        const { filter } = (await readSegment(place, ref)).tables.find(({ name }) => name === 'items') ?? {};
        for (const [i, slot] of (filter?.slots ?? []).entries()) {
          expect(found.has(slot)).toBe(false);
          found.set(slot, [...filter!.counters.subarray(i * width, (i + 1) * width)]);
        }
      }
      const wanted = filters
        .slice(1)
        .flatMap(({ slots: [slots], counters: [counters] }) =>
          [...slots!].map((slot, i): [bigint, number[]] => [
            slot,
            [...counters!.subarray(i * width, (i + 1) * width)],
          ]),
        );
      expect(found).toEqual(new Map(wanted));
    }
  });

  test('takes the newest only, and loses to a job that writes the same number', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    const steps = [1, 2, 3].map((key) => ({ keys: [key], removed: 0, segments: 1 }));
    await writeSteps(place, steps);
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
    await writeSteps(
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
