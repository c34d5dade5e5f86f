// The planner with its indexes compared with the plain one: the same moves in the same order, on random
// clusters.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { type PlanInput, planMoves, type Seat } from '../../../src/core/placement/balance.js';
import { formGroups } from '../../../src/core/placement/form.js';
import { CAPABILITIES, type Group, type NodeEntry, seatOf } from '../../../src/protocol/map.js';
import { Random } from '../../../src/sim/random.js';
import { plainPlan } from './plain-planner.js';

interface Case {
  k: number;
  r: number;
  groups: number;
  mirrored: number;
  formedOn: number;
  joined: number;
  leaving: number;
  perHost: number;
  zones: number;
  moving: number;
  full: number;
  weights: 'equal' | 'close' | 'wild' | 'zero';
  seed: number;
}

const cases: fc.Arbitrary<Case> = fc.record({
  k: fc.integer({ min: 1, max: 5 }),
  r: fc.integer({ min: 0, max: 3 }),
  groups: fc.integer({ min: 1, max: 24 }),
  mirrored: fc.integer({ min: 0, max: 4 }),
  formedOn: fc.integer({ min: 8, max: 24 }),
  joined: fc.integer({ min: 0, max: 6 }),
  leaving: fc.integer({ min: 0, max: 4 }),
  perHost: fc.integer({ min: 1, max: 6 }),
  zones: fc.integer({ min: 0, max: 4 }),
  moving: fc.integer({ min: 0, max: 3 }),
  full: fc.integer({ min: 0, max: 3 }),
  weights: fc.constantFrom('equal', 'close', 'wild', 'zero'),
  seed: fc.nat(),
});

function nodeAt(index: number, { perHost, zones }: Pick<Case, 'perHost' | 'zones'>): NodeEntry {
  const machine = Math.floor(index / perHost);
  const host = zones > 0 ? `zone-${machine % zones}/host-${machine}` : `host-${machine}`;
  const address = `127.0.0.1:${index + 1}`;
  return { id: index + 1, inc: 1, name: `ps-${index}`, host, address, standby: false };
}

/** Groups in which some shards are moving already. */
function withMoves(groups: Group[], on: readonly NodeEntry[], count: number, random: Random): Group[] {
  return groups.map((group, i) => {
    const taken = new Set([...group.data, ...group.sinks].map(({ node }) => node));
    const free = on.filter(({ id }) => !taken.has(id));
    if (i >= count || free.length === 0) return group;
    const { id, inc } = random.pick(free);
    const place = { kind: 'M' as const, index: random.below(group.data.length), node: id, inc, init: false };
    const sink = { sid: 1000 + i, ...place, ...CAPABILITIES.M, movesMember: seatOf(group, place) };
    return { ...group, sinks: [...group.sinks, sink] };
  });
}

function inputOf(c: Case): PlanInput {
  const random = new Random(c.seed);
  const all = Array.from({ length: c.formedOn + c.joined }, (_, i) => nodeAt(i, c));
  const pools = [
    { name: 'embedding', k: c.k, r: c.r, firstGroup: 0, groups: c.groups },
    { name: 'mirrored', k: 1, r: c.r, firstGroup: c.groups, groups: c.mirrored },
  ];
  let sid = 1;
  const formed = formGroups(pools, all.slice(0, c.formedOn), 2, () => sid++);
  const groups = withMoves(formed, all, c.moving, random);
  const weights = new Map<string, { bytes: number; load: number }>();
  const weigh = { equal: 0, close: 0.05, wild: 3, zero: 0 }[c.weights];
  const drawn = () => (c.weights === 'zero' ? 0 : 1000 * (1 + weigh * random.next()));
  const weight = ({ g, kind, index }: Seat) => {
    const key = `${g}/${kind}${index}`;
    const known = weights.get(key) ?? { bytes: drawn(), load: drawn() };
    weights.set(key, known);
    return known;
  };
  const leaving = all.slice(0, c.leaving);
  const full = new Set(Array.from({ length: c.full }, () => random.pick(all).id));
  return { groups, nodes: all.slice(c.leaving), leaving, weight, full };
}

it('makes the plan that the plain planner makes', () => {
  fc.assert(
    fc.property(cases, (c) => {
      const input = inputOf(c);
      const moves = plainPlan(input);
      expect(planMoves(input)).toEqual(moves);
      const leaving = new Set(input.leaving.map(({ id }) => id));
      const emptying = moves.filter(({ from }) => leaving.has(from));
      expect(planMoves({ ...input, emptyOnly: true })).toEqual(emptying);
    }),
    { numRuns: 400 },
  );
});

it('plans for a thousand nodes that a hundred join', () => {
  const all = Array.from({ length: 1100 }, (_, i) => nodeAt(i, { perHost: 16, zones: 3 }));
  const pools = [{ name: 'embedding', k: 4, r: 1, firstGroup: 0, groups: 4096 }];
  let sid = 1;
  const groups = formGroups(pools, all.slice(0, 1000), 2, () => sid++);
  const random = new Random(7);
  const weight = () => ({ bytes: 1000 + random.below(100), load: 100 + random.below(20) });
  const moves = planMoves({ groups, nodes: all, leaving: [], weight });
  // 20,480 shards, 18.6 on each: a newcomer that holds 18 got 18. Weights that differ may need fewer.
  expect(moves.length).toBeGreaterThan(1600);
  expect(moves.length).toBeLessThanOrEqual(1.02 * 1800);
});
