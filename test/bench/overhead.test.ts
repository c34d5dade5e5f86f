/** The overhead benchmark at the size of a smoke, and its pure parts. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { median } from '../../bench/common/statistics.js';
import { pairedRatio } from '../../bench/overhead/bench.js';
import type { MeasuredRound } from '../../bench/overhead/candidate.js';
import { OVERHEAD_OPTIONS } from '../../bench/overhead/options.js';
import { kintsugi } from '../cli/support.js';

vi.setConfig({ testTimeout: 180_000 });

let directory = '';
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-overhead-test-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

it('a smoke compares a code with none', async () => {
  const json = join(directory, 'overhead.json');
  const output = await kintsugi(['bench', 'overhead', '--smoke', '--quiet', '--json', json]);
  expect(output.code).toBe(0);
  const { results, goals } = JSON.parse(readFileSync(json, 'utf8')) as {
    results: { name: string; values: Record<string, number> }[];
    goals: { name: string; value: number }[];
  };
  const values = (name: string) => results.find((result) => result.name === `pushes: ${name}`)!.values;
  expect(values('throughput').none).toBeGreaterThan(0);
  expect(values('throughput')['4+1']).toBeGreaterThan(0);
  // Deltas go to a parity only where there is one; memory grows by a parity for four shards.
  expect(values('sent by PS').none).toBe(0);
  expect(values('sent by PS')['4+1']).toBeGreaterThan(0);
  expect(values('memory')['4+1']! / values('memory').none!).toBeGreaterThan(1.1);
  expect(goals.map((goal) => goal.name)).toEqual(['pushes: 4+1 of none', 'pushes: memory of 4+1, of none']);
});

it('a smoke compares a job that is watched with one that is not', async () => {
  const json = join(directory, 'watched.json');
  const modes = ['--modes', 'none,none/watched'];
  const output = await kintsugi(['bench', 'overhead', '--smoke', '--quiet', ...modes, '--json', json]);
  expect(output.stderr).toBe('');
  expect(output.code).toBe(0);
  const { results, goals } = JSON.parse(readFileSync(json, 'utf8')) as {
    results: { name: string; values: Record<string, number> }[];
    goals: { name: string }[];
  };
  const of = (what: string) =>
    results.find(({ name }) => name === `pushes: none/watched, of unwatched: ${what}`)!;
  for (const what of ['throughput', 'processor time of the job']) {
    const { median, from, to } = of(what).values;
    expect(from).toBeGreaterThan(0);
    expect([median! >= from!, median! <= to!]).toEqual([true, true]);
  }
  expect(of('processor time beside it').values['who looks']).toBeGreaterThan(0);
  expect(goals.map(({ name }) => name)).toEqual([
    'pushes: none/watched, of unwatched: throughput',
    'pushes: none/watched, of unwatched: processor time of the job',
  ]);
  // No metrics are read here: that would be a look at a mode that nobody looks at.
  expect(results.map(({ name }) => name)).not.toContain('pushes: sent by PS');
});

it('compares within a round, so that a slow moment of the machine meets both sides', () => {
  const round = (samplesPerSecond: number): MeasuredRound => {
    const sent = { bytesPerStep: 1, messagesPerStep: 1, framesPerStep: 1 };
    return { samplesPerSecond, psCpu: 1, workerCpu: 1, schedulerCpu: 0, ownCpu: 0, ...sent };
  };
  const base = [100, 10, 50].map(round);
  const coded = [80, 8, 45].map(round);
  expect(pairedRatio(coded, base, 'samplesPerSecond')).toBeCloseTo(0.8, 9);
  expect([median([3, 1, 2]), median([4, 1, 2, 3])]).toEqual([2, 2.5]);
});

it('measures the wide code where there are nodes for it, and checkpoints at two intervals', () => {
  const modes = (flags: Parameters<typeof OVERHEAD_OPTIONS.parse>[0]) =>
    OVERHEAD_OPTIONS.parse(flags).modes.map(({ name }) => name);
  expect(modes({})).toEqual(['none', '4+1', '4+2', '1+1', 'checkpoint/5s', 'checkpoint/20s']);
  expect(modes({ ps: '10' })).toContain('8+2');
  expect(modes({ modes: 'none/page,checkpoint/watched,4+1' })).toEqual([
    'none/page',
    'checkpoint/5s/watched',
    'checkpoint/20s/watched',
    '4+1',
  ]);
  expect(() => modes({ modes: 'none/nobody' })).toThrow(/nobody/);
});

it('a round in which somebody looks trains longer', () => {
  const light = (modes: string, epochs?: string) =>
    OVERHEAD_OPTIONS.parse({ jobs: 'light', modes, epochs }).jobs[0]!;
  const { samples } = light('none');
  expect(light('none,none/watched')).toMatchObject({ epochs: 4, samples: 4 * samples });
  expect(light('none,none/watched', '2')).toMatchObject({ epochs: 2, samples: 2 * samples });
});

it('runs the jobs that are named, or all that begin so', () => {
  const jobs = (names: string) => OVERHEAD_OPTIONS.parse({ jobs: names }).jobs.map(({ name }) => name);
  expect(jobs('pushes,light')).toEqual(['pushes', 'light']);
  expect(jobs('ecrec')).toEqual(['ecrec-sgd', 'ecrec-adagrad']);
});

it('refuses what makes no sense', () => {
  for (const flags of [{ rounds: 'x' }, { modes: '4-1' }, { jobs: 'light,e' }])
    expect(() => OVERHEAD_OPTIONS.parse(flags)).toThrow(expect.objectContaining({ code: 'BAD_ARGUMENT' }));
});
