/** The rolling restart at the size of a smoke: by the command, and by SIGTERM. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { ROLLING_OPTIONS } from '../../bench/rolling/options.js';
import { kintsugi } from '../cli/support.js';

// Many processes are started, one after the other.
vi.setConfig({ testTimeout: 280_000 });

let directory = '';
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-rolling-test-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

it.each([[[]], [['--sigterm']]])(
  'a smoke restarts all PS, and nothing is refused or wrong (%j)',
  async (how) => {
    const json = join(directory, 'rolling.json');
    const output = await kintsugi(['bench', 'rolling', '--smoke', '--quiet', '--json', json, ...how]);
    expect({ code: output.code, said: output.said }).toEqual({ code: 0, said: [] });
    const { goals, parameters, steps } = JSON.parse(readFileSync(json, 'utf8')) as {
      goals: { name: string; value: number; is: string; met: boolean }[];
      parameters: { statuses: number };
      steps: { name: string }[];
    };
    expect(steps.length).toBe(4);
    expect(parameters.statuses).toBeGreaterThan(0);
    // Times of a smoke mean nothing.
    expect(goals.filter(({ is }) => is === 'exactly').map(({ name, value }) => [name, value])).toEqual([
      ['statuses in which redundancy is not full', 0],
      ['requests refused', 0],
      ['rows that are wrong', 0],
    ]);
  },
);

it('needs one PS more than the code', () => {
  expect(() => ROLLING_OPTIONS.parse({ ps: '5' })).toThrow('--ps must be at least 6');
});
