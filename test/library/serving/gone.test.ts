// Rows that go from a real job: increments of its exports and checkpoints name their keys, so a reader that
// follows a chain has what a whole export of the same state has.
import { expect, it, onTestFinished } from 'vitest';
import { poolsFor } from '../../../src/core/placement/job.js';
import { type Client, openExport } from '../../../src/index.js';
import { saveNow, setSavePlan } from '../../../src/library/tools/checkpoints.js';
import { digest } from '../../../src/library/tools/digest.js';
import { load } from '../../../src/library/tools/load.js';
import { checkParity } from '../../../src/library/tools/parity.js';
import { checkpointOfSegment, type Manifest } from '../../../src/protocol/checkpoints.js';
import { shardCount } from '../../../src/protocol/map.js';
import { Random } from '../../../src/sim/random.js';
import { readManifest, readSegment } from '../../../src/stores/checkpoint/checkpoints.js';
import { compactCheckpoint } from '../../../src/stores/checkpoint/compact.js';
import { liveRows } from '../../../src/stores/checkpoint/live-rows.js';
import { openPlace } from '../../../src/stores/checkpoint/open.js';
import type { Place } from '../../../src/stores/checkpoint/place.js';
import { verifyCheckpoint } from '../../../src/stores/checkpoint/verify.js';
import {
  COUNTING,
  client,
  cluster,
  firstKeys,
  keysOf,
  ps,
  redundant,
  scheduler,
  temporaryDirectory,
} from '../../roles/support.js';

const KEYS = 300;
const DIM = COUNTING.dim;
const PLAN = { everyMs: 0, keep: 100, rate: 0 };

/** All rows that a reader of the newest checkpoint of a place has: `table key` -> values. */
async function contentOf(place: Place): Promise<Map<string, number[]>> {
  const manifest = await readManifest(place, undefined);
  const rows = new Map<string, number[]>();
  for (const shard of manifest.shards)
    for await (const { tables } of liveRows(place, manifest, shard))
      for (const { table, runs } of tables)
        for (const [first, end] of runs)
          for (let i = first; i < end; i++)
            rows.set(`${table.name} ${table.keys[i]}`, [
              ...table.values.subarray(i * table.dim, (i + 1) * table.dim),
            ]);
  return rows;
}

/** Increments of the newest checkpoint, and the keys that they remove. */
async function removedIn(place: Place, { number, shards }: Manifest): Promise<string[]> {
  const removed: string[] = [];
  const isNew = ({ name }: { name: string }) => checkpointOfSegment(name) === number;
  for (const { segments } of shards)
    for (const ref of segments.every(isNew) ? [] : segments.filter(isNew))
      for (const { name, removed: keys } of (await readSegment(place, ref)).tables)
        removed.push(...[...keys].map((key) => `${name} ${key}`));
  return removed;
}

function sorted(rows: Map<string, number[]>): [string, number[]][] {
  return [...rows].sort(([a], [b]) => (a < b ? -1 : 1));
}

/** Pushes to some keys and deletes others, in all tables. */
async function live(job: Client, random: Random, steps: number): Promise<void> {
  const some = (most: number) => [
    ...new Set(Array.from({ length: 1 + random.below(most) }, () => random.below(KEYS))),
  ];
  for (let step = 0; step < steps; step++)
    for (const { name } of job.tables()) {
      const keys = some(20);
      await job.table(name).push(keysOf(...keys), new Float32Array(keys.length * DIM).fill(1 + step));
      if (random.chance(0.3)) await job.table(name).delete(keysOf(...some(10)));
    }
}

it('a chain of exports forgets rows that were deleted, went by themselves, or came back', async () => {
  const running = await cluster({ code: '2+1', ps: 3 });
  const job = await client(running.address);
  await job.createTable({ name: 'plain', ...COUNTING });
  await job.createTable({ name: 'living', ...COUNTING, policy: { ttl: 9 } });
  const random = new Random(4);
  const [url, whole] = [temporaryDirectory(), temporaryDirectory()];
  await setSavePlan(job, 'chain', { ...PLAN, url, kind: 'export' });
  const all = await Promise.all(
    ['plain', 'living'].map((name) =>
      job.table(name).push(firstKeys(KEYS), new Float32Array(KEYS * DIM).fill(1)),
    ),
  );
  expect(all).toHaveLength(2);
  await saveNow(job, 'chain');
  const place = await openPlace(url);
  const served = await openExport(url, { everyMs: 0 });
  onTestFinished(() => served.close());
  const removed = new Set<string>();
  for (let round = 1; round <= 6; round++) {
    await live(job, random, 6);
    const { number } = await saveNow(job, 'chain');
    const manifest = await readManifest(place, number);
    for (const key of await removedIn(place, manifest)) removed.add(key.split(' ')[0]!);
    await setSavePlan(job, `whole-${round}`, { ...PLAN, url: `${whole}/${round}`, kind: 'export' });
    await saveNow(job, `whole-${round}`);
    const expected = await contentOf(await openPlace(`${whole}/${round}`));
    expect(sorted(await contentOf(place))).toEqual(sorted(expected));
    expect(await verifyCheckpoint(place, number)).toMatchObject({ bad: [] });
    await served.refresh();
    expect(served.status.number).toBe(number);
    const fresh = await openExport(`${whole}/${round}`, { everyMs: 0 });
    for (const { name } of job.tables()) {
      const rows = await job.table(name).pull(firstKeys(KEYS));
      expect(served.pull(name, firstKeys(KEYS))).toEqual(rows);
      expect(fresh.pull(name, firstKeys(KEYS))).toEqual(rows);
    }
    await fresh.close();
    await setSavePlan(job, `whole-${round}`);
  }
  expect([...removed].sort()).toEqual(['living', 'plain']);
  const before = await contentOf(place);
  await compactCheckpoint(place);
  expect(sorted(await contentOf(place))).toEqual(sorted(before));
});

it('a chain of checkpoints forgets rows that were deleted; a restore has the digest of the job', async () => {
  const running = await cluster({ code: '2+1', ps: 3 });
  const job = await client(running.address);
  await job.createTable({ name: 'plain', ...COUNTING });
  await job.table('plain').push(firstKeys(KEYS), new Float32Array(KEYS * DIM).fill(1));
  const url = temporaryDirectory();
  await setSavePlan(job, 'checkpoint', { ...PLAN, url, kind: 'full job' });
  await job.checkpoint();
  const place = await openPlace(url);
  let removed = 0;
  for (let round = 0; round < 3; round++) {
    await live(job, new Random(round), 3);
    const { number } = await job.checkpoint();
    removed += (await removedIn(place, await readManifest(place, number))).length;
  }
  expect(removed).toBeGreaterThan(0);
  const expected = await digest(job);
  await redundant(job, 3);
  await job.close();
  await running.close();
  const names = ['a', 'b', 'c', 'd'];
  for (const pools of [poolsFor({ k: 2, r: 1 }, 3), poolsFor({ k: 3, r: 1 }, 4)]) {
    const restored = await scheduler({ nodes: pools[0]!.k + 1, pools, restore: { url } });
    for (const name of names.slice(0, pools[0]!.k + 1)) await ps({ scheduler: restored.address, name });
    const after = await client(restored.address);
    expect(await digest(after)).toEqual(expected);
    expect(await checkParity(after)).toMatchObject({ mismatched: 0 });
  }
  const loaded = await client((await cluster({ code: 'none', ps: 1 })).address);
  await load(loaded, url);
  expect(await digest(loaded)).toEqual(expected);
});

const keysOfExport = async (url: string): Promise<number[]> =>
  [...(await contentOf(await openPlace(url))).keys()]
    .map((row) => Number(row.split(' ')[1]))
    .sort((a, b) => a - b);

it('readers of an export get rows that are admitted, seen often and young enough', async () => {
  const job = await client((await cluster({ code: '1+1', ps: 2, groups: 1 })).address);
  const table = await job.createTable({ name: 'items', ...COUNTING, policy: { counter: 2 } });
  const push = (...keys: number[]) =>
    table.push(keysOf(...keys), new Float32Array(keys.length * DIM).fill(1));
  // One shard, so one clock: keys 1, 2 and 3 are seen once, twice and thrice.
  expect(shardCount(job.clusterMap.pools[0]!)).toBe(1);
  await push(1, 2, 2, 3, 3, 3);
  const urls = { all: temporaryDirectory(), often: temporaryDirectory(), young: temporaryDirectory() };
  const plans = { all: undefined, often: { minFrequency: 3 }, young: { maxAge: 2 } };
  const made = async (name: keyof typeof plans) => {
    await saveNow(job, name);
    return keysOfExport(urls[name]);
  };
  for (const name of ['all', 'often', 'young'] as const) {
    const served = plans[name];
    await setSavePlan(job, name, { ...PLAN, url: urls[name], kind: 'export', ...(served && { served }) });
  }
  expect([await made('all'), await made('often'), await made('young')]).toEqual([[2, 3], [3], [2, 3]]);
  const reader = await openExport(urls.young, { everyMs: 0 });
  onTestFinished(() => reader.close());
  expect(reader.pull('items', keysOf(2))[0]).not.toBe(0);
  await push(1, 4);
  for (const _ of [1, 2]) await push(4, 4);
  // Keys 2 and 3 are too old now: the increment takes them away.
  expect([await made('all'), await made('often'), await made('young')]).toEqual([
    [1, 2, 3, 4],
    [3, 4],
    [1, 4],
  ]);
  const { number, shards } = await readManifest(await openPlace(urls.young));
  expect(shards[0]!.segments.length).toBeGreaterThan(1);
  expect(await removedIn(await openPlace(urls.young), { number, shards } as Manifest)).toEqual([
    'items 2',
    'items 3',
  ]);
  await reader.refresh();
  expect([...reader.pull('items', keysOf(1, 2, 3))]).toEqual([
    ...new Array<number>(DIM).fill(1),
    ...new Array<number>(2 * DIM).fill(0),
  ]);
  // Other thresholds begin anew.
  await setSavePlan(job, 'young', { ...PLAN, url: urls.young, kind: 'export', served: { maxAge: 3 } });
  expect(await made('young')).toEqual([1, 2, 3, 4]);
  await setSavePlan(job, 'often', { ...PLAN, url: urls.often, kind: 'export', served: { minFrequency: 2 } });
  expect(await made('often')).toEqual([1, 2, 3, 4]);
  expect((await job.status()).saving?.find(({ name }) => name === 'young')?.served).toEqual({ maxAge: 3 });
});
