/** `kintsugi checkpoint ...` against a job of real sockets, and a scheduler that is ended in order. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { absolutePlace } from '../../src/cli/checkpoint-flags.js';
import { renderStatus } from '../../src/cli/status.js';
import { connect } from '../../src/library/client/client.js';
import { type LocalCluster, startLocalCluster } from '../../src/roles/cluster.js';
import { kintsugi, record, start } from './support.js';

let cluster: LocalCluster;
let directory = '';
const at = (): string[] => ['--scheduler', cluster.address];

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-checkpoint-'));
  cluster = await startLocalCluster({ code: '2+1', ps: 3 });
  const client = await connect(cluster.address);
  const table = await client.createTable({ name: 'items', dim: 4 });
  await table.push(BigUint64Array.of(1n, 2n, 3n), new Float32Array(12).fill(1));
  await client.close();
});
afterAll(async () => {
  await cluster.close();
  rmSync(directory, { recursive: true, force: true });
});

test('a job without a place makes none, and says so', async () => {
  const now = await kintsugi(['checkpoint', 'now', ...at()]);
  expect(now).toMatchObject({
    code: 2,
    said: [expect.stringMatching(/^kintsugi: BAD_ARGUMENT: .*checkpoint set PLACE/)],
  });
  const set = await kintsugi(['checkpoint', 'set', '--every', '1s', ...at()]);
  expect(set).toMatchObject({ code: 2, said: [expect.stringMatching(/^kintsugi: BAD_ARGUMENT: .*place/)] });
});

test('checkpoints of a running job, and all that can be done in their place', async () => {
  const place = join(directory, 'place');
  const from = relative(process.cwd(), place);
  const set = await kintsugi(['checkpoint', 'set', from, '--every', '0s', '--keep', '7', ...at()]);
  expect(set).toMatchObject({
    code: 0,
    stdout: `checkpoints to ${place} when it is asked for, 7 are kept\n`,
  });
  const first = await kintsugi(['checkpoint', 'now', ...at()]);
  expect(first.stdout).toMatch(/^checkpoint 1: 3 rows, [\d.]+ KiB in [\d.]+ m?s\n$/);
  const second = await kintsugi(['checkpoint', 'now', '--json', ...at()]);
  expect(JSON.parse(second.stdout)).toMatchObject({ number: 2, rows: 0 });

  // `checkpoint set` changes what it names, and nothing else.
  await kintsugi(['checkpoint', 'set', '--keep', '3', ...at()]);
  // The same place in other words is no other one: the next checkpoint would have all rows.
  expect((await kintsugi(['checkpoint', 'set', pathToFileURL(place).href, ...at()])).stdout).toBe(
    `checkpoints to ${place} when it is asked for, 3 are kept\n`,
  );
  const status = await kintsugi(['status', ...at()]);
  expect(status.stdout).toMatch(/^ {2}checkpoint to \S+ when asked for; 2 \(.* ago$/m);

  const list = await kintsugi(['checkpoint', 'list', place]);
  expect(list.stdout.split('\n')).toHaveLength(4);
  const json = await kintsugi(['checkpoint', 'list', '--json', pathToFileURL(place).href]);
  expect(JSON.parse(json.stdout)).toMatchObject([{ number: 1, rows: 3 }, { number: 2 }]);
  expect(await kintsugi(['checkpoint', 'verify', `${place}@1`])).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^checkpoint 1 is whole: /),
  });

  const compact = await kintsugi(['checkpoint', 'compact', place]);
  expect(compact.stdout).toMatch(/^checkpoint 3 has the content of 2: 3 rows, /);
  expect(await kintsugi(['checkpoint', 'delete', place])).toMatchObject({ code: 2 });
  expect(await kintsugi(['checkpoint', 'delete', `${place}@3`])).toMatchObject({ code: 2 });
  const gone = await kintsugi(['checkpoint', 'delete', `${place}@1`]);
  expect(gone.stdout).toMatch(/^checkpoint 1 is deleted: /);
  // The number of the compaction is not used again, and the next checkpoint does not build on the old ones.
  const after = await kintsugi(['checkpoint', 'now', '--json', ...at()]);
  expect(JSON.parse(after.stdout)).toMatchObject({ number: 4 });
  const whole = await kintsugi(['checkpoint', 'list', '--json', place]);
  expect(JSON.parse(whole.stdout)).toMatchObject([{ number: 2 }, { number: 3 }, { number: 4, ownRows: 3 }]);

  const off = await kintsugi(['checkpoint', 'set', '--off', ...at()]);
  expect(off).toMatchObject({ code: 0, stdout: 'no checkpoints are made any more\n' });
  expect((await kintsugi(['checkpoint', 'now', ...at()])).code).toBe(2);
});

test('of one instant: what is not named stays as it is', async () => {
  const place = join(directory, 'instant');
  for (const flags of [[place, '--every', '0s'], ['--barrier'], ['--keep', '9'], ['--no-barrier']]) {
    expect(await kintsugi(['checkpoint', 'set', ...flags, ...at()])).toMatchObject({ code: 0 });
    expect(await kintsugi(['checkpoint', 'now', ...at()])).toMatchObject({ code: 0 });
  }
  const { stdout } = await kintsugi(['checkpoint', 'list', '--json', place]);
  const cuts = (JSON.parse(stdout) as { barrier: boolean }[]).map(({ barrier }) => barrier);
  expect(cuts).toEqual([false, true, true, false].slice(-cuts.length));
  expect(cuts.length).toBeGreaterThanOrEqual(3);
});

test('damage is found, and named with its file', async () => {
  const place = join(directory, 'damaged');
  await kintsugi(['checkpoint', 'set', place, '--every', '0s', ...at()]);
  await kintsugi(['checkpoint', 'now', ...at()]);
  const { stdout } = await kintsugi(['checkpoint', 'verify', '--json', place]);
  expect(JSON.parse(stdout)).toMatchObject({ number: 1, bad: [] });
  writeFileSync(join(place, '000001', 'manifest.json'), 'x');
  const list = await kintsugi(['checkpoint', 'list', place]);
  expect(list.stdout).toMatch(/^1 +damaged: 000001\/manifest.json/m);
  const verify = await kintsugi(['checkpoint', 'verify', place]);
  expect(verify.said).toEqual([expect.stringMatching(/^kintsugi: BAD_CHECKPOINT: 000001\/manifest.json/)]);
  const none = await kintsugi(['checkpoint', 'verify', join(directory, 'none')]);
  expect(none.said).toEqual([expect.stringMatching(/^kintsugi: CHECKPOINT_MISSING: /)]);
});

test('a place that cannot be is refused before anything is begun', async () => {
  const bad = await kintsugi(['scheduler', '--listen', '127.0.0.1:0', '--checkpoint', 'ftp://host/x']);
  expect(bad).toMatchObject({ code: 2, said: [expect.stringMatching(/^kintsugi: BAD_ARGUMENT: ftp/)] });
  const nothing = await kintsugi(['scheduler', '--listen', '127.0.0.1:0', '--keep', '2']);
  expect(nothing).toMatchObject({ code: 2, said: [expect.stringMatching(/need --checkpoint/)] });
  const set = await kintsugi(['checkpoint', 'set', 'ftp://host/x', ...at()]);
  expect(set).toMatchObject({ code: 2, said: [expect.stringMatching(/^kintsugi: BAD_ARGUMENT: ftp/)] });
});

test('a number where a place is meant is refused: it would be a directory of another name', async () => {
  const one = join(directory, 'one@12');
  const commands = [
    ['checkpoint', 'set', one, ...at()],
    ['checkpoint', 'list', one],
    ['checkpoint', 'compact', one],
    ['export', one, ...at()],
    ['save', one, ...at()],
    ['scheduler', '--listen', '127.0.0.1:0', '--checkpoint', one],
  ];
  for (const command of commands) {
    expect(await kintsugi(command)).toMatchObject({
      code: 2,
      said: [expect.stringMatching(/^kintsugi: BAD_ARGUMENT: .*one@12: /)],
    });
  }
  // A directory whose name ends like a number is named with a slash behind it.
  expect(await kintsugi(['save', `${one}/`, ...at()])).toMatchObject({ code: 0 });
  expect(await kintsugi(['checkpoint', 'verify', `${one}/`])).toMatchObject({ code: 0 });
  expect(await kintsugi(['checkpoint', 'verify', `${one}/@1`])).toMatchObject({ code: 0 });
  expect(absolutePlace(`${one}/`)).toBe(`${one}/`);
});

test('SIGTERM of the scheduler: a last checkpoint, and then its end', async () => {
  const place = join(directory, 'last');
  const flags = ['--checkpoint', place, '--every', '10m', '--keep', '2'];
  const scheduler = start(['scheduler', '--listen', '127.0.0.1:0', '--code', 'none', ...flags]);
  const { address } = await record(scheduler, 'scheduler.ready');
  const ps = start(['ps', '--scheduler', `${address}`, '--listen', '127.0.0.1:0']);
  onTestFinished(() => void ps.process.kill('SIGKILL'));
  const client = await connect(`${address}`);
  const table = await client.createTable({ name: 'items', dim: 4 });
  await table.push(BigUint64Array.of(1n), new Float32Array(4));
  await client.close();
  scheduler.process.kill('SIGTERM');
  expect((await scheduler.ended).code).toBe(0);
  const list = await kintsugi(['checkpoint', 'list', '--json', place]);
  expect(JSON.parse(list.stdout)).toMatchObject([{ number: 1, kind: 'full job', rows: 1 }]);
});

test('status says how old the newest one is, and why there is no newer one', () => {
  const plan = {
    name: 'checkpoint',
    url: '/data',
    kind: 'full job' as const,
    everyMs: 300_000,
    keep: 3,
    rate: 0,
  };
  const last = { number: 6, rows: 1, bytes: 2048, tookMs: 1500, agoMs: 61_000 };
  const failure = { number: 7, code: 'PLACE_FAILED' as const, message: 'the disk is full' };
  const text = renderStatus({
    ...{
      job: 'j',
      epoch: 1,
      redundancy: 'full',
      reasons: [],
      warnings: [],
      nodes: [],
      pools: [],
      tables: [],
    },
    ...{ recoveries: [], unrecoverable: [], scaling: { wanted: 1, serving: 1, changes: [] } },
    restoring: {
      ...{ url: '/data', number: 5, shardsLeft: 3 },
      failure: { code: 'BAD_CHECKPOINT', message: 'x: the file is missing' },
    },
    saving: [
      { ...plan, last, failure },
      { ...plan, everyMs: 0, underWay: { number: 1, saved: 2, shards: 8 } },
    ],
  });
  expect(text).toContain('checkpoint to /data every 300.00 s; 6 (2.0 KiB in 1.50 s) 61.00 s ago; 7 failed');
  expect(text).toContain('7 failed: PLACE_FAILED: the disk is full');
  expect(text).toContain(
    'loading checkpoint 5 of /data, 3 shards are left: BAD_CHECKPOINT: x: the file is missing',
  );
  expect(text).toContain('checkpoint to /data when asked for; none yet; 1 has 2 of 8 shards');
});
