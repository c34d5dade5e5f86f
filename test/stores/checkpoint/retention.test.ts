import { copyFileSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { SavedShard } from '../../../src/protocol/checkpoints.js';
import { checkpointNumbers, publishCheckpoint } from '../../../src/stores/checkpoint/checkpoints.js';
import { DirectoryPlace } from '../../../src/stores/checkpoint/directory.js';
import type { Place } from '../../../src/stores/checkpoint/place.js';
import { deleteCheckpoint, keepNewest } from '../../../src/stores/checkpoint/retention.js';
import { verifyCheckpoint } from '../../../src/stores/checkpoint/verify.js';
import { draftOf, rows, shardOf, store, TABLES, temporaryDirectory, writeShards } from './support.js';

async function namesOf(place: Place): Promise<string[]> {
  const names: string[] = [];
  for await (const { name } of place.list('')) names.push(name);
  return names.sort();
}

/** Checkpoints 1 to `count`; each but those of `full` adds segments to those of the one before. */
async function chain(place: Place, count: number, full: readonly number[] = [1]): Promise<SavedShard[]> {
  let shards: SavedShard[] = [];
  for (let number = 1; number <= count; number++) {
    const added = await writeShards(place, number);
    const before = full.includes(number) ? [] : shards;
    shards = added.map((shard, i) => ({
      ...shard,
      segments: [...(before[i]?.segments ?? []), ...shard.segments],
    }));
    await publishCheckpoint(place, draftOf(number, shards));
  }
  return shards;
}

const filesOf = (number: number): string[] =>
  [0, 1].map((member) => `00000${number}/0123abcd-g0-m${member}-0.safetensors`);

describe('what a place keeps', () => {
  test('the newest checkpoints, and what they need of older ones', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    await chain(place, 5, [1, 3]);
    expect(await keepNewest(place, 5)).toEqual({ checkpoints: [], files: 0, bytes: 0 });
    expect(await keepNewest(place, 2)).toMatchObject({ checkpoints: [1, 2, 3], files: 4 });
    expect(await namesOf(place)).toEqual(
      [
        ...filesOf(3),
        ...[4, 5].flatMap((number) => [...filesOf(number), `00000${number}/manifest.json`]),
      ].sort(),
    );
    for (const number of [4, 5]) expect((await verifyCheckpoint(place, number)).bad).toEqual([]);
    await expect(keepNewest(place, 0)).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
  });

  test('checkpoints of another kind than the newest one', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    await chain(place, 2);
    for (const number of [3, 4, 5]) {
      const shards = await writeShards(place, number);
      await publishCheckpoint(place, { ...draftOf(number, shards), kind: 'export' });
    }
    expect(await keepNewest(place, 1)).toMatchObject({ checkpoints: [3, 4], files: 4 });
    for (const number of [1, 2]) expect((await verifyCheckpoint(place, number)).bad).toEqual([]);
    expect(await namesOf(place)).toEqual(expect.arrayContaining([...filesOf(5), '000005/manifest.json']));
  });

  test('nothing of failed attempts, but what may be under way', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    await chain(place, 2);
    const to = { number: 2, attempt: 'ffffffff', shard: 0, part: 0, position: 1 };
    await store(place, to, [rows(TABLES[0]!, [1n], () => 1)]);
    await store(place, { ...to, number: 3 }, [rows(TABLES[0]!, [1n], () => 1)]);
    await place.put('000002/notes', [new Uint8Array(1)]);
    expect(await keepNewest(place, 9)).toMatchObject({ checkpoints: [], files: 1 });
    expect(await namesOf(place)).toEqual(
      expect.arrayContaining(['000002/notes', '000003/ffffffff-g0-m0-0.safetensors']),
    );
  });

  test('what is published while files are listed, whatever of it the list shows', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    await chain(place, 1);
    const [second, third] = [await writeShards(place, 2), await writeShards(place, 3)];
    // A list is no instant: it has passed the manifest of 2 when that is written, and not that of 3.
    const slow = Object.assign(Object.create(place) as Place, {
      async *list(prefix: string) {
        yield* place.list(prefix);
        if ((await checkpointNumbers(place)).length > 1) return;
        await publishCheckpoint(place, draftOf(2, second));
        await publishCheckpoint(place, draftOf(3, third));
        yield* place.list('000003/');
      },
    });
    let lists = 0;
    const listed = Object.assign(Object.create(place) as Place, {
      list: (prefix: string) => (++lists === 1 ? place : slow).list(prefix),
    });
    await keepNewest(listed, 1);
    expect(await checkpointNumbers(place)).toEqual([1, 2, 3]);
    for (const number of [1, 2, 3]) expect((await verifyCheckpoint(place, number)).bad).toEqual([]);
  });

  test('is removed manifest first: a crash in between leaves files that the next call removes', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    await chain(place, 3, [1, 2, 3]);
    const removed: string[][] = [];
    const dying: Place = {
      ...place,
      url: place.url,
      put: place.put.bind(place),
      get: place.get.bind(place),
      list: place.list.bind(place),
      close: place.close.bind(place),
      remove: async (names) => {
        removed.push([...names]);
        if (removed.length === 2) throw new Error('killed');
        await place.remove(names);
      },
    };
    await expect(keepNewest(dying, 1)).rejects.toThrow('killed');
    expect(removed[0]).toEqual(['000001/manifest.json', '000002/manifest.json']);
    expect(await checkpointNumbers(place)).toEqual([3]);
    expect((await verifyCheckpoint(place)).bad).toEqual([]);
    expect(await keepNewest(place, 1)).toMatchObject({ checkpoints: [], files: 4 });
    expect(await namesOf(place)).toEqual([...filesOf(3), '000003/manifest.json'].sort());
  });

  test('a damaged manifest counts as nothing, and while it is there no file goes', async () => {
    const directory = temporaryDirectory();
    const place = new DirectoryPlace(directory);
    await chain(place, 4, [1, 2, 3, 4]);
    writeFileSync(join(directory, '000004/manifest.json'), '{}');
    expect(await keepNewest(place, 2)).toEqual({ checkpoints: [1], files: 0, bytes: 0 });
    expect(await checkpointNumbers(place)).toEqual([2, 3, 4]);
    expect(await deleteCheckpoint(place, 4, { newest: true })).toMatchObject({ checkpoints: [4], files: 4 });
    expect(await checkpointNumbers(place)).toEqual([2, 3]);
  });

  test('one checkpoint is removed, and others lose nothing', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    await chain(place, 3);
    expect(await deleteCheckpoint(place, 1)).toEqual({ checkpoints: [1], files: 0, bytes: 0 });
    expect((await verifyCheckpoint(place, 3)).bad).toEqual([]);
    await expect(deleteCheckpoint(place, 1)).rejects.toMatchObject({ code: 'CHECKPOINT_MISSING' });
    await expect(deleteCheckpoint(place, 3)).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
    expect(await deleteCheckpoint(place, 3, { newest: true })).toMatchObject({ files: 2 });
    expect((await verifyCheckpoint(place)).number).toBe(2);
    expect(await deleteCheckpoint(place, 2, { newest: true })).toMatchObject({ files: 4 });
    expect(await namesOf(place)).toEqual([]);
  });
});

describe('verification', () => {
  test('names every bad file of the chain, and why', async () => {
    const directory = temporaryDirectory();
    const place = new DirectoryPlace(directory);
    const shards = await chain(place, 4);
    const all = shards.flatMap(({ segments }) => segments);
    expect(await verifyCheckpoint(place)).toEqual({
      number: 4,
      files: 8,
      rows: 48,
      bytes: all.reduce((sum, { bytes }) => sum + bytes, 0),
      bad: [],
    });
    const [a, b, c, d] = all.map(({ name }) => join(directory, name));
    rmSync(a!);
    truncateSync(b!, 50);
    writeFileSync(
      c!,
      readFileSync(c!).map((byte, i) => (i === 400 ? byte ^ 1 : byte)),
    );
    copyFileSync(join(directory, all[7]!.name), d!);
    let calls = 0;
    const { bad } = await verifyCheckpoint(place, undefined, { onProgress: () => calls++ });
    expect(bad.map(({ name }) => name)).toEqual(all.slice(0, 4).map(({ name }) => name));
    expect(bad.map(({ problem }) => problem)).toEqual([
      'the file is missing',
      expect.stringMatching(/^truncated: 50 bytes/),
      expect.stringMatching(/SHA-256/),
      expect.stringMatching(/SHA-256|bytes/),
    ]);
    expect(calls).toBe(8);
    writeFileSync(join(directory, '000004/manifest.json'), 'x');
    await expect(verifyCheckpoint(place)).rejects.toMatchObject({ code: 'BAD_CHECKPOINT' });
    await expect(verifyCheckpoint(place, 9)).rejects.toMatchObject({ code: 'CHECKPOINT_MISSING' });
  });

  test('finds segments that are whole and are not what the manifest says', async () => {
    const place = new DirectoryPlace(temporaryDirectory());
    const next = () => 7;
    const [items, other] = TABLES as [(typeof TABLES)[0], (typeof TABLES)[0]];
    const to = { number: 1, attempt: '0123abcd', shard: 0, part: 0, position: 4 };
    const write = (part: number, table = items, more: object = {}, sessions: [] | null = []) =>
      store(place, { ...to, part, ...more }, [rows(table, [1n], next)], sessions ?? undefined);
    const moved = await write(1, items, { shard: 1 });
    const unknown = await write(2, { ...items, name: 'gone' });
    const wide = await write(3, { ...items, dim: 5 });
    const stateless = await write(4, { ...items, optimizer: other.optimizer });
    const last = await write(5, items, {}, null);
    const second = await write(6, items, { shard: 1, position: 3 });
    const shards = [shardOf(0, [moved, unknown, wide, stateless, last], 4), shardOf(1, [second], 4)];
    await publishCheckpoint(place, draftOf(1, shards));
    const { bad } = await verifyCheckpoint(place);
    expect(bad.map(({ problem }) => problem)).toEqual([
      'it is of member 1 of group 0, not 0 of 0',
      'pool "embedding" has no table "gone"',
      'rows of table "items" have another layout than its specification',
      'rows of table "items" have another layout than its specification',
      'the state of sessions is missing',
      'it is of position 3, the manifest says 4',
    ]);
  });

  test('of a place that fails is a failure, not a damaged checkpoint', async () => {
    const directory = temporaryDirectory();
    const place = new DirectoryPlace(directory);
    const [shard] = await chain(place, 1);
    const path = join(directory, shard!.segments[0]!.name);
    rmSync(path);
    writeFileSync(join(directory, 'x'), '');
    const failing = Object.assign(Object.create(place) as Place, {
      get: (name: string) => place.get(name.replace(/^.*safetensors$/, 'x/y')),
    });
    await expect(verifyCheckpoint(failing)).rejects.toMatchObject({ code: 'PLACE_FAILED' });
  });
});
