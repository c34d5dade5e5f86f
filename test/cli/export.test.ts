/** `kintsugi export` of a job of processes, and readers that follow it through the loss of roles. */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { loadNative } from '../../src/engine/native.js';
import { type Client, connect, type Export, type ExportStatus, openExport } from '../../src/index.js';
import { shardCount } from '../../src/protocol/map.js';
import { statusWhere } from '../roles/support.js';
import { ENDPOINT, makeBucket } from '../stores/checkpoint/s3-server.js';
import { kintsugi, type Running, record, start } from './support.js';

const ROWS = 3000;
const DIM = 3;
const KEYS = BigUint64Array.from({ length: ROWS }, (_, i) => BigInt(i));

/** Roles inherit the environment of this process: the S3 server, where there is one. */
if (ENDPOINT) Object.assign(process.env, { KINTSUGI_S3_ENDPOINT: ENDPOINT, AWS_REGION: 'us-east-1' });

let directory = '';
let address = '';
let scheduler: Running;
let client: Client;
const nodes: Running[] = [];

async function startScheduler(listen: string): Promise<void> {
  const state = join(directory, 'state');
  const flags = ['--log-format', 'json', '--code', '2+1', '--ps', '4', '--dir', state];
  scheduler = start(['scheduler', '--listen', listen, ...flags]);
  address = `${(await record(scheduler, 'scheduler.ready')).address}`;
}

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-export-'));
  await startScheduler('127.0.0.1:0');
  for (let n = 0; n < 4; n++) {
    const where = ['--listen', '127.0.0.1:0', '--name', `ps-${n}`, '--host-label', `host-${n}`];
    nodes.push(start(['ps', '--scheduler', address, ...where]));
  }
  // Four processes of PS start meanwhile.
  client = await connect(address, { connectTimeoutMs: 60_000 });
  const optimizer = { kind: 'sgd', lr: -1 } as const;
  await client.createTables([
    { name: 'counts', dim: DIM, optimizer, initializer: { kind: 'zeros' } },
    { name: 'others', dim: 1, optimizer, initializer: { kind: 'constant', value: 7 } },
  ]);
  await client.table('others').push(BigUint64Array.of(5n), Float32Array.of(1));
});
afterAll(async () => {
  await client?.close();
  for (const { process } of [scheduler, ...nodes]) process.kill('SIGKILL');
  await Promise.all([scheduler, ...nodes].map(({ ended }) => ended));
  rmSync(directory, { recursive: true, force: true });
});

const run = (...args: string[]) => kintsugi(['export', ...args, '--scheduler', address]);
/** Adds 1 to every row. */
const pushAll = () => client.table('counts').push(KEYS, new Float32Array(ROWS * DIM).fill(1));

/** Statuses of a reader, in their order. */
async function follow(url: string) {
  const waiting: { wanted: (status: ExportStatus) => boolean; resolve: () => void }[] = [];
  const onChange = (status: ExportStatus) => {
    for (const each of waiting.splice(0)) {
      if (each.wanted(status)) each.resolve();
      else waiting.push(each);
    }
  };
  const served = await openExport(url, { everyMs: 20, onChange });
  onTestFinished(() => served.close());
  const until = (wanted: (status: ExportStatus) => boolean) =>
    wanted(served.status)
      ? Promise.resolve()
      : new Promise<void>((resolve) => waiting.push({ wanted, resolve }));
  return { served, until };
}

/** How many pushes the rows of each shard show: all rows of a shard must show the same number. */
function pushesServed(served: Export): number[] {
  const pool = client.clusterMap.pools.find(({ name }) => name === 'embedding')!;
  const { order, starts } = loadNative().partition(KEYS, shardCount(pool));
  const rows = served.pull('counts', KEYS);
  return Array.from({ length: shardCount(pool) }, (_, shard) => {
    const found = new Set<number>();
    for (let i = starts[shard]!; i < starts[shard + 1]!; i++)
      for (let x = 0; x < DIM; x++) found.add(rows[order[i]! * DIM + x]!);
    expect(found.size).toBe(1);
    return [...found][0]!;
  });
}

/** Pushes to all rows, one after the other, without a pause. */
class Pushing {
  acknowledged = 0;
  begun = 0;
  private over = false;
  private readonly running = this.run();

  private async run(): Promise<void> {
    while (!this.over) {
      this.begun++;
      await pushAll();
      this.acknowledged++;
    }
  }
  stop(): Promise<void> {
    this.over = true;
    return this.running;
  }
}

const places: [string, () => Promise<string>][] = [['a directory', async () => join(directory, 'place')]];
if (ENDPOINT) places.push(['an object store', async () => `s3://${await makeBucket()}/export`]);

test.each(places)(
  'exports to %s: a reader follows them through the loss of roles',
  async (_, at) => {
    const url = await at();
    const base = pushesServedNow(await client.table('counts').pull(KEYS));
    const first = await run(
      url,
      '--every',
      '100ms',
      '--tables',
      'counts',
      '--keep',
      '30',
      '--once',
      '--json',
    );
    expect(first).toMatchObject({ code: 0 });
    const { served, until } = await follow(url);
    expect(served.tables.map(({ name }) => name)).toEqual(['counts']);
    const pushing = new Pushing();
    let before = pushesServed(served);
    const further = async (exports: number) => {
      for (let n = 0; n < exports; n++) {
        const { number } = served.status;
        await until((status) => status.number > number);
        const now = pushesServed(served);
        for (const [shard, count] of now.entries()) {
          expect(count).toBeGreaterThanOrEqual(before[shard]!);
          expect(count).toBeLessThanOrEqual(base + pushing.begun);
        }
        before = now;
      }
    };
    await further(3);
    nodes.shift()!.process.kill('SIGKILL');
    await further(3);
    const listen = address;
    scheduler.process.kill('SIGKILL');
    await scheduler.ended;
    await startScheduler(listen);
    await further(3);
    await pushing.stop();
    await run('--once');
    await served.refresh();
    expect(new Set(pushesServed(served))).toEqual(new Set([base + pushing.acknowledged]));
    expect((await run('--stop')).stdout).toBe('no exports "export" are made any more\n');
    const fresh = await openExport(url);
    onTestFinished(() => fresh.close());
    expect(fresh.pull('counts', KEYS)).toEqual(await client.table('counts').pull(KEYS));
    // The killed PS died for good. A new one takes its place, so that the next run has as many.
    const newest = (await client.status()).scaling.changes.at(-1)?.id ?? 0;
    const where = ['--listen', '127.0.0.1:0', '--name', `ps-${randomBytes(3).toString('hex')}`];
    nodes.push(
      start(['ps', '--scheduler', address, ...where, '--host-label', randomBytes(3).toString('hex')]),
    );
    // A shard that moves is exported as a whole, so the next test begins when its moves are over.
    await statusWhere(client, 'the new PS with its shards', ({ scaling }) =>
      scaling.changes.some(({ id, kind, state }) => id > newest && kind === 'join' && state === 'done'),
    );
  },
  240_000,
);

function pushesServedNow(rows: Float32Array): number {
  expect(new Set(rows).size).toBe(1);
  return rows[0]!;
}

test('thresholds are of the plan: they stay until another one is given, and are checked', async () => {
  const url = join(directory, 'thresholds');
  const served = async () => (await client.status()).saving?.find(({ name }) => name === 'few')?.served;
  const few = (...args: string[]) => run(...args, '--name', 'few');
  expect(await few(url, '--every', '999s', '--min-frequency', '3', '--max-age', '100')).toMatchObject({
    code: 0,
  });
  expect(await served()).toEqual({ minFrequency: 3, maxAge: 100 });
  expect(await few('--max-age', '0')).toMatchObject({ code: 0 });
  expect(await served()).toEqual({ minFrequency: 3 });
  expect((await few('--min-frequency', '-1')).stderr).toContain(
    '--min-frequency must be an integer from 0 to 536870911, not "-1"',
  );
  expect((await few('now', '--max-age', '5')).code).toBe(2);
  const aging = await client.createTable({ name: 'aging', dim: 1, policy: { ttl: 5 } });
  expect((await few('--max-age', '24h')).stderr).toContain(
    'an age of 86400 seconds fits no table: those with a policy count steps',
  );
  const timed = await client.createTable({ name: 'timed', dim: 1, policy: { ttl: 5, clock: 'seconds' } });
  expect(await few('--max-age', '24h')).toMatchObject({ code: 0 });
  expect(await served()).toEqual({ minFrequency: 3, maxAgeSeconds: 86_400 });
  expect(await few('--max-age', '2000,24h')).toMatchObject({ code: 0 });
  expect(await served()).toEqual({ minFrequency: 3, maxAge: 2000, maxAgeSeconds: 86_400 });
  expect(await few('--every', '998s')).toMatchObject({ code: 0 });
  expect(await served()).toEqual({ minFrequency: 3, maxAge: 2000, maxAgeSeconds: 86_400 });
  expect((await few('--tables', 'timed', '--max-age', '5')).stderr).toContain(
    'an age of 5 steps fits no table: those with a policy count seconds, as in "24h"',
  );
  for (const threshold of [
    ['--max-age', '24h'],
    ['--max-age', '0', '--min-frequency', '3'],
  ])
    expect((await few('--tables', 'counts', ...threshold)).stderr).toContain(
      'fits no table, as none of these has a policy: counts',
    );
  await few('--stop');
  await aging.drop();
  await timed.drop();
});

test('once, with all tables, and what changed the next time', async () => {
  await pushAll();
  const place = join(directory, 'once');
  const first = await run(place, '--once');
  expect(first).toMatchObject({ code: 0, stdout: expect.stringMatching(/^export 1: 3,001 rows, /) });
  const status = await client.status();
  expect(status.saving).toMatchObject([{ name: 'export', kind: 'export', everyMs: 0, keep: 3 }]);
  expect(status.saving![0]).not.toHaveProperty('tables');
  await client.table('others').push(BigUint64Array.of(6n), Float32Array.of(1));
  const second = await run('--once', '--json');
  expect(JSON.parse(second.stdout)).toMatchObject({ number: 2, rows: expect.any(Number) });
  expect((JSON.parse(second.stdout) as { rows: number }).rows).toBeLessThan(ROWS);
  const served = await openExport(place);
  onTestFinished(() => served.close());
  expect([...served.pull('others', BigUint64Array.of(5n, 6n, 8n))]).toEqual([8, 8, 7]);
  const changed = await run('--every', '10m', '--tables', 'others');
  expect(changed.stdout).toBe(`exports of others to ${place} every 600.00 s\n`);
  expect((await client.status()).saving).toMatchObject([{ everyMs: 600_000, tables: ['others'], keep: 3 }]);
  await run('--once');
  await served.refresh();
  expect(served.tables.map(({ name }) => name)).toEqual(['others']);
  // The table does not change while the streams go on, so there is nothing to add.
  await pushAll();
  const idle = await run('--once');
  const { number } = served.status;
  expect(idle).toMatchObject({
    code: 0,
    stdout: `nothing has changed since export ${number}: no other one was made\n`,
  });
  expect(JSON.parse((await run('--once', '--json')).stdout)).toMatchObject({
    ...{ number, rows: 0, bytes: 0, unchanged: true },
  });
  expect(readdirSync(place).sort().at(-1)).toBe(String(number).padStart(6, '0'));
  const again = await openExport(place);
  onTestFinished(() => again.close());
  expect([...again.pull('others', BigUint64Array.of(5n, 6n))]).toEqual([8, 8]);
  expect(again.status.failure).toBeUndefined();
  const other = await run(place, '--name', 'second');
  expect(other).toMatchObject({
    code: 2,
    said: [expect.stringMatching(/BAD_ARGUMENT: .*place of "export"/)],
  });
  await run('--stop');
});

test('now: one more at the place that the job has, and never a folder of that name', async () => {
  const cwd = mkdtempSync(join(tmpdir(), 'kintsugi-export-now-'));
  onTestFinished(() => rmSync(cwd, { recursive: true, force: true }));
  const here = (...args: string[]) =>
    start(['export', ...args, '--scheduler', address], {}, 'ignore', undefined, cwd).ended;
  for (const word of ['now', 'once', 'stop']) {
    const { code, said } = await here(word);
    expect([code, said]).toEqual([2, [expect.stringMatching(/^kintsugi: BAD_ARGUMENT: .*kintsugi export/)]]);
  }
  expect((await here('now', '--name', 'second')).said[0]).toContain('--name second');
  expect(readdirSync(cwd)).toEqual([]);
  expect((await client.status()).saving ?? []).toEqual([]);
  await run(join(directory, 'by-now'), '--every', '10m');
  await pushAll();
  expect(await here('now')).toMatchObject({ code: 0, stdout: expect.stringMatching(/^export \d+: 3,/) });
  expect(JSON.parse((await here('now', '--json')).stdout)).toMatchObject({ rows: 0, unchanged: true });
  expect((await here('now', '--every', '1s')).code).toBe(2);
  expect((await client.status()).saving).toMatchObject([{ everyMs: 600_000 }]);
  expect(readdirSync(cwd)).toEqual([]);
  expect(await here('./stop', '--once', '--every', '9m')).toMatchObject({ code: 0 });
  expect(readdirSync(cwd)).toEqual(['stop']);
  await run('--stop');
});

test('an export that somebody has removed is made anew, whole, and those of a clock, too', async () => {
  await pushAll();
  const place = join(directory, 'removed');
  const gone = (...args: string[]) => run(...args, '--name', 'gone', '--tables', 'counts');
  const now = () => run('now', '--name', 'gone');
  const whole = expect.stringMatching(/^export \d+: 3,000 rows, /);
  const rows = async () => {
    const served = await openExport(place);
    onTestFinished(() => served.close());
    return served.pull('counts', KEYS).length / DIM;
  };
  expect(await gone(place, '--once')).toMatchObject({ stdout: whole });
  expect((await now()).stdout).toContain('nothing has changed since export 1');
  const deleted = await kintsugi(['checkpoint', 'delete', `${place}@1`, '--newest']);
  expect(deleted.code).toBe(0);
  expect(await now()).toMatchObject({ code: 0, stdout: whole });
  expect(await rows()).toBe(ROWS);
  // All of the place goes, and some rows change meanwhile.
  rmSync(place, { recursive: true });
  await client.table('counts').push(BigUint64Array.of(0n), new Float32Array(DIM).fill(1));
  expect(await now()).toMatchObject({ code: 0, stdout: whole });
  expect(await rows()).toBe(ROWS);
  expect((await now()).stdout).toContain('nothing has changed since export ');

  const timed = join(directory, 'removed-timed');
  await run(timed, '--name', 'timed', '--tables', 'counts', '--every', '1s');
  const last = async (number: number) => {
    for (;;) {
      const found = (await client.status()).saving?.find((plan) => plan.name === 'timed')?.last;
      if (found && found.number >= number) return found;
    }
  };
  await last(1);
  rmSync(timed, { recursive: true });
  expect(await last(2)).toMatchObject({ rows: ROWS });
  for (const name of ['gone', 'timed']) await run('--stop', '--name', name);
});

test('a place of another plan is refused, also where a link leads there', async () => {
  const place = join(directory, 'linked');
  await run(place, '--name', 'linked', '--every', '0s');
  symlinkSync(place, join(directory, 'link'));
  symlinkSync(directory, join(directory, 'above'));
  for (const other of ['link', 'above/linked', 'above/link'])
    expect(await run(join(directory, other), '--name', 'other')).toMatchObject({
      code: 2,
      said: [expect.stringMatching(/BAD_ARGUMENT: .* is the place of "linked", .*, by a link/)],
    });
  await run('--stop', '--name', 'linked');
});

test('in another place what is not given stays, and a running plan is moved by name only', async () => {
  await pushAll();
  const [one, two, three] = ['moved-1', 'moved-2', 'moved-3'].map((name) => join(directory, name));
  const moving = (...args: string[]) => run(...args, '--name', 'moving');
  const plan = async () => (await client.status()).saving?.find(({ name }) => name === 'moving');
  const chosen = ['--tables', 'counts,aging', '--keep', '7', '--rate', '1GiB'];
  await client.createTable({ name: 'aging', dim: 1, policy: { ttl: 5 } });
  expect(await moving(one!, '--every', '10m', ...chosen, '--min-frequency', '2')).toMatchObject({ code: 0 });
  const kept = { everyMs: 600_000, tables: ['counts', 'aging'], keep: 7, rate: 2 ** 30 };
  expect(await plan()).toMatchObject({ url: one, ...kept, served: { minFrequency: 2 } });
  const refused = await moving(two!, '--once');
  expect(refused.code).toBe(2);
  expect(refused.said[0]).toContain('--name');
  expect(await plan()).toMatchObject({ url: one, ...kept });
  expect(await moving('now')).toMatchObject({ code: 0 });
  // The same place in other words.
  for (const same of [`${one}/`, `file://${one}`]) {
    expect(await moving(same, '--once')).toMatchObject({
      stdout: expect.stringContaining('nothing has changed since export 1'),
    });
    expect(await plan()).toMatchObject({ url: one, ...kept });
  }
  const moved = await moving(two!);
  expect(moved.stdout).toBe(`exports of counts, aging to ${two} every 600.00 s, no longer to ${one}\n`);
  expect(await plan()).toMatchObject({ url: two, ...kept, served: { minFrequency: 2 } });
  expect(await moving(three!, '--once', '--every', '9m', '--json')).toMatchObject({ code: 0 });
  expect(await plan()).toMatchObject({ url: three, ...kept, everyMs: 540_000 });
  expect(JSON.parse((await moving(two!, '--once', '--every', '9m', '--json')).stdout)).toMatchObject({
    movedFrom: three,
  });
  // Where none are made by the clock, there is nothing to end.
  await moving('--every', '0s');
  const last = await moving(one!, '--once', '--tables', 'counts', '--min-frequency', '0');
  expect(last.stdout).toMatch(new RegExp(`^export 2: 3,000 rows, .*, no longer to ${two}\n$`));
  expect(await plan()).toMatchObject({ url: one, ...kept, everyMs: 0, tables: ['counts'] });
  await moving('--stop');
  await client.table('aging').drop();
});

test('an export of tables that are all dropped fails; one that has the name again is exported', async () => {
  const short = (...args: string[]) => run(...args, '--name', 'short');
  const [one, two] = ['short-1', 'short-2'];
  const counting = { optimizer: { kind: 'sgd', lr: -1 }, initializer: { kind: 'zeros' } } as const;
  for (const name of [one, two]) {
    await client.createTable({ name, dim: 1, ...counting });
    await client.table(name).push(BigUint64Array.of(5n), Float32Array.of(1));
  }
  const made = await short(join(directory, 'short'), '--once', '--tables', `${one},${two}`);
  expect(made.stdout).toMatch(/^export 1: 2 rows, /);
  const status = async () => (await kintsugi(['status', '--scheduler', address])).stdout;
  expect(await status()).not.toContain('the job has no table');
  await client.table(one).drop();
  expect((await short('now')).stdout).toMatch(/^export 2: 1 rows, /);
  expect(await status()).toMatch(/^ {2}short to .*; the job has no table "short-1"$/m);
  await client.table(two).drop();
  const none = 'UNKNOWN_TABLE: the job has none of the tables of these exports: short-1, short-2';
  expect(await short('now')).toMatchObject({ code: 1, said: [`kintsugi: ${none}`] });
  expect(await short('now')).toMatchObject({ code: 1, said: [`kintsugi: ${none}`] });
  expect(await status()).toContain(`failed: ${none}`);
  expect(readdirSync(join(directory, 'short'))).toEqual(expect.not.arrayContaining(['000003']));
  await client.createTable({ name: two, dim: 2, ...counting });
  await client.table(two).push(BigUint64Array.of(6n), Float32Array.of(1, 2));
  expect((await short('now')).stdout).toMatch(/^export \d+: 1 rows, /);
  const served = await openExport(join(directory, 'short'));
  onTestFinished(() => served.close());
  expect([...served.pull(two, BigUint64Array.of(6n))]).toEqual([1, 2]);
  await client.table(two).drop();
  await short('--stop');
});

test('what cannot be is refused', async () => {
  const refused = async (code: string, ...args: string[]) =>
    expect(await run(...args)).toMatchObject({
      code: 2,
      said: [expect.stringMatching(new RegExp(`^kintsugi: ${code}: `))],
    });
  const place = join(directory, 'refused');
  await refused('BAD_ARGUMENT');
  await refused('BAD_ARGUMENT', '--once');
  await refused('BAD_ARGUMENT', '--stop');
  await refused('BAD_ARGUMENT', place, '--stop');
  await refused('BAD_ARGUMENT', place, '--name', 'checkpoint');
  await refused('BAD_ARGUMENT', place, '--tables', 'counts,,others');
  await refused('UNKNOWN_TABLE', place, '--tables', 'counts,nothing');
  await refused('BAD_ARGUMENT', 'ftp://host/x');
});
