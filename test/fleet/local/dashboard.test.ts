/** `kintsugi local --dashboard`: a page of the job for as long as it runs. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { writeDemoData } from '../../../src/training/loop/demo-data.js';
import { start } from '../../cli/support.js';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-page-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

test('prints the link first, shows the run, and ends with the job', async () => {
  const train = join(directory, 'train.tsv');
  const sizes = { rows: 3000, testRows: 10, keys: 500, seed: 1 };
  await writeDemoData({ train, test: join(directory, 'test.tsv'), ...sizes });
  const shape = ['--ps', '2', '--code', '1+1', '--workers', '1', '--dim', '4', '--bottom', '8-4'];
  const job = start(['local', ...shape, '--top', '8-1', '--data', train, '--dashboard']);
  const link = await job.line((line) => line.startsWith('dashboard: '));
  const live = await fetch(new URL('/live', link.slice('dashboard: '.length)));
  let told = '';
  const decoder = new TextDecoder();
  // Until the server ends, which it does with the job.
  const ended = (async () => {
    for await (const chunk of live.body!) told += decoder.decode(chunk, { stream: true });
  })().catch(() => {});
  expect(await job.ended).toMatchObject({ code: 0 });
  await ended;
  expect(told).toContain('"redundancy":"full"');
  expect(told).toContain('"name":"ps-1"');
});
