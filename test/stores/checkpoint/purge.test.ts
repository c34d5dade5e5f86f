/** A purge: the rows of the newest checkpoint, and no other byte of rows in any file. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import { manifestName, type SavedShard, segmentName } from '../../../src/protocol/checkpoints.js';
import {
  checkpointNumbers,
  listPlace,
  publishCheckpoint,
  publishNewest,
  readManifest,
} from '../../../src/stores/checkpoint/checkpoints.js';
import { compactCheckpoint } from '../../../src/stores/checkpoint/compact.js';
import { DirectoryPlace } from '../../../src/stores/checkpoint/directory.js';
import { KeySet } from '../../../src/stores/checkpoint/key-set.js';
import { encodeManifest } from '../../../src/stores/checkpoint/manifest.js';
import type { Place } from '../../../src/stores/checkpoint/place.js';
import { purgePlace } from '../../../src/stores/checkpoint/purge.js';
import { verifyCheckpoint } from '../../../src/stores/checkpoint/verify.js';
import { contentOf, increments, writeSteps } from './increments.js';
import { ENDPOINT, makeBucket, s3Place } from './s3-server.js';
import { draftOf, random, rows, store, TABLES, temporaryDirectory, writeShards } from './support.js';

const [ITEMS, OTHER] = TABLES as [(typeof TABLES)[0], (typeof TABLES)[0]];

function setOf(...keys: bigint[]): KeySet {
  const set = new KeySet();
  set.addAll(BigUint64Array.from(keys));
  return set;
}

/** Every byte of every file, temporary ones included. */
function bytesBelow(directory: string): Buffer {
  const files = readdirSync(directory, { recursive: true, withFileTypes: true });
  return Buffer.concat(
    files
      .filter((file) => file.isFile())
      .map(({ parentPath, path, name }) => readFileSync(join(parentPath ?? path, name))),
  );
}

const littleEndian = (key: bigint): Buffer => Buffer.from(BigUint64Array.of(key).buffer);

/** Steps whose keys are large ones, so that no other bytes are the same by chance. */
const step = (keys: number[], removed = 0) => ({ keys, removed, segments: 2 });

describe('a purge', () => {
  test('keeps every row but those of forgotten keys, and leaves one checkpoint', async () => {
    const forgotten = fc.uniqueArray(fc.integer({ min: 0, max: 40 }), { maxLength: 8 });
    await fc.assert(
      fc.asyncProperty(
        increments,
        forgotten,
        fc.constantFrom(16, undefined),
        async (steps, keys, indexBytes) => {
          const place = new DirectoryPlace(temporaryDirectory());
          const before = await writeSteps(place, steps);
          const { rows: all } = await contentOf(place, before);
          const gone = new Set(keys.map((key) => `${ITEMS.name}/${key}`));
          const wanted = new Map([...all].filter(([at]) => !gone.has(at.slice(at.indexOf('/') + 1))));
          const options = { forgotten: new Map([[ITEMS.name, setOf(...keys.map(BigInt))]]), indexBytes };
          const { number } = await purgePlace(place, options);
          const manifest = await readManifest(place);
          const found = await contentOf(place, manifest);
          expect(found.rows).toEqual(wanted);
          expect(found.once).toBe(true);
          expect(manifest.samples).toEqual(before.samples);
          const { numbers, segments } = await listPlace(place);
          expect(numbers).toEqual([number]);
          expect([...segments.keys()].sort()).toEqual(
            manifest.shards.flatMap((shard) => shard.segments.map(({ name }) => name)).sort(),
          );
          expect((await verifyCheckpoint(place)).bad).toEqual([]);
          // There is nothing left to do.
          expect(await purgePlace(place, options)).toMatchObject({
            number,
            removed: { checkpoints: [], files: 0 },
          });
        },
      ),
      { numRuns: 15 },
    );
  });

  test('leaves no byte of a deleted key: no tombstone, and no file of a failed attempt', async () => {
    const directory = temporaryDirectory();
    const place = new DirectoryPlace(directory);
    const key = 0xabcdef0123;
    await writeSteps(place, [step([1, key, 2]), step([key], 1), step([3])]);
    expect(bytesBelow(directory).includes(littleEndian(BigInt(key)))).toBe(true);
    // Attempts 5 and 9 of a job that has ended have failed.
    for (const number of [5, 9]) {
      const to = { number, attempt: 'dddddddd', shard: 0, part: 0, position: 1 };
      await store(place, to, [rows(ITEMS, [BigInt(key)], random(number))]);
    }
    const { compactionOf, number, removed } = await purgePlace(new DirectoryPlace(directory));
    expect({ compactionOf, number, removed: removed.checkpoints }).toEqual({
      ...{ compactionOf: 3, number: 10, removed: [1, 2, 3] },
    });
    expect(bytesBelow(directory).includes(littleEndian(BigInt(key)))).toBe(false);
    expect((await verifyCheckpoint(place)).bad).toEqual([]);
  });

  test('keeps files that have nothing to forget', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    const before = await writeSteps(place, [step([1, 2])]);
    const options = { forgotten: new Map([[OTHER.name, setOf(7n)]]) };
    expect(await purgePlace(place, options)).toMatchObject({ number: 1, removed: { checkpoints: [] } });
    expect(await readManifest(place)).toEqual(before);
    const { number } = await purgePlace(place, { forgotten: new Map([[OTHER.name, setOf(2n)]]) });
    const { shards } = await readManifest(place);
    expect(number).toBe(2);
    expect(shards[0]!.segments).not.toEqual(before.shards[0]!.segments);
  });

  test('loses nothing that a job writes meanwhile', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    await writeSteps(place, [step([1, 2]), step([1], 1)]);
    // Attempt 3 is under way, so the purge takes number 4, and the job has published 3 by then.
    const later = await writeShards(place, 3, 77);
    let published = false;
    const overtaken = Object.assign(Object.create(place) as Place, {
      put: async (...args: Parameters<Place['put']>) => {
        if (args[0] === manifestName(4) && !published) {
          published = true;
          await publishCheckpoint(place, draftOf(3, later));
        }
        return place.put(...args);
      },
    });
    const purged = await purgePlace(overtaken);
    expect(published).toBe(true);
    expect(purged).toMatchObject({ number: 3, removed: { checkpoints: [1, 2] } });
    expect((await readManifest(place)).shards).toEqual(later);
    expect((await verifyCheckpoint(place)).bad).toEqual([]);
  });

  /**
   * A job had looked at the place before the purge wrote its manifest. It writes its own when the purge has
   * looked again and is about to remove the others.
   */
  function racing(place: Place, publish: () => Promise<void>, takeBack: () => Promise<void>): Place {
    let lists = Number.NaN;
    return Object.assign(Object.create(place) as Place, {
      put: async (...args: Parameters<Place['put']>) => {
        const stored = await place.put(...args);
        if (args[0].endsWith('manifest.json')) lists = 0;
        return stored;
      },
      list: async function* (prefix: string) {
        if (lists++ === 1) await publish();
        yield* place.list(prefix);
      },
      remove: async (names: string[]) => {
        await takeBack();
        await place.remove(names);
      },
      get: async (...args: Parameters<Place['get']>) => {
        if (args[0].endsWith('.safetensors')) await takeBack();
        return place.get(...args);
      },
    });
  }

  test('never removes the last checkpoint while a job takes its own back', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    const before = await writeSteps(place, [step([1, 2]), step([1], 1)]);
    const { rows: wanted } = await contentOf(place, before);
    const late = manifestName(9);
    let there: boolean | undefined;
    const publish = async () => {
      if (there === undefined) await place.put(late, [encodeManifest(draftOf(9, before.shards))]);
      there ??= true;
    };
    const takeBack = async () => {
      if (there) await place.remove([late]);
      there &&= false;
    };
    await purgePlace(racing(place, publish, takeBack));
    expect(there).toBe(false);
    expect((await verifyCheckpoint(place)).bad).toEqual([]);
    expect((await contentOf(place, await readManifest(place))).rows).toEqual(wanted);
  });

  test('never removes what a job has written after it', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    await writeSteps(place, [step([1, 2]), step([1], 1)]);
    let later: SavedShard[] | undefined;
    const publish = async () => {
      later ??= await writeShards(place, 9, 77);
      await publishCheckpoint(place, draftOf(9, later));
    };
    await purgePlace(racing(place, publish, async () => undefined));
    expect((await readManifest(place)).shards).toEqual(later);
    expect(await checkpointNumbers(place)).toEqual([9]);
    expect((await verifyCheckpoint(place)).bad).toEqual([]);
  });

  test('gives up with a code when a job is always first', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    await writeSteps(place, [step([1, 2]), step([1], 1)]);
    const busy = Object.assign(Object.create(place) as Place, {
      put: async (...args: Parameters<Place['put']>) => {
        const [name] = args;
        if (name.endsWith('manifest.json')) {
          const number = Number(name.slice(0, 6));
          const shards = await writeShards(place, number, 5);
          const [first] = shards;
          const extra = { number, attempt: 'eeeeeeee', shard: 0, part: 1, position: number };
          const ref = await store(place, extra, [rows(ITEMS, [9n], random(1))], [[3, 9, []]]);
          const chain = { ...first!, segments: [...(await readManifest(place)).shards[0]!.segments, ref] };
          await publishCheckpoint(place, draftOf(number, [chain, shards[1]!]));
        }
        return place.put(...args);
      },
    });
    await expect(purgePlace(busy)).rejects.toMatchObject({ code: 'CHECKPOINT_TAKEN' });
    expect((await verifyCheckpoint(place)).bad).toEqual([]);
    expect((await checkpointNumbers(place)).length).toBeGreaterThan(2);
  });

  test('a job whose number the purge took is told so, although its files are gone', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    const before = await writeSteps(place, [step([1, 2]), step([1], 1)]);
    await purgePlace(place);
    const late = publishNewest(place, draftOf(3, before.shards), { addsTo: 2 });
    await expect(late).rejects.toMatchObject({ code: 'CHECKPOINT_TAKEN' });
    expect((await verifyCheckpoint(place)).bad).toEqual([]);
  });

  test('of a place without a checkpoint is refused', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    await expect(purgePlace(place)).rejects.toMatchObject({ code: 'CHECKPOINT_MISSING' });
  });
});

test('a compaction never stands before what was written since the checkpoint that it has', async () => {
  const place = new DirectoryPlace(temporaryDirectory());
  await writeSteps(place, [step([1, 2]), step([1], 1)]);
  const whole = await writeShards(place, 3, 8);
  const overtaken = Object.assign(Object.create(place) as Place, {
    put: async (...args: Parameters<Place['put']>) => {
      if (args[0] === manifestName(6)) await publishCheckpoint(place, draftOf(3, whole));
      return place.put(...args);
    },
  });
  // All files are written again, so the compaction adds to none.
  const forgotten = new Map([[ITEMS.name, setOf(1n)]]);
  const compacting = compactCheckpoint(overtaken, 2, { above: 5, forgotten });
  await expect(compacting).rejects.toMatchObject({ code: 'CHECKPOINT_TAKEN' });
  expect(await checkpointNumbers(place)).toEqual([1, 2, 3]);
});

const ROOM = new URL('../../../dist/src/stores/checkpoint/', import.meta.url).href;
const PURGER = `
const { openPlace } = await import(${JSON.stringify(ROOM)} + 'open.js');
const { purgePlace } = await import(${JSON.stringify(ROOM)} + 'purge.js');
const place = await openPlace(process.argv[1]);
let left = Number(process.argv[2]);
for (const name of ['put', 'remove']) {
  const original = place[name].bind(place);
  place[name] = async (...args) => {
    if (left-- === 0) process.kill(process.pid, 'SIGKILL');
    return original(...args);
  };
}
await purgePlace(place);
await place.close();`;

const kinds: [string, () => Promise<string>, (url: string) => Promise<Place>][] = [
  ['a directory', async () => temporaryDirectory(), async (url) => new DirectoryPlace(url)],
];
if (ENDPOINT)
  kinds.push(['an object store', async () => `s3://${await makeBucket()}/place`, (url) => s3Place(url)]);

/** Every byte of every file of a place. */
async function bytesIn(place: Place): Promise<Buffer> {
  const files: Uint8Array[] = [];
  for await (const { name } of place.list('')) files.push(await place.get(name));
  return Buffer.concat(files);
}

test.each(kinds)(
  'SIGKILL at every step of a purge of %s: the place restores, and the next purge completes',
  async (_, newUrl, open) => {
    const key = BigInt(0xabcdef0123);
    const steps = [step([1, Number(key), 2]), step([Number(key)], 1), step([3, 4])];
    for (let kill = 0; ; kill++) {
      const url = await newUrl();
      const place = await open(url);
      const { rows: wanted } = await contentOf(place, await writeSteps(place, steps));
      const orphan = segmentName({ number: 4, attempt: 'dddddddd' }, { group: 0, member: 0 }, 0);
      await place.put(orphan, [littleEndian(key)]);
      const env = { ...process.env, ...(ENDPOINT && { KINTSUGI_S3_ENDPOINT: ENDPOINT }) };
      const args = ['--input-type=module', '-e', PURGER, url, `${kill}`];
      const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'inherit', 'ignore'] });
      onTestFinished(() => void child.kill('SIGKILL'));
      const [code, signal] = (await once(child, 'exit')) as [number | null, string | null];
      expect((await contentOf(place, await readManifest(place))).rows).toEqual(wanted);
      expect((await verifyCheckpoint(place)).bad).toEqual([]);
      await purgePlace(await open(url));
      expect((await bytesIn(place)).includes(littleEndian(key))).toBe(false);
      expect((await contentOf(place, await readManifest(place))).rows).toEqual(wanted);
      if (code === 0) {
        // A segment, the manifest, old manifests, and files that are not listed any more.
        expect(kill).toBe(4);
        break;
      }
      expect(signal).toBe('SIGKILL');
    }
  },
  60_000,
);
