import { expect, test } from 'vitest';
import { checkKills, KillPlan, parseKill } from '../../../src/fleet/local/kills.js';

test('kills name a role, perhaps an index, and a percentage', () => {
  expect(parseKill('ps@50%')).toEqual({ role: 'ps', index: undefined, percent: 50 });
  expect(parseKill('ps:2@80%')).toEqual({ role: 'ps', index: 2, percent: 80 });
  expect(parseKill('scheduler@0.5%')).toEqual({ role: 'scheduler', index: undefined, percent: 0.5 });
  for (const text of [
    '',
    'ps',
    'ps@50',
    'ps:@50%',
    'ps:-1@5%',
    'ps@-5%',
    'ps@101%',
    'ps@50%x',
    'PS@50%',
    'ps @50%',
  ]) {
    expect(() => parseKill(text), text).toThrow(expect.objectContaining({ code: 'BAD_ARGUMENT' }));
  }
  expect(parseKill('worker@50%')).toEqual({ role: 'worker', index: undefined, percent: 50 });
  expect(parseKill('worker-1@50%')).toEqual({ role: 'worker', index: 1, percent: 50 });
});

test('an index must be one of the job', () => {
  expect(() => checkKills([parseKill('ps:5@1%')], 6, 2)).not.toThrow();
  expect(() => checkKills([parseKill('ps:6@1%')], 6, 2)).toThrow(/indices 0 to 5/);
  expect(() => checkKills([parseKill('scheduler:1@1%')], 6, 2)).toThrow(/only index 0/);
  expect(() => checkKills([parseKill('worker:2@1%')], 6, 2)).toThrow(/indices 0 to 1/);
  expect(() => checkKills([parseKill('all@1%')], 6, 2)).not.toThrow();
  expect(() => checkKills([parseKill('all:0@1%')], 6, 2)).toThrow(/has no index/);
});

test('every kill is due once, in the order of progress', () => {
  const plan = new KillPlan([parseKill('ps:1@80%'), parseKill('ps:0@50%'), parseKill('ps:2@100%')], 200, 1);
  expect(plan.due(99)).toEqual([]);
  expect(plan.due(100).map((kill) => kill.index)).toEqual([0]);
  expect(plan.due(100)).toEqual([]);
  expect(plan.due(200).map((kill) => kill.index)).toEqual([1, 2]);
});

test('the seed chooses, the same way every time', () => {
  const live = ['a', 'b', 'c', 'd', 'e'];
  const choices = (seed: number) => {
    const plan = new KillPlan([], 1, seed);
    return Array.from({ length: 20 }, () => plan.choose(live));
  };
  expect(choices(1)).toEqual(choices(1));
  expect(choices(1)).not.toEqual(choices(2));
  expect(new Set(choices(1)).size).toBe(live.length);
  expect(new KillPlan([], 1, 1).choose([])).toBeUndefined();
});
