/** The benchmark of policies at the size of a smoke: what it counts holds at any speed. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { kintsugi } from '../cli/support.js';

// Five jobs, one after the other.
vi.setConfig({ testTimeout: 280_000 });

const EXACT = [
  'shards whose bytes are not those of the formula',
  'policies: shards whose bytes are not those of the formula',
  'pushes that were refused, uniform',
  'pushes that were refused, zipf',
  'by seconds, under load: pushes whose rows went',
  'by seconds, under load: pushes whose slots are free',
  'by seconds, under load: gaps among keys that left',
  'by seconds, idle: pushes whose rows went',
  'by seconds, idle: pushes whose slots are free',
  'by seconds, idle: gaps among keys that left',
  'rows that went',
  'rows that read as gone before their ttl',
  'rows that do not read as gone 2 % after their ttl',
  'rows in exports that are older than the threshold',
  'rows that exports should have and do not',
];

it('all tables are measured, and rows go when they should', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-life-test-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const json = join(directory, 'life.json');
  const { code, said } = await kintsugi(['bench', 'life', '--smoke', '--quiet', '--json', json]);
  expect({ code, said }).toEqual({ code: 0, said: [] });
  const { results, goals, parameters } = JSON.parse(readFileSync(json, 'utf8')) as {
    results: { name: string; unit: string; values: Record<string, number> }[];
    goals: { name: string; value: number; met: boolean }[];
    parameters: { exports: number };
  };
  for (const load of ['pull', 'push', 'push, a tenth of new keys']) {
    const { values } = results.find(({ name }) => name === load)!;
    expect(Math.min(values.without!, values.policy!, values.filter!)).toBeGreaterThan(0);
    for (const side of ['policy', 'filter'])
      expect(goals.map(({ name }) => name)).toContain(`${load}: ${side} of without`);
  }
  for (const load of ['policies: push', 'policies: push, a tenth of new keys']) {
    const { values } = results.find(({ name }) => name === load)!;
    expect(Object.keys(values)).toEqual(['steps', 'seconds', 'decay', 'keep']);
    expect(Math.min(...Object.values(values))).toBeGreaterThan(0);
  }
  // As late as seconds are long, and what a busy machine adds: no row waits for another.
  for (const { name, values, unit } of results.filter(({ name }) => name.startsWith('by seconds')))
    if (unit === 's after its ttl') expect(values.latest, name).toBeLessThan(4);
    else expect(values['at most'], name).toBeLessThan(1);
  expect(goals.filter(({ name, met }) => EXACT.includes(name) && met).map(({ name }) => name)).toEqual(EXACT);
  // Parities follow without asking, and in the little memory of a smoke their growth is a part in a hundred.
  for (const { name, values } of results.filter(({ name }) => name.endsWith('the most that a PS used')))
    expect(values['before a loss'], name).toBeLessThan(1.05);
  expect(parameters.exports).toBeGreaterThan(0);
});
