/** Decisions: each rule by itself, and what holds for all. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { theilSen } from '../../../../src/common/statistics.js';
import { decide, firstSize } from '../../../../src/fleet/autoscale/decide/decide.js';
import type { Observation, TakenTime } from '../../../../src/fleet/autoscale/decide/observation.js';
import { policyWith } from '../../../../src/fleet/autoscale/decide/policy.js';
import { longestPending } from '../../../../src/fleet/autoscale/decide/trend.js';

const POLICY = policyWith({ ps: { least: 2, most: 20 }, workers: { least: 1, most: 20 } });
const MIB = 2 ** 20;

interface Shape {
  ps?: number;
  workers?: number;
  busy?: readonly number[];
  /** Bytes of each PS at the last observation, and their growth per second. */
  bytes?: number;
  growth?: number;
  idle?: number;
  speed?: (worker: number, at: number) => number;
  pendingPs?: number;
  changing?: boolean;
  seconds?: number;
}

/** A history that is the same all the time, one observation every 30 s. */
function seenOf(shape: Shape): Observation[] {
  const { ps = 4, workers = 4, busy = [0.3], bytes = 500 * MIB, growth = 0, idle = 0 } = shape;
  const { speed = () => 100, pendingPs = 0, changing = false, seconds = 1800 } = shape;
  const made: Observation[] = [];
  const samples = Array.from({ length: workers }, () => 0);
  for (let at = 0; at <= seconds; at += 30) {
    for (let i = 0; i < workers && at > 0; i++) samples[i]! += 30 * speed(i, at);
    made.push({
      at,
      samples: samples.reduce((sum, one) => sum + one, 0),
      ps: Array.from({ length: ps }, (_, i) => ({
        id: `ps-${i}`,
        cpu: at * (busy[i] ?? busy.at(-1)!),
        bytes: bytes - growth * (seconds - at),
        limit: 1024 * MIB,
      })),
      workers: samples.map((count, i) => ({
        id: `worker-${i}`,
        name: `worker-${i}`,
        samples: count,
        busy: at * (1 - idle),
        idle: at * idle,
      })),
      pendingPs,
      pendingWorkers: 0,
      changing,
    });
  }
  return made;
}

const decided = (shape: Shape, taken: TakenTime[] = []) => decide({ seen: seenOf(shape), taken }, POLICY);

describe('memory', () => {
  it('is added when what is left is less than three times what a move takes', () => {
    const [decision] = decided({ growth: 1 * MIB, bytes: 700 * MIB, seconds: 600 });
    expect(decision).toMatchObject({ kind: 'ps', from: 4 });
    const { secondsLeft, moveSeconds } = decision!.numbers;
    expect(secondsLeft).toBeLessThan(3 * moveSeconds!);
    expect(decision).toHaveProperty('reason', expect.stringContaining('three moves'));
  });

  it('is left alone while it lasts', () => {
    const kinds = decided({ growth: 0.01 * MIB, bytes: 700 * MIB }).map(({ kind }) => kind);
    expect(kinds).not.toContain('ps');
  });

  it('comes before everything: it waits for no settling and for no budget', () => {
    const replaced = { kind: 'replace', worker: 'w', name: 'w', reason: '', numbers: {} } as const;
    const taken = Array.from({ length: 50 }, () => ({ at: 1799, decision: replaced }));
    expect(decided({ bytes: 1000 * MIB }, taken)).toMatchObject([{ kind: 'ps', from: 4 }]);
  });

  it('waits for PS that are on their way', () => {
    expect(decided({ bytes: 1000 * MIB, pendingPs: 2 })).toEqual([]);
  });
});

describe('a hot PS', () => {
  it('is relieved by a rebalance first, then by more PS', () => {
    const busy = [0.95, 0.3, 0.3, 0.3];
    const [first] = decided({ busy });
    expect(first).toMatchObject({ kind: 'rebalance' });
    const [second] = decided({ busy }, [{ at: 1500, decision: first! }]);
    expect(second).toMatchObject({ kind: 'ps', from: 4, reason: 'a PS is hot' });
  });

  it('may be overloaded though its processor is not busy, and is relieved likewise', () => {
    const seen = seenOf({ busy: [0.3] });
    const overloaded = seen.map((one) => ({
      ...one,
      ps: one.ps.map((ps, i) => (i === 1 ? { ...ps, overloaded: true } : ps)),
    }));
    const [first] = decide({ seen: overloaded, taken: [] }, POLICY);
    expect(first).toMatchObject({ kind: 'rebalance', numbers: { overloaded: 1 } });
    const [second] = decide({ seen: overloaded, taken: [{ at: 1500, decision: first! }] }, POLICY);
    expect(second).toMatchObject({ kind: 'ps', from: 4, to: 5, reason: 'a PS is overloaded' });
  });

  it('among hot ones means more PS at once', () => {
    expect(decided({ busy: [0.9] })).toMatchObject([{ kind: 'ps', from: 4, to: 6 }]);
  });
});

describe('workers', () => {
  const tried = (at: number): TakenTime => ({
    at,
    decision: { kind: 'workers', from: 4, to: 5, reason: '', numbers: { tried: 1 } },
  });

  it('more are tried', () => {
    expect(decided({ seconds: 300 })).toMatchObject([{ kind: 'workers', from: 4, numbers: { tried: 1 } }]);
  });

  /** Four until half of the time, then five, with the throughput that is given. */
  function withGain(gain: number): Observation[] {
    const first = seenOf({ workers: 4, seconds: 600 });
    const last = first.at(-1)!;
    const later = seenOf({ workers: 5, seconds: 600, speed: () => (100 * 4 * (1 + 0.25 * gain)) / 5 });
    return [
      ...first,
      ...later.slice(1).map((one) => ({
        ...one,
        at: one.at + 600,
        samples: one.samples + last.samples,
        ps: one.ps.map((ps) => ({ ...ps, cpu: ps.cpu + 600 * 0.3 })),
      })),
    ];
  }

  it('stay when they bring at least half of their share, else they go', () => {
    const judged = (gain: number) => decide({ seen: withGain(gain), taken: [tried(600)] }, POLICY);
    expect(judged(0.3)).toMatchObject([{ kind: 'workers', from: 5, to: 4, numbers: { takenBack: 1 } }]);
    expect(judged(0.7)).toMatchObject([{ kind: 'workers', from: 5, to: 6, numbers: { tried: 1 } }]);
  });

  it('that were taken back are not tried again soon', () => {
    const back: TakenTime = {
      at: 1000,
      decision: { kind: 'workers', from: 5, to: 4, reason: '', numbers: { takenBack: 1 } },
    };
    expect(decided({ busy: [0.7] }, [tried(600), back])).toEqual([]);
  });

  it('are tried again sooner where it was the data that was short, and no later each time', () => {
    const back = (at: number, short: boolean): TakenTime => ({
      at,
      decision: {
        kind: 'workers',
        from: 5,
        to: 4,
        reason: '',
        numbers: { takenBack: 1, ...(short && { short: 1 }) },
      },
    });
    const tries = (short: boolean) => [tried(100), back(300, short), tried(500), back(800, short)];
    expect(decided({ seconds: 1600 }, tries(true))).toEqual([]);
    expect(decided({ seconds: 1800 }, tries(true))).toMatchObject([{ from: 4, numbers: { tried: 1 } }]);
    expect(decided({ seconds: 2700 }, tries(false))).toEqual([]);
    // A verdict on workers that wait for data says so.
    const seen = withGain(0.1).map((one) => ({
      ...one,
      workers: one.workers.map((worker) => ({ ...worker, busy: one.at * 0.9, idle: one.at * 0.1 })),
    }));
    expect(decide({ seen, taken: [tried(600)] }, POLICY)).toMatchObject([
      { from: 5, to: 4, numbers: { takenBack: 1, short: 1 } },
    ]);
  });

  it('leave when they have nothing to do', () => {
    expect(decided({ idle: 0.5 })).toMatchObject([{ kind: 'workers', from: 4, to: 3 }]);
  });

  it('that are slow in five windows are replaced; those that were slow once are not', () => {
    const always = decided({ speed: (i) => (i === 2 ? 30 : 100) });
    expect(always).toMatchObject([{ kind: 'replace', worker: 'worker-2' }]);
    // A worker that is silent now and then, and slow otherwise.
    const silent = seenOf({ speed: (i) => (i === 2 ? 30 : 100) }).map((one) => {
      const at = Math.floor(one.at / 60) * 60;
      const workers = one.workers.map((each) =>
        each.id === 'worker-2' ? { ...each, samples: at * 30, busy: at } : each,
      );
      return { ...one, workers };
    });
    expect(decide({ seen: silent, taken: [] }, POLICY)).toMatchObject([
      { kind: 'replace', worker: 'worker-2' },
    ]);
    const once = decided({ speed: (i, at) => (i === 2 && at === 1770 ? 30 : 100) });
    expect(once.map(({ kind }) => kind)).not.toContain('replace');
  });
});

it('PS leave when the others have memory and time for all', () => {
  const policy = policyWith({ ps: { least: 2, most: 20 }, workers: { least: 1, most: 4 } });
  const quiet = seenOf({ bytes: 100 * MIB, busy: [0.1] });
  expect(decide({ seen: quiet, taken: [] }, policy)).toMatchObject([{ kind: 'ps', from: 4, to: 2 }]);
  const early = seenOf({ bytes: 100 * MIB, busy: [0.1], seconds: 300 });
  expect(decide({ seen: early, taken: [] }, policy)).toEqual([]);
});

it('the first size is the least of the bounds, and what is outside of them comes back', () => {
  expect(firstSize(POLICY)).toEqual({ ps: 2, workers: 1 });
  expect(decided({ ps: 1 })).toMatchObject([{ kind: 'ps', from: 1, to: 2 }]);
  expect(decided({ workers: 25 })).toMatchObject([{ kind: 'workers', from: 25, to: 20 }]);
  expect(decide({ seen: [], taken: [] }, POLICY)).toEqual([]);
});

it('one thing at a time, within bounds, with numbers and a reason; the same for the same history', () => {
  const some = fc.record({
    ps: fc.integer({ min: 2, max: 20 }),
    workers: fc.integer({ min: 1, max: 20 }),
    busy: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 1, maxLength: 20 }),
    bytes: fc.integer({ min: MIB, max: 1024 * MIB }),
    growth: fc.integer({ min: 0, max: 200_000 }),
    idle: fc.double({ min: 0, max: 0.99, noNaN: true }),
    changing: fc.boolean(),
    pendingPs: fc.integer({ min: 0, max: 1 }),
  });
  fc.assert(
    fc.property(some, (shape) => {
      const found = decided(shape);
      expect(found.length).toBeLessThanOrEqual(1);
      expect(decided(shape)).toEqual(found);
      for (const decision of found) {
        expect(decision.reason).not.toBe('');
        expect(Object.values(decision.numbers).every((value) => !Number.isNaN(value))).toBe(true);
        if (decision.kind === 'ps' || decision.kind === 'workers') {
          const { least, most } = POLICY[decision.kind];
          expect(decision.to).toBeGreaterThanOrEqual(least);
          expect(decision.to).toBeLessThanOrEqual(most);
          expect(decision.to).not.toBe(decision.from);
        }
      }
    }),
    { numRuns: 60 },
  );
});

describe('trends', () => {
  it('a slope is not led astray by a quarter of the points', () => {
    const points = Array.from({ length: 40 }, (_, i) => [i, i % 5 === 2 ? 1e6 : 3 * i] as const);
    expect(theilSen(points)).toBeCloseTo(3, 6);
    expect(theilSen([[0, 1]])).toBe(0);
  });

  it('the longest wait for processes is remembered, also while it lasts', () => {
    const seen = seenOf({ seconds: 300 });
    expect(longestPending(seen)).toBe(0);
    const waiting = seen.map((one) => ({ ...one, pendingPs: one.at >= 60 && one.at < 180 ? 1 : 0 }));
    expect(longestPending(waiting)).toBe(120);
    expect(longestPending(seen.map((one) => ({ ...one, pendingWorkers: one.at >= 240 ? 1 : 0 })))).toBe(60);
  });
});
