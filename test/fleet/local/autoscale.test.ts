/**
 * `kintsugi local --autoscale`, as real processes. What is tested is what the job is in the end, and what was
 * decided on the way; how soon is for benchmarks. The jobs run at once: their workers wait, most of the time.
 */

import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import type { RunReport } from '../../../src/fleet/local/report.js';
import { writeDemoData } from '../../../src/training/loop/demo-data.js';
import { kintsugi, start } from '../../cli/support.js';

vi.setConfig({ testTimeout: 400_000 });

const MODEL = fileURLToPath(new URL('../../../dist/bench/common/waiting-model.js', import.meta.url));
const MIB = 2 ** 20;
let directory = '';
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-autoscale-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

async function dataOf(name: string, rows: number, keys: number): Promise<string> {
  const train = join(directory, `${name}.tsv`);
  await writeDemoData({ train, rows, keys, seed: 1 });
  return train;
}

const args = (data: string, waitMs: number, ...more: string[]): string[] => [
  ...['local', '--data', data, '--code', '2+1', '--batch', '64', '--model', MODEL],
  ...['--model-option', `waitMs=${waitMs}`, '--quiet', ...more],
];

function expectExact({ samples, pushes, parity, redundancy }: RunReport, rows: number): void {
  expect(samples).toMatchObject({ expected: rows, trained: rows, exactlyOnce: true, problems: [] });
  expect(pushes).toMatchObject({ lost: 0, duplicated: 0 });
  expect(parity.mismatched).toBe(0);
  expect(redundancy).toBe('full');
}

test.concurrent('a table that outgrows 4 PS of 64 MiB gets more PS before their memory ends', async () => {
  const rows = 34_000;
  const json = join(directory, 'grows.json');
  const data = await dataOf('grows', rows, 3e6);
  const bounds = ['--memory', '64MiB', '--autoscale', 'ps=4..8,workers=1'];
  const run = await kintsugi(args(data, 60, '--dim', '128', ...bounds, '--json', json));
  expect(run.said).toEqual([]);
  expect(run.code).toBe(0);
  const report = JSON.parse(readFileSync(json, 'utf8')) as RunReport;
  expectExact(report, rows);
  // More than the first four could have held.
  expect(report.nodes.reduce((sum, { bytes }) => sum + bytes, 0)).toBeGreaterThan(4 * 64 * MIB);
  const [first] = report.autoscale!;
  expect(first).toMatchObject({ kind: 'ps', from: 4, problem: null });
  expect(first!.reason).toMatch(/^the memory of the fullest PS lasts|^the fullest PS/);
  expect(first!.to).toBeGreaterThan(4);
  expect(run.stdout).toContain('the autoscaler decided');
  expect(run.stdout).toMatch(/\n *\d+\.\d s +\d+\.\d\d s +4 to \d PS: the /);
});

test.concurrent('a job with too few workers gets another one, which trains', async () => {
  const rows = 40_000;
  const json = join(directory, 'workers.json');
  const data = await dataOf('workers', rows, 5000);
  const bounds = ['--dim', '8', '--autoscale', 'ps=3,workers=1..2', '--log', join(directory, 'workers.log')];
  const run = await kintsugi(args(data, 100, ...bounds, '--json', json));
  expect(run.said).toEqual([]);
  expect(run.code).toBe(0);
  const report = JSON.parse(readFileSync(json, 'utf8')) as RunReport;
  expectExact(report, rows);
  expect(report.autoscale![0]).toMatchObject({ kind: 'workers', from: 1, to: 2, problem: null });
  const records = readFileSync(join(directory, 'workers.log'), 'utf8').split('\n');
  const finished = records.filter((line) => line.includes('"worker.range"') && line.includes('worker-1'));
  expect(finished.length).toBeGreaterThan(0);
});

test.concurrent('a worker that is stopped now and then is replaced', async () => {
  const rows = 60_000;
  const json = join(directory, 'slow.json');
  const log = join(directory, 'slow.log');
  const data = await dataOf('slow', rows, 5000);
  const bounds = ['--dim', '8', '--autoscale', 'ps=3,workers=3', '--json', json, '--log', log];
  const run = start(args(data, 150, ...bounds));
  const told = (): Record<string, unknown>[] =>
    !existsSync(log)
      ? []
      : readFileSync(log, 'utf8')
          .split('\n')
          .filter((line) => /"process\.started"|"worker\.training"/.test(line))
          .map((line) => JSON.parse(line) as Record<string, unknown>);
  let over = false;
  void run.ended.then(() => {
    over = true;
  });
  const pidOf = (name: string) =>
    told().find((each) => each.event === 'process.started' && each.name === name)?.pid as number | undefined;
  const trains = () => told().some((each) => each.event === 'worker.training' && each.name === 'worker-1');
  while (!over && !trains()) await pause(100);
  const victim = pidOf('worker-1')!;
  // Until there is one in its place. A process that is gone takes no signal.
  const signal = (name: NodeJS.Signals): boolean => {
    try {
      return process.kill(victim, name);
    } catch {
      return false;
    }
  };
  while (!over && pidOf('worker-3') === undefined && signal('SIGSTOP')) {
    await pause(1200);
    signal('SIGCONT');
    await pause(300);
  }
  signal('SIGCONT');
  const { code, said } = await run.ended;
  expect({ code, said }).toEqual({ code: 0, said: [] });
  const report = JSON.parse(readFileSync(json, 'utf8')) as RunReport;
  expectExact(report, rows);
  expect(report.autoscale!.find(({ kind }) => kind === 'replace')).toMatchObject({
    decision: expect.stringMatching(/^replace worker-1: its samples took more than/) as string,
    problem: null,
  });
});

test.each([
  [['--autoscale', 'ps=2..4,workers=1', '--ps', '3'], 'NOT_ENOUGH_NODES', /from 2 PS on: code 2\+1 needs 3/],
  [['--autoscale', 'ps=3..4,workers=1', '--ps', '5'], 'BAD_ARGUMENT', /--ps 5 is outside of/],
  [['--autoscale', 'workers=3..4'], 'BAD_ARGUMENT', /must be ps=LEAST\.\.MOST,workers=/],
  [['--autoscale', 'ps=4..3,workers=1'], 'BAD_ARGUMENT', /for example ps=4\.\.8,workers=1\.\.4/],
  [['--autoscale', 'ps=3,workers=1', '--scale', 'ps=4@50%'], 'BAD_ARGUMENT', /exclude each other/],
])('refuses %j', async (flags, name, message) => {
  const data = await dataOf('refused', 10, 100);
  const run = await kintsugi(args(data, 0, '--dim', '8', ...flags));
  expect(run.said.join('\n')).toMatch(new RegExp(`^kintsugi: ${name}: `));
  expect(run.said.join('\n')).toMatch(message);
  expect(run.code).toBe(2);
});
