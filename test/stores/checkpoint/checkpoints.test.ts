import { copyFileSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import {
  checkpointNumbers,
  listCheckpoints,
  publishCheckpoint,
  readManifest,
  readSegment,
} from '../../../src/stores/checkpoint/checkpoints.js';
import { DirectoryPlace } from '../../../src/stores/checkpoint/directory.js';
import { draftOf, rows, shardOf, store, TABLES, temporaryDirectory, writeShards } from './support.js';

test('a checkpoint exists when its manifest does, and reads back', async () => {
  const place = new DirectoryPlace(temporaryDirectory());
  const shards = await writeShards(place, 1);
  expect(await checkpointNumbers(place)).toEqual([]);
  expect(await listCheckpoints(place)).toEqual([]);
  await expect(readManifest(place)).rejects.toMatchObject({ code: 'CHECKPOINT_MISSING' });
  const manifest = await publishCheckpoint(place, draftOf(1, shards));
  expect(await readManifest(place)).toEqual(manifest);
  expect(await readManifest(place, 1)).toEqual(manifest);
  await expect(readManifest(place, 2)).rejects.toMatchObject({
    code: 'CHECKPOINT_MISSING',
    message: `${place.url} has no checkpoint 2`,
  });
  const segment = await readSegment(place, shards[1]!.segments[0]!);
  expect(segment).toMatchObject({ group: 0, member: 1, position: 1, sessions: [[3, 9, []]] });
  expect(segment.tables.map(({ name }) => name)).toEqual(TABLES.map(({ name }) => name));
});

test('a list says what each has and wrote, and which cannot be used', async () => {
  const directory = temporaryDirectory();
  const place = new DirectoryPlace(directory);
  const first = await writeShards(place, 1);
  await publishCheckpoint(place, draftOf(1, first));
  const second = await writeShards(place, 2);
  const chained = second.map((shard, i) => ({
    ...shard,
    segments: [...first[i]!.segments, ...shard.segments],
  }));
  await publishCheckpoint(place, draftOf(2, chained));
  await publishCheckpoint(place, draftOf(3, await writeShards(place, 3)));
  writeFileSync(join(directory, '000003/manifest.json'), '{}');
  const sum = (shards: typeof first) =>
    shards.flatMap(({ segments }) => segments).reduce((total, { bytes }) => total + bytes, 0);
  expect(await listCheckpoints(place)).toMatchObject([
    { number: 1, parents: [], rows: 12, ownRows: 12, bytes: sum(first), ownBytes: sum(first), shards: 2 },
    { number: 2, parents: [1], rows: 24, ownRows: 12, bytes: sum(chained), ownBytes: sum(second) },
    { number: 3, problem: expect.stringMatching(/^000003\/manifest\.json: /) },
  ]);
});

test('two writers of one number: one wins, and repeating it is no error', async () => {
  const directory = temporaryDirectory();
  const places = [new DirectoryPlace(directory), new DirectoryPlace(directory)];
  const shards = await writeShards(places[0]!, 1);
  const drafts = ['aaaaaaaa', 'bbbbbbbb'].map((attempt) => ({ ...draftOf(1, shards), attempt }));
  const outcomes = await Promise.allSettled(places.map((place, i) => publishCheckpoint(place, drafts[i]!)));
  const [winner] = outcomes.flatMap(({ status }, i) => (status === 'fulfilled' ? [i] : []));
  expect(outcomes[1 - winner!]).toMatchObject({ reason: { code: 'CHECKPOINT_TAKEN' } });
  expect((await readManifest(places[0]!)).attempt).toBe(drafts[winner!]!.attempt);
  await publishCheckpoint(places[1 - winner!]!, drafts[winner!]!);
});

test('is not published when a file of it is not there, or another size', async () => {
  const directory = temporaryDirectory();
  const place = new DirectoryPlace(directory);
  const shards = await writeShards(place, 1);
  const [name] = shards.map(({ segments }) => segments[0]!.name);
  truncateSync(join(directory, name!), 100);
  await expect(publishCheckpoint(place, draftOf(1, shards))).rejects.toMatchObject({
    code: 'BAD_CHECKPOINT',
    message: expect.stringContaining(name!),
  });
  rmSync(join(directory, name!));
  await expect(publishCheckpoint(place, draftOf(1, shards))).rejects.toThrow(`${name}: the file is missing`);
  expect(await checkpointNumbers(place)).toEqual([]);
});

test('a segment that is missing, truncated, longer, altered or swapped is refused by name', async () => {
  const directory = temporaryDirectory();
  const place = new DirectoryPlace(directory);
  const [one, two] = (await writeShards(place, 1)).map(({ segments }) => segments[0]!);
  const path = join(directory, one!.name);
  const good = readFileSync(path);
  const refused = async (message: RegExp) => {
    await expect(readSegment(place, one!)).rejects.toMatchObject({ code: 'BAD_CHECKPOINT' });
    await expect(readSegment(place, one!)).rejects.toThrow(message);
    await expect(readSegment(place, one!)).rejects.toThrow(one!.name);
    writeFileSync(path, good);
    await readSegment(place, one!);
  };
  rmSync(path);
  await refused(/the file is missing/);
  truncateSync(path, good.length - 1);
  await refused(/truncated/);
  writeFileSync(path, Buffer.concat([good, Buffer.alloc(1)]));
  await refused(/at most/);
  writeFileSync(
    path,
    good.map((byte, i) => (i === good.length - 5 ? byte ^ 4 : byte)),
  );
  await refused(/SHA-256/);
  copyFileSync(join(directory, two!.name), path);
  await refused(/SHA-256|bytes/);
  await expect(readSegment(place, { ...one!, rows: 7 })).rejects.toThrow(/6 rows .* says 7/);
});

test('a manifest says what it was made of, segment by segment', async () => {
  const place = new DirectoryPlace(temporaryDirectory());
  const next = () => 1;
  const to = { number: 4, attempt: '0123abcd', shard: 1, part: 7, position: 5 };
  const segment = await store(place, to, [rows(TABLES[0]!, [1n], next)], []);
  expect(segment.name).toBe('000004/0123abcd-g0-m1-7.safetensors');
  const draft = { ...draftOf(4, [shardOf(1, [segment])]), kind: 'export' as const };
  expect(await publishCheckpoint(place, draft)).toMatchObject({ rows: 1, bytes: segment.bytes, parents: [] });
});
