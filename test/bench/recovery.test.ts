/** The recovery benchmark at the size of a smoke, and its pure parts. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { KeyStream } from '../../bench/common/training/keys.js';
import { groupsOf, modeOf } from '../../bench/common/training/modes.js';
import { measure, newSamples } from '../../bench/recovery/measure.js';
import { RECOVERY_OPTIONS } from '../../bench/recovery/options.js';
import { overlaySvg, recoverySvg } from '../../bench/recovery/picture.js';
import { ofRounds } from '../../bench/recovery/rounds.js';
import type { RunResult } from '../../bench/recovery/run.js';
import type { RoleEvent } from '../../src/fleet/local/events.js';
import { kintsugi } from '../cli/support.js';

let directory = '';
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-recovery-test-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

it('a smoke loses nothing with a code, and trains again with a checkpoint', async () => {
  const json = join(directory, 'recovery.json');
  const html = join(directory, 'recovery.html');
  const svg = join(directory, 'recovery.svg');
  const files = ['--json', json, '--html', html, '--svg', svg];
  const output = await kintsugi(['bench', 'recovery', '--smoke', '--quiet', ...files]);
  expect([output.code, output.said]).toEqual([0, []]);
  const { runs, goals } = JSON.parse(readFileSync(json, 'utf8')) as {
    runs: RunResult[];
    goals: { name: string; met: boolean }[];
  };
  expect(runs.map((run) => run.mode)).toEqual(['4+1', '4+1/60%', 'checkpoint/1s']);
  const [coded, , checkpoint] = runs as [RunResult, RunResult, RunResult];
  expect(coded).toMatchObject({ rows: 20_000, rowsLost: 0, mismatchedBlocks: 0, samplesRedone: 0 });
  for (const run of runs) {
    expect(run.pushes).toMatchObject({ lost: 0, duplicated: 0 });
    expect(run.pushes.acked).toBeGreaterThan(0);
    expect(run.windows.length).toBeGreaterThan(0);
    expect(run.detectedMs).not.toBeNull();
  }
  for (const what of [coded.firstServedMs, coded.keysReadyMs, coded.redundantMs]) expect(what).not.toBeNull();
  expect(coded.blocksLost).toBeGreaterThan(0);
  expect(checkpoint.rowsLost).toBe(0);
  expect(checkpoint.samplesRedone).toBeGreaterThanOrEqual(0);
  const intact = goals.filter((goal) => goal.name.includes('lost or wrong'));
  expect(intact.map((goal) => goal.met)).toEqual([true, true, true]);
  for (const file of [html, svg]) expect(readFileSync(file, 'utf8')).toContain('checkpoint/1s');
});

describe('options', () => {
  it('gives every mode the same number of data shards', () => {
    const modes = ['4+1', '1+1', 'none'].flatMap((name) => modeOf(name, []));
    expect(modes.map((mode) => groupsOf(mode, 6) * mode.k)).toEqual([24, 24, 24]);
  });

  it('has one checkpoint mode for each interval', () => {
    const names = modeOf('checkpoint', [5, 30]).map((mode) => [mode.name, mode.code, mode.intervalSeconds]);
    expect(names).toEqual([
      ['checkpoint/5s', 'none', 5],
      ['checkpoint/30s', 'none', 30],
    ]);
  });

  it('knows a load in percent', () => {
    expect(modeOf('4+1/60%', [])).toEqual([{ name: '4+1/60%', code: '4+1', k: 4, idle: false, load: 0.6 }]);
    for (const name of ['4+1/0%', '4+1/100%', '4+1/60', '4+1/idle60%'])
      expect(() => modeOf(name, [])).toThrow(/--modes must name codes/);
  });

  it('refuses what makes no sense', () => {
    for (const flags of [{ sizes: '1,x' }, { modes: 'half' }, { ps: '3,4' }])
      expect(() => RECOVERY_OPTIONS.parse(flags)).toThrow(expect.objectContaining({ code: 'BAD_ARGUMENT' }));
    expect(RECOVERY_OPTIONS.parse({ sizes: '0.5,2' }).sizes).toEqual([500_000, 2_000_000]);
  });
});

describe('keys', () => {
  it('are distinct, in the table, the same for the same seed, and as skewed as they should be', () => {
    const rows = 10_000;
    const first = new KeyStream(rows, 1000).next();
    expect(new KeyStream(rows, 1000).next()).toEqual(first);
    expect(new Set(first).size).toBe(first.length);
    expect(first.every((key) => key < BigInt(rows))).toBe(true);
    // Half of log-uniform ranks lie below the square root of the rows: many of a thousand are repeated.
    expect(first.length).toBeLessThan(700);
    expect(first.length).toBeGreaterThan(300);
  });
});

describe('measurement', () => {
  const shard = { group: 0, member: 1 };
  const event = (mono: number, name: string, fields: object = {}): RoleEvent => ({
    mono,
    event: name,
    source: 'ps-0',
    ...fields,
  });
  const kill = { role: 'ps' as const, name: 'ps-1', inc: 3, mono: 10_000, shards: [{ ...shard, gen: 1 }] };
  const events = [
    event(10_100, 'map.durable', { reason: 'lost', name: 'ps-1', inc: 3 }),
    event(10_150, 'shard.active', { ...shard, gen: 2 }),
    event(10_200, 'shard.keysReady', { ...shard, gen: 2 }),
    event(10_250, 'shard.served', { ...shard, gen: 2 }),
    event(11_150, 'shard.complete', { ...shard, gen: 2, blocksLost: 1000, blocksOnDemand: 7 }),
    event(13_200, 'redundancy', { state: 'full' }),
  ];
  /** 1000 samples a second, none for 300 ms after the kill, and then half as many for a second. */
  const rateAt = (mono: number) => (mono < 10_000 ? 1 : mono < 10_300 ? 0 : mono < 11_300 ? 0.5 : 1);
  const progress: { mono: number; samples: number }[] = [];
  for (let mono = 5000, samples = 0; mono <= 16_000; mono += 10) {
    progress.push({ mono, samples });
    samples += rateAt(mono) * 10;
  }
  const result = measure({ events, kill, progress, calmFrom: 6000, endedAt: 16_000 });

  it('takes times from the kill and from detection', () => {
    expect(result).toMatchObject({
      steadySamplesPerSecond: 1000,
      detectedMs: 100,
      firstServedMs: 250,
      keysReadyMs: 200,
      keysReadyAfterDetectionMs: 100,
      decodedMs: 1150,
      redundantMs: 3200,
      blocksLost: 1000,
      blocksOnDemand: 7,
      rebuildGBPerSecond: 0.004,
    });
    expect(result.backMs).toBeGreaterThanOrEqual(390);
    expect(result.backMs).toBeLessThanOrEqual(410);
  });

  it('finds the slowest second and the mean of the time in which blocks were missing', () => {
    expect(result.worstSecondBefore).toBeCloseTo(1, 2);
    expect(result.worstSecond).toBeCloseTo(0.45, 2);
    expect(result.worstSecondFromKill).toBeCloseTo(0.35, 2);
    expect(result.mean).toBeCloseTo(2.4 / 3, 2);
    expect(result.windows.slice(30, 34)).toEqual([0, 0, 0, 500]);
    expect(result.firstWindowMs).toBe(-3000);
  });

  it('compares whole seconds with the worst of as many calm ones', () => {
    // Keys are there 200 ms after the kill, and the job is redundant three seconds later.
    expect(result.firstTwoSeconds).toBeCloseTo(0.45, 2);
    expect(result.otherSeconds).toBeCloseTo(1, 2);
    expect(result.meanUntilDecoded).toBeCloseTo(0.45, 2);
    const slow = progress.map(({ mono, samples }) => ({
      mono,
      samples: mono < 8000 ? samples : samples - Math.min(500, mono - 8000) / 2,
    }));
    const after = measure({ events, kill, progress: slow, calmFrom: 6000, endedAt: 16_000 });
    expect(after.firstTwoSeconds).toBeCloseTo(0.45 / 0.75, 2);
  });

  it('compares steps with those that were due', () => {
    // A step every 10 ms takes 5 ms. Those of the first 300 ms after the keys end half a second late.
    const steps = Array.from({ length: 1000 }, (_, i): [number, number] => {
      const due = 6000 + 10 * i;
      return [due, due >= 10_200 && due < 10_500 ? 505 : 5];
    });
    const of = { events, kill, progress, calmFrom: 6000, endedAt: 16_000, offered: 2000 };
    const paced = measure({ ...of, steps });
    expect(paced).toMatchObject({ steadySamplesPerSecond: 2000, calmP99Ms: 5, p99Ms: 505, p99OfCalm: 101 });
    expect(paced).toMatchObject({ firstTwoSeconds: 1, otherSeconds: 1 });
    const lost = steps.filter(([due]) => due < 12_500 || due >= 12_600);
    expect(measure({ ...of, steps: lost }).otherSeconds).toBe(1);
    const late = steps.map(([due, ms]): [number, number] => [due, due >= 12_500 && due < 12_600 ? 2000 : ms]);
    expect(measure({ ...of, steps: late }).otherSeconds).toBeCloseTo(0.91, 2);
  });

  it('takes the medians of rounds, and what any of them lost', () => {
    const run = { ...result, mode: '4+1', rows: 1, rowsLost: 0, mismatchedBlocks: 0 } as RunResult;
    const pushes = { acked: 10, lost: 0, duplicated: 0 };
    const rounds = ofRounds([
      { ...run, mean: 0.9, p99Ms: 5, pushes },
      { ...run, mean: 0.7, p99Ms: null, pushes: { ...pushes, lost: 1 }, windows: [7] },
      { ...run, mean: 0.6, p99Ms: 7, pushes, rowsLost: 2 },
    ]);
    expect(rounds).toMatchObject({
      mean: 0.7,
      p99Ms: Number.NaN,
      rowsLost: 2,
      mismatchedBlocks: 0,
      windows: [7],
    });
    expect(rounds.pushes).toEqual({ acked: 30, lost: 1, duplicated: 0 });
    expect(rounds.spread.mean).toEqual([0.6, 0.9]);
  });

  it('does not count what is trained again', () => {
    const again = [0, 100, 50, 100, 150].map((samples, i) => ({ mono: i * 1000, samples }));
    expect(newSamples(again).map((point) => point.samples)).toEqual([0, 100, 100, 100, 150]);
  });

  it('draws one line per mode', () => {
    const run = { ...result, mode: '<4+1>', rows: 1 } as RunResult;
    const svg = overlaySvg([run, { ...run, mode: '1+1' }]);
    expect(svg.match(/<polyline/g)).toHaveLength(2);
    expect(svg).toContain('&lt;4+1&gt;');
    expect(svg).not.toContain('NaN');
  });

  it('draws the largest size as a file of its own, without modes that do not train', () => {
    const run = { ...result, mode: '4+1', rows: 1 } as RunResult;
    const svg = recoverySvg([run, { ...run, rows: 2 }, { ...run, rows: 2, mode: '4+1/idle' }]);
    expect(svg).toMatch(/^<svg [^>]*xmlns="http:\/\/www.w3.org\/2000\/svg">/);
    expect(svg.match(/<polyline/g)).toHaveLength(1);
    expect(svg).not.toMatch(/NaN|idle/);
  });
});
