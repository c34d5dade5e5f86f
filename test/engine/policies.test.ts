// Policies of tables: which are valid, their text, and the parts of them that shards have.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import {
  decayedSightings,
  type FrequencyDecay,
  isSamePolicy,
  MOST_LIFE,
  mixesClocks,
  parsedPolicy,
  policyOfShard,
  policyText,
  secondsOf,
  type TablePolicy,
} from '../../src/engine/policies.js';
import { onlyKnownPolicy, policyProblem } from '../../src/engine/policy-checks.js';
import { policyChangeProblem } from '../../src/protocol/policy-changes.js';
import { section } from '../core/client-actor.js';
import { native } from './native.support.js';

const time = fc.integer({ min: 1, max: MOST_LIFE });
const rows = fc.integer({ min: 1, max: 2 ** 48 });
const norm = fc.float({ min: Math.fround(1e-30), noNaN: true, noDefaultInfinity: true });
/** Any policy that is valid, without a field that says nothing. */
const policies: fc.Arbitrary<TablePolicy> = fc
  .record({
    ttl: fc.option(time, { nil: undefined }),
    minFrequency: fc.option(
      fc.record(
        {
          sightings: time,
          ttl: time,
          decay: fc.record({ factor: fc.double({ min: 1e-5, max: 0.9999, noNaN: true }), every: time }),
        },
        { requiredKeys: ['sightings', 'ttl'] },
      ),
      { nil: undefined },
    ),
    l2Below: fc.option(fc.record({ norm, ttl: time }), { nil: undefined }),
    clock: fc.constantFrom(undefined, 'seconds' as const),
    keep: fc.option(rows, { nil: undefined }),
    maxRows: fc.option(rows, { nil: undefined }),
    memory: fc.constantFrom(undefined, true as const),
    score: fc.constantFrom(undefined, true as const),
    counter: fc.option(time, { nil: undefined }),
  })
  .filter((policy) => policyProblem(policy) === undefined)
  .map((policy) => onlyKnownPolicy(policy));

it('a text is what the policy was, to the bit', () => {
  fc.assert(
    fc.property(policies, (policy) => {
      const text = policyText(policy);
      expect(parsedPolicy(text)).toEqual(policy);
      expect(policyText(parsedPolicy(text)!)).toBe(text);
      expect(mixesClocks(text)).toBe(false);
      expect(isSamePolicy(policy, { ...policy })).toBe(true);
    }),
  );
});

it('times have units, which all ttls have or none', () => {
  const day = { ttl: 86_400, clock: 'seconds' };
  expect(
    ['evict=ttl(24h)', 'evict=ttl(1d)', 'evict=ttl( 1440m )', 'evict=ttl(86400s)'].map(parsedPolicy),
  ).toEqual([day, day, day, day]);
  expect(policyText(day as TablePolicy)).toBe('evict=ttl(86400s)');
  const whole = 'evict=ttl(7d),evict=minFrequency(5,12h,0.99,1h),evict=l2Below(0.1,30m),evict=keep(1000)';
  expect(parsedPolicy(whole)).toEqual({
    ttl: 7 * 86_400,
    minFrequency: { sightings: 5, ttl: 43_200, decay: { factor: 0.99, every: 3600 } },
    l2Below: { norm: 0.1, ttl: 1800 },
    keep: 1000,
    clock: 'seconds',
  });
  expect(policyText(parsedPolicy(whole)!)).toBe(
    'evict=ttl(604800s),evict=minFrequency(5,43200s,0.99,3600s),evict=l2Below(0.1,1800s),evict=keep(1000)',
  );
  expect(parsedPolicy('evict=minFrequency(5,500,0.99,1000)')).toEqual({
    minFrequency: { sightings: 5, ttl: 500, decay: { factor: 0.99, every: 1000 } },
  });
  expect(isSamePolicy({ ttl: 60 }, { ttl: 60, clock: 'seconds' })).toBe(false);
  for (const text of [
    'evict=ttl(24h),evict=l2Below(0.1,30)',
    'evict=ttl(24),evict=minFrequency(5,30m)',
    'evict=minFrequency(5,30m,0.99,60)',
    'evict=minFrequency(5,30,0.99,60s)',
  ])
    expect([parsedPolicy(text), mixesClocks(text)], text).toEqual([undefined, true]);
  for (const text of [
    'evict=ttl(h)',
    'evict=ttl(1.5h)',
    'evict=ttl(-1h)',
    'evict=ttl(1w)',
    'evict=ttl(1H)',
    'evict=ttl(5ms)',
    'evict=ttl(1 h)',
    'evict=keep(5h)',
    'evict=keep',
    'evict=maxRows(5s)',
    'evict=minFrequency(5h,5h)',
    'evict=minFrequency(5,500,0.99)',
    'evict=minFrequency(5,500,0.99h,10h)',
    'evict=minFrequency(5,500,0.99,10,1)',
    'evict=l2Below(1s,5s)',
    'admit=counter(5s)',
    'evict=clock(5)',
  ])
    expect([parsedPolicy(text), mixesClocks(text)], text).toEqual([undefined, false]);
  expect(['0s', '90s', '2m', '24h', '7d', '5', 's', '1.5h', '1h '].map(secondsOf)).toEqual([
    ...[0, 90, 120, 86_400, 604_800],
    ...[undefined, undefined, undefined, 3600],
  ]);
});

it('a clock, rows that stay and a decay are refused where they say nothing', () => {
  const decay = { factor: 0.99, every: 1000 };
  const rare = (given: object) => ({
    minFrequency: { sightings: 5, ttl: 500, decay: { ...decay, ...given } },
  });
  const FACTOR = 'policy: minFrequency.decay.factor must be a number above 0 and below 1';
  for (const [policy, message] of [
    [{ clock: 'seconds' }, 'policy: clock says what ttls are counted in: it needs one'],
    [{ clock: 'seconds', maxRows: 5, counter: 2 }, 'policy: clock says what ttls are counted in'],
    [{ clock: 'steps', ttl: 5 }, 'policy: clock must be "seconds", or left out: steps'],
    [{ clock: true, ttl: 5 }, 'policy: clock must be "seconds"'],
    [{ clock: 'seconds', ttl: 2 ** 29 }, 'policy: ttl must be an integer from 1 to 536870911'],
    [{ clock: 'seconds', ttl: 0.5 }, 'policy: ttl must be an integer'],
    [{ keep: 5 }, 'policy: keep says how many rows stay in spite of ttl: it needs one'],
    [{ keep: 5, minFrequency: { sightings: 2, ttl: 3 } }, 'policy: keep says how many rows'],
    [{ keep: 0, ttl: 5 }, 'policy: keep must be an integer from 1 to 281474976710656'],
    [{ keep: 2 ** 48 + 1, ttl: 5 }, 'policy: keep must be an integer'],
    [{ keep: 1.5, ttl: 5 }, 'policy: keep must be an integer'],
    [
      { minFrequency: { sightings: 5, ttl: 5, decay: 0.5 } },
      'minFrequency.decay must be an object of factor, every',
    ],
    [{ minFrequency: { sightings: 5, ttl: 5, decay: null } }, 'minFrequency.decay must be an object'],
    [rare({ factor: 0 }), FACTOR],
    [rare({ factor: 1 }), FACTOR],
    [rare({ factor: 1 - 2 ** -18 }), FACTOR],
    [rare({ factor: 2 ** -18 }), FACTOR],
    [rare({ factor: Number.NaN }), FACTOR],
    [rare({ factor: '0.5' }), FACTOR],
    [rare({ factor: undefined }), FACTOR],
    [rare({ every: 0 }), 'policy: minFrequency.decay.every must be an integer from 1 to 536870911'],
    [rare({ every: undefined }), 'policy: minFrequency.decay.every must be an integer'],
    [rare({ x: 1 }), 'policy: minFrequency.decay has no field "x"'],
    [{ ...rare({}), counter: 2 }, 'policy: by decay a row that counter admitted would lose its admission'],
  ] as const)
    expect(policyProblem(policy), JSON.stringify(policy)).toContain(message);
  for (const factor of [2 ** -16, 0.5, 1 - 2 ** -16]) expect(policyProblem(rare({ factor }))).toBeUndefined();
  const bloom = { bloom: { sightings: 2 } };
  expect(policyProblem({ ...rare({}), ...bloom, clock: 'seconds' })).toBeUndefined();
  expect(policyProblem({ ttl: MOST_LIFE, keep: 2 ** 48 })).toBeUndefined();
  const surplus = { ...rare({}), minFrequency: { ...rare({}).minFrequency, decay: { ...decay, more: 1 } } };
  expect(onlyKnownPolicy(surplus as TablePolicy)).toEqual(rare({}));
});

it('a shard has its part of the rows that stay, rounded up', () => {
  expect(policyOfShard({ ttl: 5, keep: 10, maxRows: 20 }, 3)).toEqual({ ttl: 5, keep: 4, maxRows: 7 });
  expect(policyOfShard({ ttl: 5, keep: 1 }, 3)).toEqual({ ttl: 5, keep: 1 });
});

it('a table keeps its clock, and changes what it keeps and how sightings decay', () => {
  const [steps, seconds]: TablePolicy[] = [{ ttl: 60 }, { ttl: 60, clock: 'seconds' }];
  const text = (policy: TablePolicy, given: TablePolicy) => policyChangeProblem(policy, given);
  expect(text(steps!, seconds!)).toContain('the ages of its rows are steps');
  expect(text({ maxRows: 5 }, seconds!)).toContain('the ages of its rows are steps');
  expect(text(seconds!, steps!)).toBe(
    'the ages of its rows are seconds from its creation on: ttls of its policy are, too',
  );
  expect(text(seconds!, { maxRows: 5 })).toBe(
    'the ages of its rows are seconds from its creation on: its policy has a ttl, for example a long one',
  );
  const decay = { factor: 0.5, every: 10 };
  const minFrequency = { sightings: 3, ttl: 5, decay };
  expect(text(seconds!, { ttl: 5, keep: 7, minFrequency, clock: 'seconds' })).toBeUndefined();
  expect(text(steps!, { ttl: 5, keep: 7, minFrequency })).toBeUndefined();
});

it('sightings decay by parts of 65,536, and are rounded once', () => {
  const decay = (factor: number) => ({ factor, every: 10 });
  const after = (times: number, factor = 0.5) => decayedSightings(100, decay(factor), times);
  expect([0, 1, 2, 3, 4, 7, 8].map((times) => after(times))).toEqual([100, 50, 25, 13, 6, 1, 0]);
  expect([after(1, 0.99), after(2, 0.99), after(50, 0.99)]).toEqual([99, 98, 61]);
  expect(after(10 ** 9)).toBe(0);
  expect(decayedSightings(2 ** 31, decay(65_535 / 65_536), 1)).toBe(2 ** 31 - 2 ** 15);
});

it('the engine leaves as many sightings as the dry run counts, to the bit', () => {
  const [dim, first] = [2, 2 ** 29];
  const memory = native.createMemory(0);
  const left = (sightings: number, decay: FrequencyDecay, from: number, to: number): number => {
    const minFrequency = { sightings: 1, ttl: MOST_LIFE, decay };
    const shard = native.createShard(memory, 0, 1, 1);
    shard.addTable({
      ...{ id: 1, dim, seed: 0, optimizer: { kind: 'sgd', lr: 1 }, initializer: { kind: 'zeros' } },
      policy: { minFrequency, clock: 'seconds' },
    });
    const key = BigUint64Array.of(7n);
    shard.tell(from, 0);
    shard.loadRows(1, key, new Float32Array(dim), new Float32Array(Uint32Array.of(0, sightings).buffer));
    shard.tell(to, 0);
    shard.push(section([{ keys: [7], width: dim }], true), 1 << 20);
    const rows = shard.pull(section([{ keys: [7], width: dim + 2 }], false, 1)) as Uint8Array;
    shard.close();
    return new Uint32Array(rows.slice().buffer)[dim + 1]! - 1;
  };
  const most = 0x7f7fffff;
  fc.assert(
    fc.property(
      fc.oneof(fc.integer({ min: 1, max: 1000 }), fc.integer({ min: 1, max: most - 1 })),
      fc.oneof(fc.integer({ min: 1, max: 65_535 }), fc.integer({ min: 65_000, max: 65_535 })),
      fc.oneof(fc.integer({ min: 1, max: 100 }), fc.integer({ min: 1, max: MOST_LIFE })),
      fc.integer({ min: 0, max: 10 ** 6 }),
      fc.oneof(fc.integer({ min: 0, max: 10 ** 5 }), fc.integer({ min: 0, max: MOST_LIFE - 1 })),
      (sightings, parts, every, from, passed) => {
        const decay = { factor: parts / 65_536, every };
        const times = Math.floor((first + from + passed) / every) - Math.floor((first + from) / every);
        // A row of which nothing is left is gone after its ttl alone, which has not passed.
        expect(left(sightings, decay, from, from + passed)).toBe(decayedSightings(sightings, decay, times));
      },
    ),
    { numRuns: 500 },
  );
});
