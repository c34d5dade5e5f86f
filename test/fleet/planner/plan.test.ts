/** Plans: what must be so of all of them, and what is refused. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { jobMeanTimeToLoss, meanTimeToLoss } from '../../../src/fleet/planner/durability.js';
import { nodeLoad, throughput } from '../../../src/fleet/planner/load.js';
import { nodeMemory } from '../../../src/fleet/planner/memory.js';
import { candidate, planJob } from '../../../src/fleet/planner/plan.js';
import { checkpointCost } from '../../../src/fleet/planner/protection.js';
import type { PlanQuestion } from '../../../src/fleet/planner/question.js';
import { DEFAULT_RATES, ratesWith } from '../../../src/fleet/planner/rates.js';

const DAY = 86_400;
const QUESTION: PlanQuestion = {
  rows: 1e8,
  dim: 16,
  optimizer: 'adagrad',
  code: { k: 4, r: 1 },
  workers: 10,
  batch: 2048,
  step: 0.1,
  memory: 2 ** 34,
  network: 1.25e9,
  mtbf: 30 * DAY,
  durability: 3650 * DAY,
  checkpoints: true,
  price: { core: 0.03, gib: 0.004 },
  rates: DEFAULT_RATES,
};

describe('mean time to loss', () => {
  it('is that of the chain, solved by hand', () => {
    // Without redundancy the first failure of n counts. Mirrors: (3 lambda + mu) / (2 lambda^2).
    expect(meanTimeToLoss(5, 0, 100, 1)).toBeCloseTo(20, 9);
    const lambda = 1 / 100;
    const mu = 1 / 2;
    expect(meanTimeToLoss(2, 1, 100, 2)).toBeCloseTo((3 * lambda + mu) / (2 * lambda ** 2), 6);
    expect(meanTimeToLoss(2, 2, 100, 2)).toBe(Number.POSITIVE_INFINITY);
  });

  it('grows with r and with the time between failures, and falls with nodes and repair', () => {
    const some = fc.record({
      k: fc.integer({ min: 1, max: 32 }),
      r: fc.integer({ min: 0, max: 3 }),
      mtbf: fc.double({ min: 1, max: 1e9, noNaN: true }),
      repair: fc.double({ min: 1e-3, max: 1e6, noNaN: true }),
    });
    fc.assert(
      fc.property(some, ({ k, r, mtbf, repair }) => {
        const usual = meanTimeToLoss(k + r, r, mtbf, repair);
        expect(meanTimeToLoss(k + r + 1, r + 1, mtbf, repair)).toBeGreaterThanOrEqual(usual * (1 - 1e-9));
        expect(meanTimeToLoss(k + r + 1, r, mtbf, repair)).toBeLessThanOrEqual(usual);
        expect(meanTimeToLoss(k + r, r, mtbf * 2, repair)).toBeGreaterThanOrEqual(usual);
        expect(meanTimeToLoss(k + r, r, mtbf, repair * 2)).toBeLessThanOrEqual(usual);
      }),
    );
  });

  it('of a job is no more than that of one of its groups', () => {
    const group = meanTimeToLoss(5, 1, 30 * DAY, 60);
    expect(jobMeanTimeToLoss(5, { k: 4, r: 1, groups: 1 }, 30 * DAY, 60)).toBe(group);
    expect(jobMeanTimeToLoss(50, { k: 4, r: 1, groups: 50 }, 30 * DAY, 60)).toBeLessThan(group);
  });
});

describe('a plan', () => {
  it('has more memory for more rows, and never less than its rows need', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 1e9 }),
        fc.integer({ min: 0, max: 1e9 }),
        fc.integer({ min: 5, max: 100 }),
        (rows, more, ps) => {
          const layout = { k: 4, r: 1, groups: ps };
          const few = nodeMemory(rows, QUESTION, layout, ps).engine;
          expect(nodeMemory(rows + more, QUESTION, layout, ps).engine).toBeGreaterThanOrEqual(few);
          expect(few * ps).toBeGreaterThanOrEqual(rows * 136 * 1.25);
        },
      ),
    );
  });

  it('marks the cheapest of those that hold', () => {
    const { alternatives, cheapest, chosen } = planJob(QUESTION);
    const holding = alternatives.filter(({ problems }) => problems.length === 0);
    expect(cheapest?.cost).toBe(Math.min(...holding.map(({ cost }) => cost)));
    expect(chosen).toMatchObject({ code: '4+1', problems: [] });
    expect(alternatives).toContain(chosen);
  });

  it('has the fewest PS that hold, and one more than k+r at least', () => {
    const { chosen } = planJob(QUESTION);
    expect(chosen.ps).toBeGreaterThanOrEqual(6);
    for (let ps = 6; ps < chosen.ps; ps++) expect(candidate(QUESTION, ps).problems).not.toEqual([]);
  });

  it('says what is wrong with PS that are given', () => {
    const { chosen, cheapest } = planJob({ ...QUESTION, ps: 5, memory: 2 ** 31 });
    expect(chosen.problems).toEqual([expect.stringMatching(/^memory: /), expect.stringMatching(/^spare: /)]);
    expect(cheapest).toBeDefined();
  });

  it('has no cheapest where nothing holds', () => {
    const made = planJob({ ...QUESTION, durability: 1e300 });
    expect(made.cheapest).toBeUndefined();
    expect(made.chosen.problems[0]).toMatch(/^durability: /);
  });

  it('parity takes less memory than mirrors, and loses less time than checkpoints', () => {
    const [parity, mirrors, checkpoints] = planJob(QUESTION).protections;
    expect(parity!.how).toBe('parity 4+1');
    expect(parity!.memoryShare).toBeLessThan(mirrors!.memoryShare);
    expect(parity!.lostShare).toBeLessThan(checkpoints!.lostShare);
  });

  it.each([
    [{ rows: 0 }, 'BAD_ARGUMENT', /^rows must be a whole number from 1/],
    [{ rows: 1.5 }, 'BAD_ARGUMENT', /not 1\.5/],
    [{ step: 0 }, 'BAD_ARGUMENT', /^step must be above 0/],
    [{ ps: 4 }, 'NOT_ENOUGH_NODES', /^code 4\+1 needs 5 PS, and 4 are given/],
    [{ rows: 1e13 }, 'BAD_ARGUMENT', /more than a shard may have/],
    [{ rows: 1e12, groups: 1 }, 'BAD_ARGUMENT', /more than a shard may have/],
  ])('refuses %o', (wrong, code, message) => {
    expect(() => planJob({ ...QUESTION, ...wrong })).toThrowError(
      expect.objectContaining({ code, message: expect.stringMatching(message) }),
    );
  });
});

describe('throughput', () => {
  it('is what the workers take while nothing holds them back', () => {
    expect(throughput(QUESTION, 8)).toMatchObject({ steps: 100, keys: 204_800, limit: 'workers' });
  });

  it('is what keeps a PS busy all the time, or its network, where workers want more', () => {
    const many = { ...QUESTION, workers: 10_000 };
    const { steps, limit } = throughput(many, 8);
    expect(limit).toBe('PS');
    expect(nodeLoad({ ...many, workers: steps * many.step }, 8).busy).toBeCloseTo(1, 6);
    const thin = { ...QUESTION, network: 1e6 };
    const found = throughput(thin, 8);
    expect(found.limit).toBe('network');
    const { sent, received } = nodeLoad({ ...thin, workers: found.steps * thin.step }, 8);
    expect(Math.max(sent, received)).toBeCloseTo(1e6, 0);
  });

  it('counts clients, too, where all share the processors', () => {
    const shared = throughput({ ...QUESTION, workers: 1000, processors: 2 }, 8);
    expect(shared.limit).toBe('processors');
    const free = { ...QUESTION.rates, clientRow: 1e-12, clientSection: 1e-12 };
    const without = throughput({ ...QUESTION, workers: 1000, processors: 2, rates: free }, 8);
    expect(without.steps).toBeGreaterThan(shared.steps);
  });
});

it('rates are those that are given, else the default ones', () => {
  expect(ratesWith({ idle: 0.1 })).toEqual({ ...DEFAULT_RATES, idle: 0.1 });
  expect(() => ratesWith({ speed: 1 })).toThrowError(/there is no rate "speed"/);
  expect(() => ratesWith({ idle: -1 })).toThrowError(/must be a number above 0/);
});

it('the interval between checkpoints loses least', () => {
  const given = {
    bytes: 1e10,
    between: 1e6,
    writeBytes: 1e9,
    shareMeanwhile: 0.5,
    restoreBytes: 1e9,
    restart: 5,
  };
  const { interval, share } = checkpointCost(given);
  expect(interval).toBeCloseTo(Math.sqrt(2 * 5 * 1e6), 3);
  const lost = (seconds: number): number => 5 / seconds + (seconds / 2 + 15) / 1e6;
  expect(share).toBeCloseTo(lost(interval), 9);
  for (const other of [0.7, 1.3]) expect(lost(interval * other)).toBeGreaterThan(share);
});
