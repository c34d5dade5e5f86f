/** Checkpoints of whole jobs of real processes: made through kills, and left by a job that is killed. */
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { KilledReport } from '../../../src/fleet/local/killed.js';
import type { RunReport } from '../../../src/fleet/local/report.js';
import { listCheckpoints, readManifest } from '../../../src/stores/checkpoint/checkpoints.js';
import { openPlace } from '../../../src/stores/checkpoint/open.js';
import { verifyCheckpoint } from '../../../src/stores/checkpoint/verify.js';
import { writeDemoData } from '../../../src/training/loop/demo-data.js';
import { kintsugi, type Output } from '../../cli/support.js';

const MODEL = ['--dim', '8', '--bottom', '16-8', '--top', '16-1'];
const SHAPE = ['--ps', '3', '--code', '2+1', ...MODEL, '--range-batches', '2'];
let directory = '';
let data = '';
/** A job whose processes were all killed, and its checkpoints. */
let killed: Run<KilledReport>;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-checkpoints-'));
  data = join(directory, 'train.tsv');
  const test = join(directory, 'test.tsv');
  await writeDemoData({ train: data, test, rows: 6000, testRows: 10, keys: 3000, seed: 1 });
  const args = ['--every', '200ms', '--keep', '2', '--epochs', '3', '--kill', 'all@60%'];
  killed = await run('killed', args);
}, 120_000);
afterAll(() => rmSync(directory, { recursive: true, force: true }));

interface Run<T> {
  output: Output;
  report: T;
  place: string;
}

/** Runs a job that makes checkpoints in a place of this name. */
function run<T>(name: string, args: string[]): Promise<Run<T>> {
  return local(name, [...SHAPE, '--checkpoint', join(directory, name), ...args]);
}

async function local<T>(name: string, args: string[]): Promise<Run<T>> {
  const [json, place] = [join(directory, `${name}.json`), join(directory, name)];
  const output = await kintsugi(['local', '--data', data, ...args, '--json', json, '--quiet']);
  const report = existsSync(json) ? JSON.parse(readFileSync(json, 'utf8')) : undefined;
  return { output, report: report as T, place };
}

/** Runs a job whose place becomes a file as soon as a checkpoint is there. */
async function losingPlace<T>(name: string, args: string[]): Promise<Run<T>> {
  const place = join(directory, name);
  const running = run<T>(name, args);
  let hasEnded = false;
  void running.finally(() => {
    hasEnded = true;
  });
  const hasOne = () => existsSync(place) && readdirSync(place).some((each) => /^\d{6}$/.test(each));
  while (!hasEnded && !hasOne()) await pause(1);
  renameSync(place, `${place} before`);
  writeFileSync(place, '');
  return running;
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
  const kills = ['ps@20%', 'worker@40%', 'scheduler@60%'].flatMap((kill) => ['--kill', kill]);
  const args = ['--every', '300ms', '--keep', '1000', '--epochs', '4', ...kills, '--respawn', '200ms'];
  const { output, report, place } = await run<RunReport>('kills', args);
  expect(output).toMatchObject({ code: 0, stderr: '' });
  expect(report.samples).toMatchObject({ trained: 24_000, exactlyOnce: true });
  const { made, newest } = report.checkpoints!;
  const listed = await whole(place);
  expect(made.length).toBeGreaterThan(3);
  // A checkpoint is there, and was told to nobody, when the scheduler was killed after its manifest was
  // written.
  expect(listed).toEqual(expect.arrayContaining(made.map(({ number }) => number)));
  expect(listed.at(-1)).toBe(newest);
  const last = await verifyCheckpoint(await openPlace(place));
  expect(last.rows).toBeGreaterThan(0);
  // After the one of the end, scheduled ones go on until the scheduler has ended.
  expect(made.at(-1)!.number).toBeLessThanOrEqual(newest!);
});

test('a run whose processes are all killed says so, and leaves its checkpoints', async () => {
  const { output, report, place } = killed;
  expect(output).toMatchObject({ code: 137, stderr: '' });
  expect(output.stdout).toMatch(/^killed every process at 60 %, after [\d,]+ of 18,000 samples/);
  expect(report.killed).toMatchObject({ percent: 60, expected: 18_000 });
  expect(report.killed.samples).toBeGreaterThanOrEqual(0.6 * 18_000);
  const listed = await whole(place);
  expect(listed.length).toBeGreaterThan(0);
  expect(report.checkpoints!.newest).toBe(listed.at(-1));
});

test('a job that was killed goes on from its newest checkpoint, each sample exactly once', async () => {
  const place = join(directory, 'copy');
  cpSync(killed.place, place, { recursive: true });
  // On more PS, with one more parity, by one worker more, and killed once more.
  const shape = ['--ps', '4', '--code', '2+2', ...SHAPE.slice(4), '--workers', '3', '--epochs', '3'];
  const again = ['--restore', place, '--checkpoint', place, '--every', '200ms', '--kill', 'all@80%'];
  const twice = await local<KilledReport>('again', [...shape, ...again]);
  expect(twice.output).toMatchObject({ code: 137, stderr: '' });
  const { newest } = twice.report.checkpoints!;
  expect(newest).toBeGreaterThan(killed.report.checkpoints!.newest!);
  await whole(place);

  const { output, report } = await local<RunReport>('end', [...shape, '--restore', `${place}@${newest}`]);
  expect(output).toMatchObject({ code: 0, stderr: '' });
  const { samples, pushes, parity, restored } = report;
  expect(samples).toMatchObject({ trained: 18_000, expected: 18_000, exactlyOnce: true, problems: [] });
  expect(pushes).toMatchObject({ lost: 0, duplicated: 0 });
  expect(parity).toMatchObject({ mismatched: 0, blocksUnprotected: 0 });
  // How much of the data that was is a matter of when the checkpoint was made.
  const { samples: saved } = await readManifest(await openPlace(place), newest!);
  const before = saved!.datasets.flatMap((each) => each.samples).reduce((sum, each) => sum + each, 0);
  expect(restored).toMatchObject({ place, number: newest, samples: before });
}, 120_000);

test('a checkpoint that is damaged is refused with the name of the file', async () => {
  const place = join(directory, 'damaged');
  cpSync(killed.place, place, { recursive: true });
  const restore = async () => (await local('refused', [...SHAPE, '--restore', place])).output;
  const { shards } = await readManifest(await openPlace(place));
  const [one, other] = shards.map(({ segments }) => segments.at(-1)!.name);
  const file = join(place, one!);
  const bytes = readFileSync(file);
  const refused = (problem: RegExp) => ({
    code: 2,
    said: [expect.stringMatching(new RegExp(`^kintsugi: BAD_CHECKPOINT: .*${one}: ${problem.source}`))],
  });

  unlinkSync(file);
  expect(await restore()).toMatchObject(refused(/the file is missing/));
  writeFileSync(file, bytes.subarray(1));
  expect(await restore()).toMatchObject(refused(/\d+ bytes where/));
  bytes[bytes.length - 5]! ^= 1;
  writeFileSync(file, bytes);
  expect(await restore()).toMatchObject(refused(/its content does not match/));
  writeFileSync(file, readFileSync(join(place, other!)));
  expect(await restore()).toMatchObject(refused(/(its content does not match|\d+ bytes where)/));
  const none = await local('none', [...SHAPE, '--restore', `${place}@77`]);
  expect(none.output).toMatchObject({ code: 2, said: [expect.stringMatching(/CHECKPOINT_MISSING/)] });
});

test('a job of another shape goes on from a checkpoint, and says what is trained again', async () => {
  const other = ['--ps', '5', '--code', '3+1', ...SHAPE.slice(4), '--epochs', '3'];
  const { output, report } = await local<RunReport>('other', [...other, '--restore', killed.place]);
  expect(output).toMatchObject({ code: 0, stderr: '' });
  expect(report.samples).toMatchObject({ trained: 18_000, exactlyOnce: null, problems: [] });
  expect(report.parity).toMatchObject({ mismatched: 0, blocksUnprotected: 0 });
  expect(report.restored).toMatchObject({ atLeastOnce: true });
}, 120_000);

test('from a cut of one instant it ends with the same bits as a run that nobody killed', async () => {
  const exact = ['--workers', '1', '--deterministic', '--barrier', '--every', '200ms', '--epochs', '2'];
  const quiet = await run<RunReport>('quiet', exact);
  expect(quiet.output).toMatchObject({ code: 0, stderr: '' });
  const { place, output } = await run<KilledReport>('instant', [...exact, '--kill', 'all@60%']);
  expect(output).toMatchObject({ code: 137, stderr: '' });
  const other = ['--ps', '5', '--code', '3+1', ...SHAPE.slice(4), ...exact];
  const again = await local<RunReport>('reshaped', [...other, '--restore', place, '--checkpoint', place]);
  expect(again.output).toMatchObject({ code: 0, stderr: '' });
  expect(again.report.restored).toMatchObject({ atLeastOnce: false });
  expect(again.report.samples).toMatchObject({ trained: 12_000, problems: [] });
  expect(again.report.digest).toEqual(quiet.report.digest);
}, 180_000);

test('a run without checkpoints that is killed leaves nothing', async () => {
  const args = ['local', '--data', data, ...SHAPE, '--kill', 'all@50%', '--quiet'];
  const output = await kintsugi(args);
  expect(output).toMatchObject({ code: 137, stderr: '' });
  // Two lines tell of the kill and the goodput, and none of checkpoints.
  const lines = output.stdout.trim().split('\n');
  expect(lines).toEqual([expect.stringContaining('killed'), expect.stringMatching(/^goodput /)]);
});

test('at its end a last checkpoint is made; a place that refuses it is told', async () => {
  const good = await run<RunReport>('good', ['--every', '0s']);
  expect(good.output).toMatchObject({ code: 0, stderr: '' });
  expect(good.report.checkpoints).toMatchObject({ made: [{ number: 1 }], failed: [], newest: 1 });
  expect(good.output.stdout).toContain('checkpoints 1 made');
  expect(await whole(good.place)).toEqual([1]);
  // A file where the directory should be is told before anything is trained.
  const refused = await run<RunReport>('good.json', ['--every', '0s']);
  expect(refused.output).toMatchObject({ code: 2, stdout: '' });
  expect(refused.output.said.at(-1)).toMatch(/^kintsugi: PLACE_FAILED: nothing can be written to this place/);
  // A place that is lost while the job trains: also when the run is killed, it is told how it ended.
  const often = ['--every', '50ms', '--epochs', '4'];
  const end = await losingPlace<KilledReport>('lost', [...often, '--kill', 'all@90%']);
  expect(end.output).toMatchObject({ code: 137, stderr: '' });
  expect(end.output.stdout).toMatch(/checkpoints \d+ made/);
  const bad = await losingPlace<RunReport>('lost too', often);
  expect(bad.output.code).toBe(1);
  expect(bad.output.said.at(-1)).toMatch(
    /^kintsugi: PLACE_FAILED: the run is not clean: there is no checkpoint of the end: PLACE_FAILED/,
  );
}, 120_000);
