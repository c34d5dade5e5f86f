/**
 * Workers as real processes that come and go: every sample of every epoch is trained exactly once all the
 * same.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { RunReport } from '../../../src/fleet/local/report.js';
import { startLocalCluster } from '../../../src/roles/cluster.js';
import { writeDemoData } from '../../../src/training/loop/demo-data.js';
import { kintsugi, type Output, record, start } from '../../cli/support.js';

const ROWS = 6000;
const MODEL = ['--dim', '8', '--bottom', '16-8', '--top', '16-1', '--batch', '64'];
const CLUSTER = ['--ps', '3', '--code', '2+1', ...MODEL];
let directory = '';
let data = '';

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-workers-'));
  data = join(directory, 'train.tsv');
  await writeDemoData({ train: data, rows: ROWS, keys: 5000, seed: 1 });
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

async function run(
  name: string,
  args: string[],
  file = data,
): Promise<{ output: Output; report: () => RunReport }> {
  const json = join(directory, `${name}.json`);
  const output = await kintsugi(['local', '--data', file, ...CLUSTER, ...args, '--json', json, '--quiet']);
  return { output, report: () => JSON.parse(readFileSync(json, 'utf8')) as RunReport };
}

function expectExact({ samples, pushes, parity }: RunReport, epochs: number): void {
  const expected = ROWS * epochs;
  expect(samples).toMatchObject({
    ...{ inFiles: ROWS, epochs, expected, trained: expected, setAside: 0, exactlyOnce: true, problems: [] },
  });
  expect(pushes).toMatchObject({ lost: 0, duplicated: 0 });
  expect(parity.mismatched).toBe(0);
}

test('killed workers cost no sample: one returns, one does not, and a PS dies meanwhile', async () => {
  const kills = ['--kill', 'worker-1@30%', '--kill', 'ps@45%', '--kill', 'worker@60%', '--respawn', '200ms'];
  const { output, report } = await run('killed', ['--epochs', '2', '--workers', '3', ...kills]);
  expect(output.stderr).toBe('');
  expect(output.code).toBe(0);
  expect(output.stdout).toContain('each exactly once');
  expectExact(report(), 2);
  // A process that is down when its turn comes is killed when it is back, so the order is not certain.
  const { failures, goodput } = report();
  expect(output.stdout).toMatch(/^goodput +\d+\.\d %/m);
  expect(goodput.productiveSeconds).toBeGreaterThan(0);
  expect(goodput.ratio).toBeCloseTo(goodput.productiveSeconds / goodput.allocatedSeconds, 10);
  expect(goodput.ratio).toBeLessThan(1);
  expect(failures.map(({ node }) => node.slice(0, 3)).sort()).toEqual(['ps-', 'wor', 'wor']);
  for (const { node, detectedMs } of failures) expect(detectedMs, node).toBeGreaterThan(0);
  const never = await run('never', ['--kill', 'worker@50%', '--respawn', 'never']);
  expect(never.output.code).toBe(0);
  expectExact(never.report(), 1);
});

test('with a bound on staleness, and in step, nobody waits for a worker that died', async () => {
  for (const mode of [['--staleness', '3'], ['--sync']]) {
    const { output, report } = await run('stale', [...mode, '--kill', 'worker@50%', '--respawn', 'never']);
    expect(output.stderr).toBe('');
    expect(output.code).toBe(0);
    expectExact(report(), 1);
  }
});

test('without any worker left the run ends and says so', async () => {
  const kills = ['--kill', 'worker-0@20%', '--kill', 'worker-1@20%', '--respawn', 'never', '--epochs', '50'];
  const { output } = await run('none', kills);
  expect(output.code).toBe(1);
  expect(output.said.at(-1)).toMatch(
    /^kintsugi: ABORTED: no worker is left: [\d,]+ of 300,000 samples were trained/,
  );
});

test('samples that cannot be trained are set aside, named, and make the run fail', async () => {
  const lines = readFileSync(data, 'utf8').split('\n');
  const file = join(directory, 'bad.tsv');
  writeFileSync(file, lines.with(4000, 'oops').join('\n'));
  const { output, report } = await run('aside', ['--workers', '1'], file);
  expect(output.code).toBe(1);
  expect(output.said.at(-1)).toMatch(/set aside: batch \d+ failed 3 times: .*bad\.tsv:4001:/);
  const { samples, pushes } = report();
  expect(samples).toMatchObject({ setAside: 1, exactlyOnce: false, inFiles: ROWS });
  expect(samples.trained).toBeLessThan(ROWS);
  expect(samples.trained).toBeGreaterThan(ROWS - 1000);
  expect(pushes).toMatchObject({ lost: 0, duplicated: 0 });
});

test('a worker told to end finishes its batch, hands back, ends by the signal; another resumes', async () => {
  const cluster = await startLocalCluster({ ps: 3, code: '2+1' });
  try {
    const worker = ['worker', '--scheduler', cluster.address, '--data', data, ...MODEL, '--epochs', '3'];
    const first = start([...worker, '--log-format', 'json']);
    await record(first, 'worker.progress');
    first.process.kill('SIGTERM');
    const stopped = await first.ended;
    expect(stopped.said).toEqual([]);
    expect(stopped.signal).toBe('SIGTERM');
    const ranges = (output: Output) =>
      output.stderr
        .split('\n')
        .filter((line) => line.includes('"event":"worker.range"'))
        .map(
          (line) => JSON.parse(line) as { outcome: string; done: number; samples: number; redone: number },
        );
    const returned = ranges(stopped).filter(({ outcome }) => outcome === 'returned');
    expect(returned).toHaveLength(1);
    const second = await kintsugi([...worker, '--log-format', 'json']);
    expect(second.code).toBe(0);
    const finished = [...ranges(stopped), ...ranges(second)].filter(({ outcome }) => outcome === 'finished');
    expect(finished.reduce((sum, { samples }) => sum + samples, 0)).toBe(3 * ROWS);
    // Ranges that were handed back were durable as far as they went: nothing of them is done again.
    expect(finished.reduce((sum, { redone }) => sum + redone, 0)).toBe(0);
    // All is trained: a worker that comes now has nothing to do.
    const third = await kintsugi([...worker, '--log-format', 'json']);
    expect(third.code).toBe(0);
    expect(ranges(third)).toEqual([]);
    const other = await kintsugi([...worker.slice(0, -1), '4', '--log-format', 'json']);
    expect(other.code).toBe(2);
    expect(other.said.at(-1)).toMatch(/BAD_ARGUMENT: data set "train" of this job has epochs 3, not 4/);
  } finally {
    await cluster.close();
  }
});
