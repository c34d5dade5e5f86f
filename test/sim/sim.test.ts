/**
 * The simulator as a smoke test: 150 schedules without a violation, and the same seed gives the same
 * schedule.
 */
import { existsSync, readFileSync } from 'node:fs';
import { beforeAll, describe, expect, it } from 'vitest';
import { loadNative } from '../../src/engine/native.js';
import type { Profile } from '../../src/sim/config.js';
import { Coverage } from '../../src/sim/coverage.js';
import { MUTANTS } from '../../src/sim/mutants/index.js';
import { compiledPath, planted } from '../../src/sim/mutants/mutant.js';
import { type ScheduleOutcome, World } from '../../src/sim/world.js';

const native = loadNative();
const SCHEDULES = 150;
const PROFILES: Profile[] = ['mixed', 'absent', 'ghosts', 'moves', 'losses', 'elastic', 'data', 'saves'];
/** Counters that the schedules must have raised, or they prove nothing. */
const COVERED = [
  'shard.active',
  'recover',
  'jointEquations',
  'schedulerRestart',
  'install',
  'rollback',
  'move',
  'promotion',
  'crash',
  'partition',
  'pulls',
  'shardsChecked',
  'adagradCompared',
  'momentumCompared',
  'adamwCompared',
  'ftrlCompared',
  'rangeFinished',
  'rangeRedone',
  'manifest',
  'restore.done',
  'survivorsChecked',
  'policySet',
];

describe(`schedules 1 to ${SCHEDULES}`, () => {
  const outcomes: ScheduleOutcome[] = [];
  beforeAll(() => {
    for (let seed = 1; seed <= SCHEDULES; seed++) outcomes.push(new World(seed, {}, native).run());
  }, 300_000);

  it('have no violation', () => {
    const violations = outcomes.filter(({ result }) => result === 'violation');
    expect(violations.map(({ seed, message }) => `seed ${seed}: ${message}`)).toEqual([]);
  });

  it('have at least 300 steps each', () => {
    expect(outcomes.filter(({ steps }) => steps < 300).map(({ seed }) => seed)).toEqual([]);
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

describe('a profile that is pinned', () => {
  it.each(PROFILES)('%s: runs without a violation', (profile) => {
    const outcomes = [1, 2, 3, 4, 5].map((seed) => new World(seed, { profile }, native).run());
    expect(outcomes.map(({ config }) => config.profile)).toEqual(Array(5).fill(profile));
    expect(outcomes.filter(({ result }) => result === 'violation')).toEqual([]);
  });
});

describe('a schedule that found something', () => {
  it('completes: replicas follow owners whose answers take longer than a question waits', () => {
    const pins = { profile: 'saves', guarded: false, faults: 8, reload: true, saveEvery: 40 } as const;
    expect(new World(70115, pins, native).run()).toMatchObject({ result: 'complete', message: '' });
  });

  it('completes: a job restored from a checkpoint that was made after a loss makes checkpoints', () => {
    expect(
      new World(2811006770, { turns: 0, filters: false, seconds: false, evictions: 0 }, native).run(),
    ).toMatchObject({
      result: 'complete',
      message: '',
    });
  });

  it('completes: the last move of a change arrives as its time is up', () => {
    expect(new World(950607, {}, native).run()).toMatchObject({ result: 'complete', message: '' });
  });
});

describe('coverage', () => {
  it('adds up what schedules went through, also what they never saw', () => {
    const coverage = new Coverage();
    const outcomes = [1, 2, 3].map((seed) => new World(seed, {}, native).run());
    for (const outcome of outcomes) coverage.add(outcome);
    const report = coverage.report(2, 1);
    expect(report.schedules).toBe(3);
    expect(report.complete + report.unrecoverable + report.violations).toBe(3);
    expect(report.steps).toBe(outcomes.reduce((sum, { steps }) => sum + steps, 0));
    expect(report.perCoreMinute).toBe(180);
    const crashes = outcomes.reduce((sum, { stats }) => sum + (stats.crash ?? 0), 0);
    expect(report.perThousand.crashes).toBeCloseTo((crashes / 3) * 1000, 0);
    expect(new Coverage().report(1, 1).perThousand.takeovers).toBe(0);
  });

  it('of several runs is that of one run over all seeds', () => {
    const [one, two, both] = [new Coverage(), new Coverage(), new Coverage()];
    for (const seed of [5, 6, 7, 8]) {
      const outcome = new World(seed, {}, native).run();
      (seed < 7 ? one : two).add(outcome);
      both.add(outcome);
    }
    const merged = new Coverage();
    merged.merge(JSON.parse(JSON.stringify(one.report(2, 1))));
    merged.merge(two.report(3, 2));
    const { seeds, ...report } = merged.report(0, 0);
    expect(report).toEqual({ ...both.report(5, 3), seeds: undefined });
    expect(seeds).toEqual([
      [5, 6],
      [7, 8],
    ]);
    expect(() => merged.merge(one.report(1, 1))).toThrow('in two reports');
  });

  it('names every schedule that broke a guarantee or did not complete though it should have', () => {
    const coverage = new Coverage();
    const outcome = new World(1, {}, native).run();
    coverage.add({ ...outcome, result: 'violation', message: 'two and two is five' });
    coverage.add({ ...outcome, seed: 2, result: 'unrecoverable', overwhelmed: false });
    coverage.add({ ...outcome, seed: 3, result: 'unrecoverable', overwhelmed: true });
    const report = coverage.report(1, 1);
    expect(report.failures).toEqual([
      { seed: 1, step: outcome.steps, reason: 'two and two is five' },
      { seed: 2, step: outcome.steps, reason: 'unrecoverable' },
    ]);
    expect(report.seeds).toEqual([[1, 3]]);
  });
});

describe('mutants', () => {
  it('have names of their own, and change something', () => {
    expect(new Set(MUTANTS.map(({ name }) => name)).size).toBe(MUTANTS.length);
    expect(MUTANTS.filter(({ from, to }) => from === to)).toEqual([]);
    const moves = MUTANTS.filter(({ name }) => name.startsWith('move: ')).length;
    expect(moves).toBeGreaterThanOrEqual(5);
    expect(MUTANTS.length - moves).toBeGreaterThanOrEqual(15);
  });

  it.each(MUTANTS)('$name: its text is in the compiled core', (mutant) => {
    const file = new URL(`../../dist/src/${compiledPath(mutant)}`, import.meta.url);
    const compiled = readFileSync(file, 'utf8');
    expect(planted(mutant, compiled)).not.toBe(compiled);
    if (mutant.scenario) expect(existsSync(mutant.scenario.test)).toBe(true);
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
