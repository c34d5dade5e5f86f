/** Checkpoints by roles with real sockets into real directories. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { FetchAnswer, FetchedFile } from '../../../src/core/node/loading.js';
import type { StoreAnswer } from '../../../src/core/node/saving.js';
import { poolsFor } from '../../../src/core/placement/job.js';
import type { Client } from '../../../src/library/client/client.js';
import { internalsOf } from '../../../src/library/client/connected.js';
import { setSavePlan } from '../../../src/library/tools/checkpoints.js';
import { digest } from '../../../src/library/tools/digest.js';
import { save } from '../../../src/library/tools/save.js';
import { MAX_CHECKPOINT, type SavedShard } from '../../../src/protocol/checkpoints.js';
import { PlaceFiles } from '../../../src/roles/ps/place-files.js';
import {
  checkpointNumbers,
  publishCheckpoint,
  readManifest,
  storeSegment,
} from '../../../src/stores/checkpoint/checkpoints.js';
import { compactCheckpoint } from '../../../src/stores/checkpoint/compact.js';
import { openPlace } from '../../../src/stores/checkpoint/open.js';
import { verifyCheckpoint } from '../../../src/stores/checkpoint/verify.js';
import { openDirectoryStore } from '../../../src/stores/decisions/directory.js';
import {
  COUNTING,
  client,
  cluster,
  EventLog,
  firstKeys,
  ps,
  redundant,
  rejection,
  scheduler,
  statusWhere,
  temporaryDirectory,
  twoPushers,
} from '../support.js';

const plan = (url: string, everyMs = 0, keep = 100) => ({
  ...{ url, everyMs, keep, rate: 0 },
  kind: 'full job' as const,
});

const planOf = (job: Client) => job.status().then(({ saving }) => saving![0]!);

async function fill(job: Client, rows: number): Promise<void> {
  const counts = await job.createTable({ name: 'counts', ...COUNTING });
  await counts.push(firstKeys(rows), new Float32Array(rows * COUNTING.dim).fill(1));
}

it('a checkpoint has everything, and the next one what has changed', async () => {
  const job = await client((await cluster({ code: '2+1' })).address);
  expect(await rejection(job.checkpoint())).toMatchObject({
    code: 'BAD_ARGUMENT',
    message: 'the job has no place for checkpoints: "kintsugi checkpoint set PLACE" gives it one',
  });
  const url = temporaryDirectory();
  await setSavePlan(job, 'checkpoint', plan(url));
  await fill(job, 40_000);
  const first = await job.checkpoint();
  expect(first).toMatchObject({ number: 1, rows: 40_000 });
  await job.table('counts').push(firstKeys(1), new Float32Array(COUNTING.dim).fill(1));
  const second = await job.checkpoint();
  expect(second.number).toBe(2);
  expect(second.bytes).toBeLessThan(first.bytes / 10);
  const place = await openPlace(url);
  for (const number of [1, 2]) expect(await verifyCheckpoint(place, number)).toMatchObject({ bad: [] });
  expect((await readManifest(place)).parents).toEqual([1]);
  const { last, failure, underWay } = await planOf(job);
  expect(last).toMatchObject({ number: 2, bytes: second.bytes, rows: second.rows });
  expect([failure, underWay]).toEqual([undefined, undefined]);
});

it('who asks for a checkpoint while one is made gets the next one', async () => {
  const job = await client((await cluster({ code: 'none', ps: 1 })).address);
  const url = temporaryDirectory();
  await setSavePlan(job, 'checkpoint', plan(url));
  await fill(job, 100);
  const made = await Promise.all([job.checkpoint(), job.checkpoint()]);
  const numbers = new Set(made.map(({ number }) => number));
  expect(await checkpointNumbers(await openPlace(url))).toEqual([...numbers].sort());
});

it('checkpoints of a place that has some go on from their numbers', async () => {
  const url = temporaryDirectory();
  const numbers: number[] = [];
  for (let round = 0; round < 2; round++) {
    const job = await client((await cluster({ code: 'none', ps: 1 })).address);
    await fill(job, 10);
    await setSavePlan(job, 'checkpoint', plan(url, 0, 1));
    numbers.push((await job.checkpoint()).number);
  }
  expect(numbers).toEqual([1, 2]);
});

it('after a compaction the next checkpoint has all rows, also after failed attempts', async () => {
  const job = await client((await cluster({ code: 'none', ps: 1, groups: 1 })).address);
  const url = temporaryDirectory();
  await setSavePlan(job, 'checkpoint', plan(url));
  await fill(job, 40_000);
  await job.checkpoint();
  await fill(job, 1);
  expect((await job.checkpoint()).rows).toBeLessThan(50_000);
  // The third attempt fails, and its number is not used again.
  writeFileSync(join(url, '000003'), '');
  await fill(job, 1);
  expect(await rejection(job.checkpoint())).toMatchObject({ code: 'PLACE_FAILED' });
  rmSync(join(url, '000003'));
  const place = await openPlace(url);
  expect(await compactCheckpoint(place)).toMatchObject({ number: 3, compactionOf: 2, rows: 40_000 });
  await fill(job, 1);
  const { number } = await job.checkpoint();
  expect(number).toBeGreaterThan(3);
  expect(await readManifest(place)).toMatchObject({ number, parents: [], rows: 40_000 });
  expect((await planOf(job)).failure).toBeUndefined();
});

it('a place whose numbers are used up is refused', async () => {
  const url = temporaryDirectory();
  const job = await client((await cluster({ code: 'none', ps: 1, groups: 1 })).address);
  await fill(job, 10);
  await setSavePlan(job, 'checkpoint', plan(url));
  await job.checkpoint();
  const place = await openPlace(url);
  const { format: _f, version: _v, parents: _p, rows: _r, bytes: _b, ...draft } = await readManifest(place);
  await publishCheckpoint(place, { ...draft, number: MAX_CHECKPOINT });
  const refused = { code: 'LIMIT', message: expect.stringContaining('use another place') };
  expect(await rejection(setSavePlan(job, 'other', plan(url)))).toMatchObject(refused);
  expect(await rejection(compactCheckpoint(place))).toMatchObject(refused);
  // The job that writes there says why it has no newer one, and removes nothing.
  expect(await rejection(job.checkpoint())).toMatchObject({ code: 'CHECKPOINT_TAKEN' });
  expect((await planOf(job)).failure).toMatchObject({ number: 2, code: 'CHECKPOINT_TAKEN' });
  expect(await checkpointNumbers(place)).toEqual([1, MAX_CHECKPOINT]);
  expect(await verifyCheckpoint(place)).toMatchObject({ bad: [] });
  const draftBeyond = { ...draft, number: MAX_CHECKPOINT + 1 };
  expect(await rejection(publishCheckpoint(place, draftBeyond))).toMatchObject({ code: 'INTERNAL' });
});

it('two jobs in one place: every checkpoint that stays is whole', async () => {
  const KEPT = 3;
  const url = temporaryDirectory();
  const clusters = [await cluster({ code: 'none', ps: 1 }), await cluster({ code: 'none', ps: 1 })];
  const jobs = await Promise.all(clusters.map(({ address }) => client(address)));
  for (const job of jobs) {
    await fill(job, 1000);
    await setSavePlan(job, 'checkpoint', plan(url, 0, KEPT));
  }
  const made = new Set<number>();
  for (let round = 0; round < 6; round++) {
    const results = await Promise.allSettled(jobs.map((job) => job.checkpoint()));
    // No number is given to both.
    const numbers = results.flatMap((each) => (each.status === 'fulfilled' ? [each.value.number] : []));
    for (const number of numbers) expect(made).not.toContain(number);
    for (const number of numbers) made.add(number);
  }
  for (const each of clusters) await each.close();
  const place = await openPlace(url);
  // Older ones may be on their way out.
  const stay = (await checkpointNumbers(place)).slice(-KEPT);
  expect(stay.length).toBe(KEPT);
  for (const number of stay) expect(await verifyCheckpoint(place, number)).toMatchObject({ bad: [] });
});

it('the scheduler is started with a plan; a job that has one keeps it', async () => {
  const [store, ...urls] = [temporaryDirectory(), temporaryDirectory(), temporaryDirectory()];
  const first = await scheduler({ store: openDirectoryStore(store), checkpoint: plan(urls[0]!) });
  await ps({ scheduler: first.address });
  const job = await client(first.address);
  await statusWhere(job, 'the plan', ({ saving }) => saving?.[0]?.url === urls[0]);
  await first.close();
  const log = new EventLog();
  const again = { listen: first.address, store: openDirectoryStore(store), log };
  await scheduler({ ...again, checkpoint: plan(urls[1]!) });
  await fill(job, 10);
  expect(await job.checkpoint()).toMatchObject({ number: 1 });
  expect((await planOf(job)).url).toBe(urls[0]);
});

it('a job begins with a checkpoint, serves what it has, and makes the next ones', async () => {
  const url = temporaryDirectory();
  const before = await cluster({ code: '2+1', groups: 3 });
  const job = await client(before.address);
  await setSavePlan(job, 'checkpoint', plan(url));
  await fill(job, 20_000);
  await job.checkpoint();
  await fill(job, 5);
  await job.checkpoint();
  const expected = await job.table('counts').pull(firstKeys(20_000));
  await job.close();
  await before.close();

  // PS that are killed while they load: others do it.
  const log = new EventLog();
  const shape = { nodes: 4, pools: poolsFor({ k: 2, r: 2 }, 4) };
  const running = await scheduler({ ...shape, restore: { url }, checkpoint: plan(url), log });
  const formed = log.next('map.durable');
  const nodes = await Promise.all(
    [0, 1, 2, 3].map((index) => ps({ scheduler: running.address, name: `ps-${index}`, log })),
  );
  await formed;
  await nodes[1]!.close();
  const done = log.next('restore.done');
  await ps({ scheduler: running.address, name: 'ps-4', log });
  const after = await client(running.address);
  expect(after.clusterMap.pools.map(({ k, r, groups }) => [k, r, groups])).toEqual([
    [2, 2, 3],
    [1, 2, 3],
  ]);
  expect(await after.table('counts').pull(firstKeys(20_000))).toEqual(expected);
  await done;
  await redundant(after);
  await fill(after, 7);
  const made = await after.checkpoint();
  expect(made).toMatchObject({ number: 3, rows: 20_000 });
  const place = await openPlace(url);
  expect((await readManifest(place)).parents).toEqual([]);
  for (const number of [1, 2, 3]) expect(await verifyCheckpoint(place, number)).toMatchObject({ bad: [] });
});

it('a job begins with a save: it has no samples, and no push is known', async () => {
  const url = temporaryDirectory();
  const before = await cluster({ code: '2+1', groups: 2 });
  const job = await client(before.address);
  await fill(job, 5000);
  await save(job, url);
  const expected = await digest(job);
  await before.close();
  const running = await scheduler({ nodes: 3, pools: poolsFor({ k: 2, r: 1 }, 3), restore: { url } });
  for (const name of ['a', 'b', 'c']) await ps({ scheduler: running.address, name });
  const after = await client(running.address);
  expect(await digest(after)).toEqual(expected);
  await fill(after, 5000);
  const rows = await after.table('counts').pull(firstKeys(5000));
  expect(rows).toEqual(new Float32Array(rows.length).fill(rows[0]!));
  await redundant(after);
});

it('a save that lacks shards is no beginning of a job', async () => {
  const url = temporaryDirectory();
  const job = await client((await cluster({ code: 'none', ps: 1, groups: 2 })).address);
  await fill(job, 100);
  await save(job, url);
  const place = await openPlace(url);
  const whole = await readManifest(place);
  const { format: _f, version: _v, parents: _p, rows: _r, bytes: _b, ...draft } = whole;
  const [{ pool, shard }, ...shards] = whole.shards as [SavedShard, ...SavedShard[]];
  await publishCheckpoint(place, { ...draft, number: 2, shards, lost: [{ pool, shard }] });
  const pools = poolsFor({ k: 1, r: 0 }, 1);
  expect(await rejection(scheduler({ nodes: 1, pools, restore: { url } }))).toMatchObject({
    code: 'BAD_ARGUMENT',
    message: expect.stringMatching(/checkpoint 2 of .* lacks 1 shards: 0 of pool "embedding"/),
  });
});

it('a file that removes rows names their keys to the engine', async () => {
  const url = temporaryDirectory();
  const job = await client((await cluster({ code: 'none', ps: 1 })).address);
  await job.createTable({ name: 'counts', ...COUNTING });
  const home = { group: 0, member: 0, position: 0 };
  const table = { name: 'counts', dim: COUNTING.dim, stateParts: [], keys: [], values: [], state: [] };
  const place = await openPlace(url);
  const name = '000001/0123abcd-g0-m0-0.safetensors';
  const segment = await storeSegment(place, name, [{ ...table, removed: [firstKeys(1)] }], [], home);
  const answer = await new Promise<StoreAnswer | FetchAnswer>((resolve) => {
    const files = new PlaceFiles(resolve);
    onTestFinished(() => files.close());
    const of = { pool: 'embedding', group: 0, member: 0 };
    files.fetch({ kind: 'fetch', token: 1, url, segment, ...of }, internalsOf(job).session.map);
  });
  const fetched = { name: 'counts', keys: new BigUint64Array(), removed: firstKeys(1) };
  expect(answer).toMatchObject({ token: 1, tables: [fetched] });
  // The node discards the memory of the file, and nothing else.
  const { tables, content } = answer as FetchedFile;
  expect(content!.byteLength).toBe(segment.bytes);
  expect(content!.buffer.byteLength).toBe(segment.bytes);
  expect(tables[0]!.removed!.buffer).toBe(content!.buffer);
});

it('a checkpoint that is damaged is not loaded, and status says why', async () => {
  const url = temporaryDirectory();
  const before = await cluster({ code: 'none', ps: 1, groups: 2 });
  const job = await client(before.address);
  await setSavePlan(job, 'checkpoint', plan(url));
  await fill(job, 1000);
  await job.checkpoint();
  await before.close();
  const [{ segments }] = (await readManifest(await openPlace(url))).shards as [SavedShard];
  const file = join(url, segments[0]!.name);
  const bytes = readFileSync(file);
  bytes[bytes.length - 3]! ^= 16;
  writeFileSync(file, bytes);
  const shape = { nodes: 1, pools: poolsFor({ k: 1, r: 0 }, 1) };
  const running = await scheduler({ ...shape, restore: { url } });
  await ps({ scheduler: running.address });
  const after = await client(running.address);
  const status = await statusWhere(after, 'why', ({ restoring }) => restoring?.failure !== undefined);
  expect(status.restoring).toMatchObject({ url, number: 1, failure: { code: 'BAD_CHECKPOINT' } });
  expect(status.restoring!.failure!.message).toContain(segments[0]!.name);
  // When the file is mended it goes on.
  bytes[bytes.length - 3]! ^= 16;
  writeFileSync(file, bytes);
  expect(await after.table('counts').pull(firstKeys(1))).toEqual(Float32Array.of(1, 1));
  await statusWhere(after, 'the end', ({ restoring }) => restoring === undefined);
});

it('at an orderly end a last checkpoint is made', async () => {
  const url = temporaryDirectory();
  const running = await scheduler({ checkpoint: plan(url, 600_000) });
  await ps({ scheduler: running.address });
  const job = await client(running.address);
  await fill(job, 10);
  await statusWhere(job, 'the plan', ({ saving }) => saving !== undefined);
  await running.finish();
  expect(await verifyCheckpoint(await openPlace(url))).toMatchObject({ number: 1, rows: 10, bad: [] });
});

it('a place that cannot be written: training goes on, status says why, the next one is made', async () => {
  const log = new EventLog();
  const { job, clients, pushers } = await twoPushers({ code: '2+1', log }, 500);
  const directory = join(temporaryDirectory(), 'place');
  await setSavePlan(clients[0], 'checkpoint', plan(directory, 50));
  await statusWhere(clients[0], 'a checkpoint', ({ saving }) => (saving?.[0]?.last?.number ?? 0) >= 2);
  // A file in place of the directory: nothing can be written there, whoever runs this.
  rmSync(directory, { recursive: true });
  writeFileSync(directory, '');
  const status = await statusWhere(clients[0], 'why', ({ saving }) => saving?.[0]?.failure !== undefined);
  expect(status.saving![0]!.failure).toMatchObject({
    code: expect.stringMatching(/PLACE_FAILED|BAD_CHECKPOINT/),
  });
  expect(status.redundancy).toBe('full');
  await pushers[0]!.more(20);
  await pushers[1]!.more(20);
  rmSync(directory);
  const { number } = status.saving![0]!.failure!;
  await statusWhere(clients[0], 'the next one', ({ saving }) => (saving?.[0]?.last?.number ?? 0) > number);
  expect((await planOf(clients[0])).failure).toBeUndefined();
  const place = await openPlace(directory);
  for (const each of await checkpointNumbers(place))
    expect(await verifyCheckpoint(place, each)).toMatchObject({ bad: [] });
  for (const pusher of pushers) await pusher.stop();
  expect(job.nodes.length).toBe(3);
});

/** A file system of its own, where this process may make one. */
function tmpfs(size: string): { path: string; remount(options: string): void } | undefined {
  const path = temporaryDirectory();
  if (spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${size}`, 'tmpfs', path]).status !== 0) return undefined;
  onTestFinished(() => void spawnSync('umount', ['-l', path]));
  const remount = (options: string) =>
    expect(spawnSync('mount', ['-o', `remount,${options}`, path]).status).toBe(0);
  return { path, remount };
}

it.skipIf(process.platform !== 'linux' || process.getuid?.() !== 0)(
  'a disk that is full, or read-only: the reason is told, and when there is room the next one is made',
  async (context) => {
    const disk = tmpfs('256k');
    if (!disk) return context.skip('no file system can be mounted here');
    const job = await client((await cluster({ code: 'none', ps: 1 })).address);
    await setSavePlan(job, 'checkpoint', plan(disk.path));
    await fill(job, 100);
    await job.checkpoint();
    await fill(job, 40_000);
    expect(await rejection(job.checkpoint())).toMatchObject({
      code: 'PLACE_FAILED',
      message: expect.stringContaining('ENOSPC'),
    });
    expect(await checkpointNumbers(await openPlace(disk.path))).toEqual([1]);
    disk.remount('size=16m');
    const made = await job.checkpoint();
    expect(made.rows).toBe(40_000);
    disk.remount('ro');
    expect(await rejection(job.checkpoint())).toMatchObject({
      code: 'PLACE_FAILED',
      message: expect.stringContaining('EROFS'),
    });
    await fill(job, 100);
    disk.remount('rw');
    await job.checkpoint();
    const place = await openPlace(disk.path);
    for (const number of await checkpointNumbers(place))
      expect(await verifyCheckpoint(place, number)).toMatchObject({ bad: [] });
  },
);

it('retention removes older checkpoints and what they alone need', async () => {
  const log = new EventLog();
  const job = await client((await cluster({ code: 'none', ps: 1, log })).address);
  const url = temporaryDirectory();
  await fill(job, 10_000);
  await setSavePlan(job, 'checkpoint', plan(url, 0, 2));
  // The first and the fourth have all rows, because what changed would have become larger.
  for (let round = 0; round < 6; round++) {
    const removed = round < 2 ? undefined : log.next('checkpoint.removed');
    await fill(job, 10_000);
    await job.checkpoint();
    await removed;
  }
  const place = await openPlace(url);
  expect(await checkpointNumbers(place)).toEqual([5, 6]);
  for (const number of [5, 6]) expect(await verifyCheckpoint(place, number)).toMatchObject({ bad: [] });
  const folders = ['000001', '000002', '000003', '000004', '000005', '000006'];
  const left = folders.filter((folder) => existsSync(join(url, folder)));
  expect(left).toEqual(['000004', '000005', '000006']);
});
