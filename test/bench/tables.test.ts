/** A job of many tables: the benchmark at the size of a smoke, and some hundred tables. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { kintsugi } from '../cli/support.js';

// Many processes are started, one after the other.
vi.setConfig({ testTimeout: 280_000 });

let directory = '';
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-tables-test-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

it('300 tables are created and used one by one, and survive the kill of a PS bit for bit', async () => {
  const json = join(directory, 'tables.json');
  const args = ['bench', 'tables', '--smoke', '--tables', '300', '--quiet', '--json', json];
  const { code, said } = await kintsugi(args);
  expect({ code, said }).toEqual({ code: 0, said: [] });
  const { goals } = JSON.parse(readFileSync(json, 'utf8')) as { goals: { name: string; value: number }[] };
  expect(goals.map(({ name, value }) => [name, value])).toEqual([
    ['tables', 300],
    ['tables whose rows changed', 0],
    ['digests that differ', 0],
  ]);
});
