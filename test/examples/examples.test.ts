/** The programs of examples/ run as they stand, against the compiled package under its own name. */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { writeDemoData } from '../../src/train/demo-data.js';
import { kintsugi } from '../cli/support.js';

const EXAMPLES = fileURLToPath(new URL('../../examples', import.meta.url));
let directory = '';

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-examples-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

function example(name: string, ...args: string[]): Promise<{ code: number | null; stdout: string }> {
  const child = spawn(process.execPath, [join(EXAMPLES, name), ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let stdout = '';
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString();
  });
  return new Promise((resolve) => child.on('close', (code) => resolve({ code, stdout })));
}

test('the library: a PS is lost between two pushes, and every value is right', async () => {
  expect(await example('quickstart.mjs')).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('16000 values pulled, 0 of them wrong'),
  });
});

test('a model of your own trains in a job that loses a PS, and predicts better than chance', async () => {
  const [train, tested, json] = ['train.tsv', 'test.tsv', 'report.json'].map((name) => join(directory, name));
  await writeDemoData({ train: train!, test: tested!, rows: 4000, testRows: 1000, keys: 2000, seed: 1 });
  const model = ['--model', join(EXAMPLES, 'logistic.mjs'), '--lr', '0.1'];
  const data = ['--data', train!, '--test', tested!, '--json', json!, '--quiet'];
  const shape = ['--ps', '3', '--code', '2+1', '--workers', '1', '--kill', 'ps@50%'];
  const run = await kintsugi(['local', ...data, ...shape, ...model]);
  expect(run.said).toEqual([]);
  expect(run.code).toBe(0);
  const report = JSON.parse(readFileSync(json!, 'utf8')) as { testAuc: number; pushes: object };
  expect(report.pushes).toMatchObject({ lost: 0, duplicated: 0 });
  expect(report.testAuc).toBeGreaterThan(0.55);
});

test('online learning: every click of the stream is trained, and the loss falls', async () => {
  const { code, stdout } = await example('online-learning.mjs', '5000');
  expect(code).toBe(0);
  expect(stdout).toContain('trained 5000 clicks');
  const [, first, last] = /loss ([\d.]+) at first, ([\d.]+) at the end/.exec(stdout)!;
  expect(Number(last)).toBeLessThan(Number(first));
});

test('recovery: no value that is pulled around a loss is wrong, and redundancy is back', async () => {
  const { code, stdout } = await example('recovery.mjs', '5000');
  expect(code).toBe(0);
  const report = JSON.parse(stdout) as Record<string, number>;
  expect(report).toMatchObject({ rows: 5000, wrong: 0 });
  expect(report.pulls).toBeGreaterThan(0);
  expect(report.redundantMs).toBeGreaterThan(0);
});

test('no example is left out', async () => {
  const programs = (await readdir(EXAMPLES)).filter((name) => name.endsWith('.mjs'));
  expect(programs.sort()).toEqual([
    'logistic.mjs',
    'online-learning.mjs',
    'quickstart.mjs',
    // test/checkpoint/reader.test.ts runs it.
    'read-checkpoint.mjs',
    'recovery.mjs',
  ]);
});
