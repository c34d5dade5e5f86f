/** Checkpoints by roles with real sockets into real directories. */
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { checkpointNumbers, listCheckpoints, readManifest } from '../../src/checkpoint/checkpoints.js';
import { openPlace } from '../../src/checkpoint/open.js';
import { verifyCheckpoint } from '../../src/checkpoint/verify.js';
import type { Client } from '../../src/client/client.js';
import { poolsFor } from '../../src/runtime/job.js';
import { MemoryStore } from '../../src/storage/index.js';
import { setSavePlan } from '../../src/tools/checkpoints.js';
import {
  COUNTING,
  client,
  cluster,
  EventLog,
  firstKeys,
  ps,
  rejection,
  scheduler,
  statusWhere,
  temporaryDirectory,
  twoPushers,
} from './support.js';

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
  expect(await rejection(job.checkpoint())).toMatchObject({ code: 'BAD_ARGUMENT' });
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

it('two jobs may share a place: every checkpoint that it lists is whole', async () => {
  const url = temporaryDirectory();
  const jobs = await Promise.all(
    [1, 2].map(async () => client((await cluster({ code: 'none', ps: 1 })).address)),
  );
  for (const job of jobs) {
    await fill(job, 1000);
    await setSavePlan(job, 'checkpoint', plan(url, 0, 3));
  }
  const place = await openPlace(url);
  for (let round = 0; round < 4; round++) {
    await Promise.allSettled(jobs.map((job) => job.checkpoint()));
    for (const { number } of await listCheckpoints(place))
      expect(await verifyCheckpoint(place, number)).toMatchObject({ bad: [] });
  }
  expect((await checkpointNumbers(place)).length).toBeGreaterThanOrEqual(1);
});

it('the scheduler is started with a plan; its job keeps the one that it has', async () => {
  const store = new MemoryStore();
  const urls = [temporaryDirectory(), temporaryDirectory()];
  const shape = { nodes: 1, pools: poolsFor({ k: 1, r: 0 }, 1) };
  const running = await scheduler({ ...shape, checkpoint: plan(urls[0]!) });
  await ps({ scheduler: running.address });
  const job = await client(running.address);
  await statusWhere(job, 'the plan', ({ saving }) => saving?.[0]?.url === urls[0]);
  await job.close();
  await running.close();
  await store.close();
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
