// Tables that count seconds of the job, with real sockets: rows that nobody sees again go, for owners,
// replicas and exports, and the seconds go on when a job is restored or its scheduler starts again.
import { setTimeout as pause } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { poolsFor } from '../../../src/core/placement/job.js';
import type { TablePolicy } from '../../../src/engine/policies.js';
import { openExport } from '../../../src/index.js';
import type { Client } from '../../../src/library/client/client.js';
import type { Table } from '../../../src/library/client/options.js';
import { saveNow, setSavePlan } from '../../../src/library/tools/checkpoints.js';
import { checkParity } from '../../../src/library/tools/parity.js';
import { listTables } from '../../../src/library/tools/tables.js';
import { shardCount } from '../../../src/protocol/map.js';
import { startReplica } from '../../../src/roles/replica/replica.js';
import { MemoryStore } from '../../../src/stores/decisions/index.js';
import {
  COUNTING,
  client,
  cluster,
  firstKeys,
  keysFrom,
  keysIn,
  noticed,
  ps,
  redundant,
  scheduler,
  silent,
  statusWhere,
  temporaryDirectory,
} from '../../roles/support.js';

const DIM = COUNTING.dim;
/** A second of these jobs, in milliseconds. */
const SECOND_MS = 200;
const FAST = { secondMs: SECOND_MS };
/** Keys of which every shard has some. */
const KEYS = firstKeys(64);

const ones = ({ length }: BigUint64Array) => new Float32Array(length * DIM).fill(1);

/** The rows of keys that are alive, among those that were pushed once. */
async function alive(table: Pick<Table, 'pull'>, keys = KEYS): Promise<number> {
  const rows = await table.pull(keys);
  return rows.filter((value, i) => i % DIM === 0 && value !== 0).length;
}

/** Tells the seconds of a job: the age of a row in a table whose rows are seen all the time. */
class Watch {
  private static made = 0;

  private constructor(
    private readonly job: Client,
    private readonly table: Table,
    private readonly first: BigUint64Array,
  ) {}

  /** Resolves with a watch that tells 0 now. */
  static async begin(job: Client): Promise<Watch> {
    const table = await job.createTable({
      ...{ name: 'watch', ...COUNTING },
      policy: { clock: 'seconds' as const, ttl: 1_000_000 },
    });
    const watch = new Watch(job, table, keysFrom(1000 * ++Watch.made, 64));
    await table.push(watch.first, ones(watch.first));
    return watch;
  }

  /** The least and the most that shards have counted: a push of all makes them look. */
  async read(): Promise<[least: number, most: number]> {
    await this.table.push(KEYS, ones(KEYS));
    const [rows] = await this.job.pullFull([{ table: this.table, keys: this.first }]);
    const words = new Uint32Array(rows!.buffer, rows!.byteOffset, rows!.length);
    const width = DIM + 2;
    const ages = Array.from(this.first, (_, i) => words[i * width + DIM]!);
    return [Math.min(...ages), Math.max(...ages)];
  }

  /** Resolves when all shards have counted so many. */
  async until(seconds: number): Promise<void> {
    for (let [least] = await this.read(); least < seconds; [least] = await this.read());
  }

  /** The seconds before the last look that said no, and after the first one that said yes. */
  async when(isSo: () => boolean | Promise<boolean>): Promise<{ no: number; yes: number }> {
    for (let no = -1; ; ) {
      const [least] = await this.read();
      if (await isSo()) return { no, yes: (await this.read())[1] };
      no = least;
    }
  }
}

/** Rows that were seen so many seconds ago went neither before their ttl nor two seconds after it. */
function expectInTime({ no, yes }: { no: number; yes: number }, ttl: number, seen = 0): void {
  expect(no).toBeLessThanOrEqual(ttl - seen + 2);
  // A row may have been seen when the next second had begun.
  expect(yes).toBeGreaterThanOrEqual(ttl - seen);
}

const seconds = (ttl: number, others: Partial<TablePolicy> = {}): TablePolicy => ({
  ...{ ttl, clock: 'seconds' },
  ...others,
});

it('rows of a table that nobody pushes to go when their time is over, and their keys are told', async () => {
  const job = await client((await cluster({ code: '2+1', ps: 3, schedulerPolicy: FAST })).address);
  const table = await job.createTable({ name: 'items', ...COUNTING, policy: seconds(6) });
  const watch = await Watch.begin(job);
  const told = new Map<bigint, string>();
  const stream = job.evictions(table, { pollMs: 5 });
  await stream.next();
  const telling = (async () => {
    for await (const { keys, reasons, gap } of stream) {
      expect(gap).toBe(false);
      for (const [i, key] of keys.entries()) told.set(key, reasons[i]!);
      if (told.size === KEYS.length) break;
    }
  })();
  await table.push(KEYS, ones(KEYS));
  expectInTime(await watch.when(async () => (await alive(table)) < KEYS.length), 6);
  expectInTime(await watch.when(async () => (await alive(table)) === 0), 6);
  expectInTime(await watch.when(() => told.size === KEYS.length), 6);
  expect(told).toEqual(new Map(Array.from(KEYS, (key) => [key, 'expired'])));
  await telling;
  const listed = (await listTables(job)).tables.find(({ name }) => name === 'items');
  expect(listed).toMatchObject({ rows: 0, life: { expired: KEYS.length, rare: 0, deleted: 0 } });
  expect(await checkParity(job)).toMatchObject({ mismatched: 0, blocksUnprotected: 0 });
});

it('replicas and exports no longer serve rows that are too old for them', async () => {
  const running = await cluster({ code: '2+1', ps: 3, schedulerPolicy: FAST });
  const job = await client(running.address);
  const table = await job.createTable({ name: 'items', ...COUNTING, policy: seconds(100) });
  const watch = await Watch.begin(job);
  const served = { maxAgeSeconds: 5 };
  const url = temporaryDirectory();
  await setSavePlan(job, 'export', { url, everyMs: 0, keep: 9, rate: 0, kind: 'export', served });
  const options = { scheduler: running.address, name: 'replica', served, log: silent };
  const replica = await startReplica(options);
  onTestFinished(() => replica.close());
  await statusWhere(job, 'a replica that has all', ({ replicas = [] }) =>
    replicas.some(({ shards, complete, lagMs }) => shards > 0 && complete === shards && lagMs < 1e6),
  );
  const reader = (await client(running.address, { replica: true })).table('items');
  const [begun] = await watch.read();
  await table.push(KEYS, ones(KEYS));
  await saveNow(job, 'export');
  const exported = await openExport(url, { everyMs: 0 });
  onTestFinished(() => exported.close());
  expect(await alive({ pull: async (keys) => exported.pull('items', keys) })).toBe(KEYS.length);
  expect((await watch.read())[1] - begun).toBeLessThan(5);
  // The replica has them, too, a little later.
  await watch.when(async () => (await alive(reader)) === KEYS.length);
  const { no, yes } = await watch.when(async () => (await alive(reader)) === 0);
  expectInTime({ no: no - begun, yes: yes - begun }, 5);
  const increment = await saveNow(job, 'export');
  await exported.refresh();
  expect(exported.status.number).toBe(increment.number);
  expect(await alive({ pull: async (keys) => exported.pull('items', keys) })).toBe(0);
  expect(await alive(table)).toBe(KEYS.length);
});

it('a job that is restored in other shards goes on with ages, and not with the time between', async () => {
  const before = await cluster({ code: '2+1', ps: 3, groups: 2, schedulerPolicy: FAST });
  const job = await client(before.address);
  const table = await job.createTable({ name: 'items', ...COUNTING, policy: seconds(12) });
  const watch = await Watch.begin(job);
  const url = temporaryDirectory();
  await setSavePlan(job, 'checkpoint', { url, everyMs: 0, keep: 9, rate: 0, kind: 'full job' });
  await table.push(KEYS, ones(KEYS));
  await watch.until(4);
  await job.checkpoint();
  const [, seen] = await watch.read();
  expect(seen).toBeLessThan(8);
  await job.close();
  await before.close();
  // More than a whole life.
  await pause(15 * SECOND_MS);
  const running = await scheduler({
    ...{ nodes: 4, pools: poolsFor({ k: 3, r: 1 }, 4), restore: { url }, policy: FAST },
  });
  for (const name of ['a', 'b', 'c', 'd']) await ps({ scheduler: running.address, name });
  const after = await client(running.address);
  expect(shardCount(after.clusterMap.pools[0]!)).not.toBe(4);
  const restored = await Watch.begin(after);
  const items = after.table('items');
  expect(await alive(items)).toBe(KEYS.length);
  const { no, yes } = await restored.when(async () => (await alive(items)) === 0);
  expect(yes).toBeGreaterThanOrEqual(12 - seen - 2);
  expect(no).toBeLessThanOrEqual(12 - 4 + 2);
});

it('a scheduler that starts again goes on with the seconds, also after the loss of a PS', async () => {
  const store = new MemoryStore();
  const options = { store, nodes: 3, pools: poolsFor({ k: 2, r: 1 }, 3), policy: FAST };
  const first = await scheduler(options);
  const nodes = await Promise.all(
    [0, 1, 2].map((i) => ps({ scheduler: first.address, name: `ps-${i}`, hostLabel: `host-${i}` })),
  );
  const job = await client(first.address);
  const table = await job.createTable({ name: 'items', ...COUNTING, policy: seconds(15) });
  const watch = await Watch.begin(job);
  await table.push(KEYS, ones(KEYS));
  await watch.until(3);
  await first.close();
  // No scheduler, and no time, for more than a whole life.
  const [, then] = await watch.read();
  await pause(18 * SECOND_MS);
  expect((await watch.read())[1]).toBe(then);
  const second = await scheduler({ ...options, listen: first.address });
  await watch.until(then + 2);
  expect(await alive(table)).toBe(KEYS.length);
  await nodes[0]!.close();
  await noticed(job, 'ps-0');
  await second.close();
  await scheduler({ ...options, listen: first.address });
  expect(await alive(table)).toBe(KEYS.length);
  expectInTime(await watch.when(async () => (await alive(table)) === 0), 15);
});

it.each<[string, TablePolicy]>([
  ['steps', { ttl: 3, keep: 60 }],
  ['seconds', seconds(3, { keep: 60 })],
])('no fewer rows than keep says, also when a PS dies: %s', async (clock, policy) => {
  const running = await cluster({ code: '2+1', ps: 3, groups: 2, schedulerPolicy: FAST });
  const job = await client(running.address);
  const table = await job.createTable({ name: 'items', ...COUNTING, policy });
  const watch = await Watch.begin(job);
  const [early, late, few] = [keysFrom(0, 300), keysFrom(1000, 100), keysFrom(2000, 20)];
  const push = (keys: BigUint64Array) => table.push(keys, ones(keys));
  await push(early);
  // Other keys, in another second.
  await watch.until((await watch.read())[1] + 1);
  await push(late);
  let least = Number.POSITIVE_INFINITY;
  const left = async () => {
    if (clock === 'steps') await push(few);
    const rows = (await keysIn(job, 'items')).length;
    least = Math.min(least, rows);
    return rows;
  };
  await watch.when(async () => (await left()) <= late.length + few.length);
  expect(await alive(table, early)).toBe(0);
  await running.kill(1);
  await noticed(job, 'ps-1');
  const [now] = await watch.read();
  for (let i = 0; i < 40; i++) await left();
  await watch.when(async () => {
    await left();
    return (await watch.read())[0] >= now + 6;
  });
  await running.restart(1);
  await redundant(job, 3);
  await left();
  expect(least).toBeGreaterThanOrEqual(60);
  expect(await alive(table, late)).toBeGreaterThanOrEqual(60 - few.length);
  expect(await checkParity(job)).toMatchObject({ mismatched: 0, blocksUnprotected: 0 });
});
