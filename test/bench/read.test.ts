/** The benchmark of readers at the size of a smoke. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { READ_OPTIONS } from '../../bench/read/options.js';
import { kintsugi } from '../cli/support.js';

it('a smoke reads every file, and says which peer is not there', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-read-test-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const json = join(directory, 'read.json');
  const flags = ['--smoke', '--quiet', '--python', '/nowhere/python', '--json', json];
  const output = await kintsugi(['bench', 'read', ...flags]);
  expect([output.code, output.stderr]).toEqual([0, '']);
  const report = JSON.parse(readFileSync(json, 'utf8')) as {
    goals: { name: string }[];
    skipped: string[];
    results: { name: string; values: Record<string, number> }[];
  };
  expect(report.skipped).toEqual([expect.stringContaining('duckdb')]);
  expect(report.goals.map(({ name }) => name)).toEqual(['Criteo TSV (MB per CPU second)']);
  const names = ['Criteo TSV', 'TSV, hashes', 'TSV, text', 'Criteo parquet', 'ratings parquet'];
  expect(report.results.map(({ name }) => name)).toEqual(names.flatMap((name) => [name, `${name}, bytes`]));
  for (const { values } of report.results) expect(values['this package']).toBeGreaterThan(0);
});

it('says what is wrong with its flags', () => {
  expect(READ_OPTIONS.parse({ smoke: true })).toMatchObject({ rows: 2000, rounds: 1, python: 'python3' });
  expect(() => READ_OPTIONS.parse({ rows: '0' })).toThrow(/--rows/);
});
