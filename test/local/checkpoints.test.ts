/** Checkpoints of whole jobs of real processes: made through kills, and left by a job that is killed. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { listCheckpoints } from '../../src/checkpoint/checkpoints.js';
import { openPlace } from '../../src/checkpoint/open.js';
import { verifyCheckpoint } from '../../src/checkpoint/verify.js';
import type { KilledReport } from '../../src/local/killed.js';
import type { Report } from '../../src/local/report.js';
import { writeDemoData } from '../../src/train/demo-data.js';
import { kintsugi, type Output } from '../cli/support.js';

const SHAPE = ['--ps', '3', '--code', '2+1', '--dim', '8', '--bottom', '16-8', '--top', '16-1'];
let directory = '';
let data = '';

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-checkpoints-'));
  data = join(directory, 'train.tsv');
  const test = join(directory, 'test.tsv');
  await writeDemoData({ train: data, test, rows: 8000, testRows: 10, keys: 5000, seed: 1 });
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

async function run<T>(name: string, args: string[]): Promise<{ output: Output; report: T; place: string }> {
  const [json, place] = [join(directory, `${name}.json`), join(directory, name)];
  const all = ['local', '--data', data, ...SHAPE, '--checkpoint', place, ...args, '--json', json, '--quiet'];
  const output = await kintsugi(all);
  const report = existsSync(json) ? JSON.parse(readFileSync(json, 'utf8')) : undefined;
  return { output, report: report as T, place };
}

/** Numbers of all that the place lists; every one of them is whole. */
async function whole(url: string): Promise<number[]> {
  const place = await openPlace(url);
  const all = await listCheckpoints(place);
  for (const { number, problem } of all) {
    expect(problem).toBeUndefined();
    expect(await verifyCheckpoint(place, number)).toMatchObject({ bad: [] });
  }
  return all.map(({ number }) => number);
}

test('while roles are killed, every checkpoint that is listed is whole', async () => {
  const kills = ['ps@20%', 'scheduler@40%', 'worker@50%', 'ps@60%'].flatMap((kill) => ['--kill', kill]);
  const args = ['--every', '300ms', '--keep', '1000', '--epochs', '4', ...kills, '--respawn', '200ms'];
  const { output, report, place } = await run<Report>('kills', args);
  expect(output).toMatchObject({ code: 0, stderr: '' });
  expect(report.samples).toMatchObject({ trained: 32_000, exactlyOnce: true });
  const { made, newest } = report.checkpoints!;
  const listed = await whole(place);
  expect(made.length).toBeGreaterThan(3);
  // One whose scheduler was killed after the manifest was written is there, and nobody was told.
  expect(listed).toEqual(expect.arrayContaining(made.map(({ number }) => number)));
  expect(listed.at(-1)).toBe(newest);
  // The last one is that of the end.
  const last = await verifyCheckpoint(await openPlace(place));
  expect(last.rows).toBeGreaterThan(0);
  expect(made.at(-1)!.number).toBe(newest);
});

test('a run whose processes are all killed says so, and leaves its checkpoints', async () => {
  const args = ['--every', '200ms', '--keep', '2', '--epochs', '3', '--kill', 'all@70%'];
  const { output, report, place } = await run<KilledReport>('all', args);
  expect(output).toMatchObject({ code: 137, stderr: '' });
  expect(output.stdout).toMatch(/^killed every process at 70 %, after [\d,]+ of 24,000 samples/);
  expect(report.killed).toMatchObject({ percent: 70, expected: 24_000 });
  expect(report.killed.samples).toBeGreaterThanOrEqual(0.7 * 24_000);
  const listed = await whole(place);
  expect(listed.length).toBeGreaterThan(0);
  expect(report.checkpoints!.newest).toBe(listed.at(-1));
});

test('a run without checkpoints that is killed leaves nothing', async () => {
  const args = ['local', '--data', data, ...SHAPE, '--kill', 'all@50%', '--quiet'];
  const output = await kintsugi(args);
  expect(output).toMatchObject({ code: 137, stderr: '' });
  expect(output.stdout.trim().split('\n')).toHaveLength(1);
});

test('at its end a last checkpoint is made; a place that refuses it is told', async () => {
  const good = await run<Report>('good', ['--every', '0s']);
  expect(good.output).toMatchObject({ code: 0, stderr: '' });
  expect(good.report.checkpoints).toMatchObject({ made: [{ number: 1 }], failed: [], newest: 1 });
  expect(good.output.stdout).toContain('checkpoints 1 made');
  expect(await whole(good.place)).toEqual([1]);
  // A file where the directory should be.
  const bad = await run<Report>('good.json', ['--every', '0s']);
  expect(bad.output.code).toBe(1);
  expect(bad.output.said.at(-1)).toMatch(
    /the run is not clean: there is no checkpoint of the end: PLACE_FAILED/,
  );
});
