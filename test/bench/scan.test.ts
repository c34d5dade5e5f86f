/** The benchmark of scans at the size of a smoke. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { SCAN_OPTIONS } from '../../bench/scan/options.js';
import { kintsugi } from '../cli/support.js';

it('a smoke sees every row once, and what it saved is what it loads', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-scan-test-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const json = join(directory, 'scan.json');
  const flags = ['--smoke', '--quiet', '--dir', directory, '--json', json];
  const output = await kintsugi(['bench', 'scan', ...flags]);
  expect([output.code, output.stderr]).toEqual([0, '']);
  const report = JSON.parse(readFileSync(json, 'utf8')) as {
    goals: { name: string; value: number; met: boolean }[];
    results: { name: string; values: { peak: number } }[];
  };
  expect(report.goals.map(({ name, met }) => [name, met])).toEqual([
    ['rows given once by each scan', true],
    ['rows saved', true],
    ['wrong parity blocks', true],
    ['digests that differ', true],
  ]);
  expect(report.results).toHaveLength(10);
  for (const { values } of report.results) expect(values.peak).toBeGreaterThan(20);
});

it('says what is wrong with its flags', () => {
  expect(SCAN_OPTIONS.parse({ smoke: true })).toMatchObject({ rows: 20_000, dim: 8, groups: 4 });
  expect(() => SCAN_OPTIONS.parse({ dim: '0' })).toThrow(/--dim/);
  expect(() => SCAN_OPTIONS.parse({ rows: 'x' })).toThrow(/--rows/);
});
