/** The simulator as a smoke test: some hundred schedules without a violation, and the same seed is the same story. */
import { beforeAll, describe, expect, it } from 'vitest';
import { loadNative } from '../../src/native.js';
import { type Outcome, World } from '../../src/sim/world.js';

const native = loadNative();
const SCHEDULES = 300;
/** What the schedules must have gone through, or they prove nothing. */
const COVERED = [
  'shard.active',
  'recover',
  'jointEquations',
  'schedulerRestart',
  'install',
  'crash',
  'partition',
  'pulls',
];

describe(`schedules 1 to ${SCHEDULES}`, () => {
  const outcomes: Outcome[] = [];
  beforeAll(() => {
    for (let seed = 1; seed <= SCHEDULES; seed++) outcomes.push(new World(seed, {}, native).run());
  }, 300_000);

  it('have no violation', () => {
    const violations = outcomes.filter(({ result }) => result === 'violation');
    expect(violations.map(({ seed, message }) => `seed ${seed}: ${message}`)).toEqual([]);
  });

  it('complete whenever no more than r members lacked something', () => {
    const within = outcomes.filter(({ overwhelmed }) => !overwhelmed);
    expect(within.length).toBeGreaterThan(SCHEDULES / 2);
    expect(within.filter(({ result }) => result !== 'complete').map(({ seed }) => seed)).toEqual([]);
  });

  it.each(COVERED)('went through %s', (name) => {
    expect(outcomes.reduce((sum, { stats }) => sum + (stats[name] ?? 0), 0)).toBeGreaterThan(0);
  });

  it('lost more than the code covers now and then', () => {
    expect(outcomes.some(({ overwhelmed }) => overwhelmed)).toBe(true);
  });
});

describe('determinism', () => {
  it.each([3, 17, 42])('seed %i: the same outcome and the same transcript', (seed) => {
    const [one, two] = [0, 1].map(() => {
      const world = new World(seed, {}, native, true);
      return { outcome: world.run(), transcript: world.transcript! };
    });
    expect(one!.transcript.length).toBeGreaterThan(50);
    expect(two).toEqual(one);
  });

  it('another seed is another story', () => {
    const steps = [1, 2, 3, 4].map((seed) => new World(seed, {}, native).run().steps);
    expect(new Set(steps).size).toBeGreaterThan(1);
  });
});
