/** Whole jobs over a schema: every format gives the same bits, and through kills each sample counts once. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { RunReport } from '../../../src/fleet/local/report.js';
import { kintsugi } from '../../cli/support.js';
import { type FormatName, samples, WRITTEN, writeSamples } from '../../data/samples.js';

const ROWS = 2000;
/** One format of each kind; the others differ by their reader alone (test/data). */
const FORMATS = ['a.csv', 'a.tsv.zst', 'a.jsonl', 'a.parquet'] as const satisfies FormatName[];
const CLUSTER = ['--ps', '3', '--code', '2+1', '--dim', '8', '--bottom', '16-8', '--top', '16-1'];
const BATCHES = ['--batch', '32'];
let directory = '';
let schema = '';

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-schema-'));
  schema = join(directory, 'schema.json');
  writeFileSync(schema, JSON.stringify(WRITTEN));
  for (const name of FORMATS) writeSamples(directory, name, samples(ROWS));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

async function run(name: FormatName, args: string[]): Promise<RunReport> {
  const json = join(directory, 'report.json');
  const data = ['--data', join(directory, name), '--test', join(directory, name), '--schema', schema];
  const output = await kintsugi([
    'local',
    ...data,
    ...CLUSTER,
    ...BATCHES,
    ...args,
    '--json',
    json,
    '--quiet',
  ]);
  expect(output.stderr).toBe('');
  expect(output.code).toBe(0);
  const report = JSON.parse(readFileSync(json, 'utf8')) as RunReport;
  expect(report.samples).toMatchObject({ expected: ROWS, trained: ROWS, exactlyOnce: true });
  expect(report.pushes).toMatchObject({ lost: 0, duplicated: 0 });
  return report;
}

test('every format gives the same bits, also where a PS is killed', async () => {
  const deterministic = ['--workers', '1', '--deterministic'];
  const { digest, testAuc } = await run('a.csv', deterministic);
  expect(testAuc).toBeGreaterThan(0.5);
  for (const name of FORMATS) {
    const report = await run(name, [...deterministic, '--kill', 'ps:1@40%', '--respawn', '200ms']);
    expect([name, report.digest, report.testAuc]).toEqual([name, digest, testAuc]);
  }
}, 600_000);

test.each(FORMATS)(
  '%s: workers and PS are killed, and each sample counts once',
  async (name) => {
    const kills = ['--kill', 'worker@30%', '--kill', 'ps@60%', '--respawn', '200ms'];
    const report = await run(name, ['--workers', '2', '--range-batches', '4', ...kills]);
    expect(report.failures.length).toBeGreaterThan(0);
  },
  180_000,
);
