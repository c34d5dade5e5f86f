/** The benchmark of replicas at the size of a smoke. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { kintsugi } from '../cli/support.js';

it('a smoke has both sides under both loads', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-replica-test-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const json = join(directory, 'replica.json');
  const output = await kintsugi(['bench', 'replica', '--smoke', '--quiet', '--json', json]);
  expect([output.code, output.stderr]).toEqual([0, expect.anything()]);
  const { results, goals } = JSON.parse(readFileSync(json, 'utf8')) as {
    results: { name: string; values: Record<string, number> }[];
    goals: { name: string }[];
  };
  const values = (name: string) => results.find((result) => result.name === name)!.values;
  for (const load of ['steady', 'saturated']) {
    expect(values(`${load}: acknowledged`).none).toBeGreaterThan(0);
    expect(values(`${load}: acknowledged`).replica).toBeGreaterThan(0);
    expect(values(`${load}: lag of answers, median`).median).toBeGreaterThan(0);
  }
  expect(goals).toHaveLength(4);
});
