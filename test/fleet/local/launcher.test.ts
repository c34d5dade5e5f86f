/** Whole jobs as real processes: a kill costs no bit, and nothing is left behind whatever happens. */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import type { RunReport } from '../../../src/fleet/local/report.js';
import { writeDemoData } from '../../../src/training/loop/demo-data.js';
import { kintsugi, type Running, start } from '../../cli/support.js';

const CLUSTER = ['--ps', '3', '--code', '2+1', '--dim', '8', '--bottom', '16-8', '--top', '16-1'];
let directory = '';
let data: string[] = [];

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-local-'));
  const [train, held] = [join(directory, 'train.tsv'), join(directory, 'test.tsv.gz')];
  await writeDemoData({ train, test: held, rows: 6000, testRows: 500, keys: 5000, seed: 1 });
  data = ['--data', train, '--test', held];
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

async function run(name: string, args: string[], samples = '6,000'): Promise<RunReport> {
  const json = join(directory, `${name}.json`);
  const output = await kintsugi(['local', ...data, ...CLUSTER, ...args, '--json', json, '--quiet']);
  expect(output.stderr).toBe('');
  expect(output.code).toBe(0);
  expect(output.stdout).toContain(`trained ${samples} samples`);
  return JSON.parse(readFileSync(json, 'utf8')) as RunReport;
}

function expectClean({ pushes, parity, samples }: RunReport): void {
  const expected = 6000 * samples.epochs;
  expect(samples).toMatchObject({ expected, trained: expected, exactlyOnce: true });
  expect(pushes.acked).toBeGreaterThan(0);
  expect(pushes).toMatchObject({ lost: 0, duplicated: 0 });
  expect(parity).toMatchObject({ mismatched: 0, blocksUnprotected: 0, blocksChecked: parity.blocksExpected });
  expect(parity.blocksExpected).toBeGreaterThan(0);
}

test('a killed PS changes no bit of a deterministic run', async () => {
  const deterministic = ['--workers', '1', '--deterministic'];
  const quiet = await run('quiet', deterministic);
  expectClean(quiet);
  expect(quiet.failures).toEqual([]);
  expect(quiet.testAuc).toBeGreaterThan(0.5);
  const killed = await run('killed', [...deterministic, '--kill', 'ps:1@40%', '--respawn', '200ms']);
  expectClean(killed);
  expect(killed.digest).toBe(quiet.digest);
  expect(killed.testAuc).toBe(quiet.testAuc);
  expect(killed.redundancy).toBe('full');
  const [failure] = killed.failures;
  expect(failure?.node).toBe('ps-1');
  for (const field of ['detectedMs', 'keysReadyMs', 'redundantMs'] as const)
    expect(failure?.[field], field).toBeGreaterThan(0);
  expect(failure?.blocksLost).toBeGreaterThan(0);
  expect(killed.nodes.map((node) => node.id)).toEqual(['ps-0', 'ps-1', 'ps-2']);
});

test.skipIf(!existsSync('/dev/full'))(
  'a run whose --log cannot be written goes on, and says so once',
  async () => {
    const log = join(directory, 'full.log');
    symlinkSync('/dev/full', log);
    const { code, stderr } = await kintsugi(['local', ...data, ...CLUSTER, '--log', log]);
    expect(code).toBe(0);
    expect(stderr.match(/--log .*/g)).toEqual([
      `--log ${log} is not complete: ENOSPC: no space left on device, write`,
    ]);
  },
);

test('two workers train on through the loss of a PS and of the scheduler', async () => {
  const report = await run('both', ['--kill', 'scheduler@20%', '--kill', 'ps@60%', '--respawn', '200ms']);
  expectClean(report);
  expect(report.failures.map((failure) => failure.node)[0]).toBe('scheduler');
  expect(report.failures[1]?.node).toMatch(/^ps-[0-2]$/);
  expect(report.failures[1]?.detectedMs).toBeGreaterThan(0);
});

test('growing far and shrinking again changes no bit of a deterministic run', async () => {
  const deterministic = ['--workers', '1', '--deterministic', '--epochs', '3'];
  const quiet = await run('three', deterministic, '18,000');
  const scales = ['--scale', 'ps=7@20%', '--scale', 'ps=3@60%'];
  const scaled = await run('scaled', [...deterministic, ...scales], '18,000');
  expectClean(scaled);
  expect(scaled.digest).toBe(quiet.digest);
  expect(scaled.testAuc).toBe(quiet.testAuc);
  expect(scaled.scalings).toMatchObject([
    { from: 3, to: 7, ok: true },
    { from: 7, to: 3, ok: true },
  ]);
  for (const { shardsMoved, shareMoved, bytesMoved } of scaled.scalings) {
    expect(shardsMoved).toBeGreaterThan(0);
    expect(bytesMoved).toBeGreaterThan(0);
    // Four of seven nodes are new, or leave: 4/7 of the shards, and a few for what no move can even out.
    expect(shareMoved).toBeLessThan(0.75);
  }
  expect(scaled.nodes.map((node) => node.id)).toEqual(['ps-0', 'ps-1', 'ps-2']);
  expect(scaled.failures).toEqual([]);
});

// ---- what is kept

test.each([
  ['is not empty', /BAD_ARGUMENT: --save .*\/used: .*is not empty/],
  ['is a file', /PLACE_FAILED: --save .*\/used: /],
  ['is where checkpoints go', /BAD_ARGUMENT: --save .*\/used: .*--checkpoint/],
])('a place for the tables that %s is refused before anything is started', async (what, message) => {
  const place = join(mkdtempSync(join(directory, 'place-')), 'used');
  if (what === 'is a file') writeFileSync(place, '');
  else mkdirSync(place);
  if (what === 'is not empty') writeFileSync(join(place, 'y'), '');
  const checkpoint = what === 'is where checkpoints go' ? ['--checkpoint', `${place}/`] : [];
  const output = await kintsugi(['local', ...data, ...CLUSTER, '--save', place, ...checkpoint]);
  expect(output).toMatchObject({ code: 2, stdout: '', said: [expect.stringMatching(message)] });
});

test('tables that cannot be saved at the end do not cost the report', async () => {
  const place = join(directory, 'taken');
  const json = join(directory, 'taken.json');
  const running = start(['local', ...data, ...CLUSTER, '--save', place, '--json', json]);
  onTestFinished(() => void running.process.kill('SIGINT'));
  await running.line((line) => / PS are up/.test(line));
  writeFileSync(join(place, 'other'), '');
  const output = await running.ended;
  expect(output.stdout).toContain('trained 6,000 samples');
  expect(output.stdout).toMatch(/^saved +nothing/m);
  expect(output.said.at(-1)).toMatch(
    /^kintsugi: BAD_ARGUMENT: the run is not clean: nothing is saved in .*is not empty.*; train again$/,
  );
  expect(output.code).toBe(1);
  expect(JSON.parse(readFileSync(json, 'utf8'))).toMatchObject({ saved: { place, code: 'BAD_ARGUMENT' } });
});

// ---- how it ends

interface Started extends Running {
  log: string;
  /** Ids of the processes that the launcher has started, by name. */
  pids(): Map<string, number>;
}

/** A run that would take for ever, once a worker trains. */
async function endless(name: string): Promise<Started> {
  const log = join(directory, `${name}.log`);
  // A launcher that is killed cannot clean up: what it leaves goes with the test's own directory.
  const running = start(['local', ...data, ...CLUSTER, '--epochs', '100000', '--log', log], {
    TMPDIR: directory,
  });
  await running.line((line) => / of [\d,]+ samples/.test(line));
  return { ...running, log, pids: () => pidsIn(log) };
}

/** Records of one kind in the log of a launcher. */
function recordsIn(log: string, event: string): { name: string; pid: number }[] {
  return (existsSync(log) ? readFileSync(log, 'utf8') : '')
    .split('\n')
    .filter((line) => line.includes(`"event":"${event}"`))
    .map((line) => JSON.parse(line) as { name: string; pid: number });
}

/** Ids of the newest processes in the log of a launcher, by name. */
function pidsIn(log: string): Map<string, number> {
  return new Map(recordsIn(log, 'process.started').map(({ name: who, pid }) => [who, pid]));
}

/** Waits until a worker trains. One that ends before is not started again: its run fails. */
async function untilTraining(log: string, worker: string): Promise<void> {
  const names = () => recordsIn(log, 'worker.training').map(({ name }) => name);
  await expect.poll(names, { timeout: 30_000 }).toContain(worker);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

async function expectAllGone(pids: Map<string, number>): Promise<void> {
  expect([...pids.keys()].sort()).toEqual(['ps-0', 'ps-1', 'ps-2', 'scheduler', 'worker-0', 'worker-1']);
  await expect
    .poll(() => [...pids].filter(([, pid]) => isAlive(pid)).map(([who]) => who), { timeout: 20_000 })
    .toEqual([]);
}

test('Ctrl-C leaves no process behind', async () => {
  const running = await endless('interrupted');
  const pids = running.pids();
  running.process.kill('SIGINT');
  const output = await running.ended;
  expect(output.code).toBe(1);
  expect(output.said.at(-1)).toBe('kintsugi: ABORTED: interrupted');
  await expectAllGone(pids);
});

test('the processes of a launcher that was killed leave by themselves', async () => {
  const running = await endless('orphaned');
  const pids = running.pids();
  running.process.kill('SIGKILL');
  await running.ended;
  await expectAllGone(pids);
});

test('a process that dies unasked is started again, up to a limit that names it', async () => {
  const running = await endless('broken');
  await untilTraining(running.log, 'worker-1');
  for (let crash = 1; crash <= 5; crash++) {
    const last = running.pids().get('worker-1')!;
    process.kill(last, 'SIGKILL');
    if (crash === 5) break;
    const pause = `${100 * 2 ** (crash - 1)} ms`;
    await running.line((line) =>
      line.startsWith(`worker-1 was ended by SIGKILL unasked; it is started again after ${pause}`),
    );
    await running.line((line) => line === 'worker-1 was started again', crash - 1);
  }
  const output = await running.ended;
  expect(output.code).toBe(1);
  expect(output.said.at(-1)).toMatch(
    /^kintsugi: INTERNAL: worker-1 was ended by SIGKILL unasked.*it has crashed 5 times in a row$/,
  );
  await expectAllGone(running.pids());
});

test('a scheduler, a PS and a worker that crash cost no sample', async () => {
  const json = join(directory, 'crashed.json');
  const log = join(directory, 'crashed.log');
  const running = start(['local', ...data, ...CLUSTER, '--epochs', '20', '--log', log, '--json', json]);
  onTestFinished(() => void running.process.kill('SIGINT'));
  await running.line((line) => / of [\d,]+ samples/.test(line));
  await untilTraining(log, 'worker-0');
  for (const name of ['scheduler', 'ps-1', 'worker-0']) {
    process.kill(pidsIn(log).get(name)!, 'SIGKILL');
    await running.line((line) => line.startsWith(`${name} was started again`));
  }
  const output = await running.ended;
  expect(output).toMatchObject({ code: 0, stdout: expect.stringMatching(/^crashed +at .* worker-0 was/m) });
  const report = JSON.parse(readFileSync(json, 'utf8')) as RunReport;
  expectClean(report);
  expect(report.crashes.map(({ process: name, signal }) => [name, signal])).toEqual([
    ['scheduler', 'SIGKILL'],
    ['ps-1', 'SIGKILL'],
    ['worker-0', 'SIGKILL'],
  ]);
});

test('a role with a wrong flag is not started again', async () => {
  const output = await kintsugi(['local', ...data, ...CLUSTER, '--memory', '1B', '--quiet']);
  expect(output.said.at(-1)).toMatch(/^kintsugi: [A-Z_]+: /);
  expect(output.stderr).not.toContain('started again');
});
