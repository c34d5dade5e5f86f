/** The simulated hour on failures that can be worked out by hand, and the benchmark as a smoke. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type Failure, failuresOf } from '../../bench/goodput/failures.js';
import { MEASURED, play } from '../../bench/goodput/model.js';
import { kintsugi } from '../cli/support.js';

vi.setConfig({ testTimeout: 240_000 });

describe('a simulated job', () => {
  const given = {
    ...{ steady: 1, codeShare: 0.9, detection: 1, serving: 1, redundant: 10, recoveringShare: 0.5 },
    ...{ restart: 5, restore: 4, checkpoint: 2, checkpointShare: 0.5, worker: 4, batch: 0 },
  };
  const none = { ps: 4, workers: 2, parities: 0, interval: undefined };
  const ps = (at: number): Failure => ({ at, role: 'ps', index: 0 });
  const goodput = (shape: typeof none | object, failures: Failure[], seconds = 100) =>
    play({ ...none, ...shape }, failures, seconds, given).goodput;

  it('computes all the time when nothing fails, but for what a way costs', () => {
    expect(goodput({}, [])).toBeCloseTo(1, 2);
    expect(goodput({ parities: 1 }, [])).toBeCloseTo(0.9, 2);
    // From 20, 40, 60 and 80 s on two seconds at half.
    expect(goodput({ interval: 20 }, [])).toBeCloseTo(0.96, 2);
  });

  it('without anything a lost PS costs all that was trained, and the restart', () => {
    expect(goodput({}, [ps(40)])).toBeCloseTo((100 - 40 - 6) / 100, 2);
    expect(play(none, [ps(40), ps(60)], 100, given).restarts).toBe(2);
  });

  it('with checkpoints it costs what came after the newest whole one began, restart and restore', () => {
    // The checkpoint that begins at 40 s has all but the one second that the one at 20 s has cost.
    expect(goodput({ interval: 20 }, [ps(50)])).toBeCloseTo((39 + 100 - 60 - 2) / 100, 1);
    // A checkpoint that is not whole does not count.
    expect(goodput({ interval: 20 }, [ps(41)])).toBeCloseTo((20 + 100 - 51 - 2) / 100, 1);
  });

  it('with a parity it costs a pause, and two at once cost the job', () => {
    expect(goodput({ parities: 1 }, [ps(40)])).toBeCloseTo((0.9 * (98 - 5)) / 100, 2);
    expect(goodput({ parities: 1 }, [ps(40), ps(45)])).toBeCloseTo((0.9 * (100 - 45 - 6)) / 100, 2);
    expect(play({ ...none, parities: 2 }, [ps(40), ps(45)], 100, given).restarts).toBe(0);
    expect(play({ ...none, parities: 1 }, [ps(40), ps(60)], 100, given).restarts).toBe(0);
  });

  it('a lost worker is away, and what fails while the job stands still has no effect', () => {
    const worker = (at: number): Failure => ({ at, role: 'worker', index: 1 });
    expect(goodput({}, [worker(40)])).toBeCloseTo(0.98, 2);
    expect(goodput({}, [ps(40), ps(43), worker(44)])).toBeCloseTo(goodput({}, [ps(40)]), 5);
  });
});

it('failures have the rate that was asked for, the same from the same seed', () => {
  const job = { ps: 6, workers: 3 };
  const all = failuresOf(job, 60, 100 * 3600, 1);
  expect(all.length).toBeGreaterThan(5700);
  expect(all.length).toBeLessThan(6300);
  expect(all.filter(({ role }) => role === 'ps').length / all.length).toBeCloseTo(6 / 9, 1);
  expect(all).toEqual(failuresOf(job, 60, 100 * 3600, 1));
  expect(all).toEqual([...all].sort((a, b) => a.at - b.at));
});

describe('the benchmark', () => {
  let directory = '';
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), 'kintsugi-goodput-test-'));
  });
  afterAll(() => rmSync(directory, { recursive: true, force: true }));

  it('plays hours, kills processes, goes back to checkpoints, and draws a picture', async () => {
    const [json, svg] = ['json', 'svg'].map((ends) => join(directory, `goodput.${ends}`)) as [string, string];
    const args = ['bench', 'goodput', '--smoke', '--json', json, '--svg', svg];
    const { code, said } = await kintsugi(args);
    expect(code).toBe(0);
    const { simulated, real, assumptions } = JSON.parse(readFileSync(json, 'utf8')) as {
      simulated: Record<string, { perHour: number; goodput: number }[]>;
      real: Record<string, { goodput: number; killed: { ps: number }; restarts: number }>;
      assumptions: object;
    };
    expect(assumptions).toEqual(MEASURED);
    expect(simulated.checkpoint!.map(({ perHour }) => perHour)).toEqual([6, 60]);
    for (const { goodput } of Object.values(simulated).flat()) {
      expect(goodput).toBeGreaterThanOrEqual(0);
      expect(goodput).toBeLessThan(1);
    }
    expect(Object.keys(real)).toEqual(['2+1', 'checkpoint']);
    expect(real['2+1']).toMatchObject({ restarts: 0 });
    // Without redundancy each lost PS ends a job.
    expect(real.checkpoint!.killed.ps).toBeGreaterThan(0);
    expect(said.filter((line) => line.startsWith('checkpoint: the job ended')).length).toBeGreaterThan(0);
    expect(readFileSync(svg, 'utf8').match(/<polyline/g)).toHaveLength(4);
  });

  it('names what it does not know', async () => {
    for (const [flag, value] of [
      ['--assume', 'speed=1'],
      ['--assume', 'restart=soon'],
      ['--modes', '4+1/mirror'],
    ] as const) {
      const { code, said } = await kintsugi(['bench', 'goodput', '--smoke', '--simulate', flag, value]);
      expect(code, value).not.toBe(0);
      expect(said.join('\n')).toMatch(/BAD_ARGUMENT/);
    }
  });
});
