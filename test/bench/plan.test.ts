/** The benchmark at the size of a smoke: a plan and a run of the same job, and both say something. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { kintsugi } from '../cli/support.js';

vi.setConfig({ testTimeout: 240_000 });

let directory = '';
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-plan-test-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

it('measures rates, plans a job with them, and runs it', async () => {
  const json = join(directory, 'plan.json');
  const { code, said } = await kintsugi(['bench', 'plan', '--smoke', '--quiet', '--json', json]);
  expect({ code, said }).toEqual({ code: 0, said: [] });
  const { results, turns } = JSON.parse(readFileSync(json, 'utf8')) as {
    results: { name: string; values: Record<string, number> }[];
    turns: { rates: Record<string, number> }[];
  };
  const { rates } = turns[0]!;
  for (const name of ['pullRow', 'pushRow', 'section', 'parityRow', 'idle', 'serving', 'recoveryBytes'])
    expect(rates[name]).toBeGreaterThan(0);
  // A machine is given up after 0.7 s; a process that is gone is missed sooner.
  expect(rates.detection).toBeGreaterThan(0.7);
  const [memory, ps, worker, work, throughput] = results;
  // Memory is the engine's arithmetic on this machine as on any other.
  expect(memory!.values.ratio).toBeGreaterThan(0.9);
  expect(memory!.values.ratio).toBeLessThan(1.1);
  for (const { values } of [ps!, worker!, work!, throughput!]) {
    expect(values.planned).toBeGreaterThan(0);
    expect(values.measured).toBeGreaterThan(0);
    expect(values.least).toBeLessThanOrEqual(values.most!);
  }
});
