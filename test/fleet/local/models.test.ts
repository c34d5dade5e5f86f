/**
 * A whole job of a built-in model whose rows are wider than an embedding: a PS is lost, and it learns. What
 * the others learn is in test/training/loop/quality.test.ts.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { RunReport } from '../../../src/fleet/local/report.js';
import { writeDemoData } from '../../../src/training/loop/demo-data.js';
import { kintsugi } from '../../cli/support.js';

const ROWS = 4000;
let directory = '';
let data: string[] = [];

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-models-'));
  const [train, tested] = [join(directory, 'train.tsv'), join(directory, 'test.tsv')];
  await writeDemoData({ train, test: tested, rows: ROWS, testRows: 2000, keys: 1000, seed: 1 });
  data = ['--data', train, '--test', tested];
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

test('DeepFM', async () => {
  const json = join(directory, 'report.json');
  const shape = ['--ps', '3', '--code', '2+1', '--workers', '1', '--dim', '8', '--top', '32-1'];
  const flags = ['--model-name', 'deepfm', '--batch', '64', '--kill', 'ps@50%', '--respawn', '200ms'];
  const output = await kintsugi(['local', ...data, ...shape, ...flags, '--json', json, '--quiet']);
  expect([output.code, output.said]).toEqual([0, []]);
  const report = JSON.parse(readFileSync(json, 'utf8')) as RunReport;
  expect(report.samples).toMatchObject({ expected: ROWS, trained: ROWS, exactlyOnce: true });
  expect(report.pushes).toMatchObject({ lost: 0, duplicated: 0 });
  expect(report.failures).toHaveLength(1);
  // Chance is 0.5.
  expect(report.testAuc).toBeGreaterThan(0.6);
}, 60_000);
