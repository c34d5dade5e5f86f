/** `bench code` and `bench rows` in their smoke modes: the C++ programs are built, run, and judged. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tableBytes } from '../../bench/common/table-memory.js';
import { loadNative } from '../../src/engine/native.js';

const TIMEOUT = 600_000; // a compiler on a busy machine
const hasCmake = spawnSync('cmake', ['--version'], { stdio: 'ignore' }).status === 0;
if (!hasCmake) console.error('\nLEFT OUT: native benchmarks: cmake is not installed (Debian: cmake)');

let directory = '';
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-native-bench-test-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

interface Written {
  parameters: Record<string, unknown>;
  results: { name: string; values: Record<string, number> }[];
  goals: { name: string; value: number; goal: number; met: boolean }[];
  skipped: string[];
}

function smoke(name: string): Written {
  const json = join(directory, `${name}.json`);
  const run = spawnSync(
    process.execPath,
    ['dist/src/cli/main.js', 'bench', name, '--smoke', '--json', json],
    {
      encoding: 'utf8',
    },
  );
  expect(run.stderr).toBe('');
  expect(run.status).toBe(0);
  const written = JSON.parse(readFileSync(json, 'utf8')) as Written;
  for (const result of written.results) {
    for (const value of Object.values(result.values)) expect(value).toBeGreaterThanOrEqual(0);
  }
  return written;
}

describe.skipIf(!hasCmake)('native benchmarks', () => {
  it('code: every instruction set, and every peer is measured or said to be missing', {
    timeout: TIMEOUT,
  }, () => {
    const { parameters, results, goals, skipped } = smoke('code');
    expect(parameters.isa).toBe(loadNative().isa);
    const one = results.find((result) => result.name === 'encode (10,4) 64 KiB')!;
    expect(Object.keys(one.values)).toContain('scalar');
    for (const peer of ['isa-l', '@ronomon/reed-solomon']) {
      const measured = one.values[peer] !== undefined;
      expect(skipped.some((line) => line.startsWith(peer))).toBe(!measured);
      expect(goals.some((goal) => goal.name.endsWith(`/ ${peer}`))).toBe(measured);
    }
  });

  it('rows: a goal for every claim', { timeout: TIMEOUT }, () => {
    const { results, goals } = smoke('rows');
    const names = goals.map((goal) => goal.name);
    expect(names.filter((name) => name.startsWith('delta apply'))).toHaveLength(4);
    expect(names.filter((name) => name.startsWith('gather'))).toHaveLength(2);
    expect(names.filter((name) => name.includes('by table size'))).toHaveLength(2);
    expect(names).toContain('index: batched / one by one');
    for (const goal of goals) expect(goal.met).toBe(goal.value >= goal.goal);
    const memory = results.find((result) => result.name === 'memory of a row')!.values;
    // The engine charges the formula, up to the last block of 4 KiB of each column.
    expect(Math.abs(memory.charged! / memory.formula! - 1)).toBeLessThan(0.005);
  });
});

it('the formula of the memory of a table', () => {
  expect(tableBytes(5, 3)).toBe(5 * (8 + 16) + 96);
  expect(tableBytes(5, 5)).toBe(5 * (8 + 32) + 96);
  expect(tableBytes(4_000_000, 64, 4, 4, 1)).toBe(4_000_000 * 264 * 1.25 + 4 * 2 ** 18 * 96);
});
