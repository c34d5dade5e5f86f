// The planner under random clusters: its plans are balanced, cheap and lawful, and planning ends.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  isSwapOf,
  type PlanInput,
  type PlannedMove,
  planMoves,
  type Seat,
  seatsOf,
  type Weight,
} from '../../../src/core/placement/balance.js';
import { formGroups } from '../../../src/core/placement/form.js';
import { CAPABILITIES, type Group, type NodeEntry, type Pool, seatOf } from '../../../src/protocol/map.js';
import { Random } from '../../../src/sim/random.js';

const node = (id: number, host = `host-${id}`): NodeEntry => ({
  id,
  inc: 1,
  name: `ps-${id}`,
  host,
  address: `127.0.0.1:${id}`,
  standby: false,
});
const nodes = (from: number, to: number, host?: (id: number) => string): NodeEntry[] =>
  Array.from({ length: to - from + 1 }, (_, i) => node(from + i, host?.(from + i)));
const EQUAL = () => ({ bytes: 4096, load: 1 });

function formed(k: number, r: number, groups: number, on: NodeEntry[]): Group[] {
  const pools: Pool[] = [{ name: 'embedding', k, r, firstGroup: 0, groups }];
  let sid = 1;
  return formGroups(pools, on, 2, () => sid++);
}

/** The map after all of the moves. */
function moved(groups: readonly Group[], moves: readonly PlannedMove[]): Group[] {
  return groups.map((group) => ({
    ...group,
    data: group.data.map((entry, index) => {
      const move = moves.find((m) => m.g === group.id && m.kind === 'M' && m.index === index);
      return move ? { ...entry, node: move.to } : entry;
    }),
    sinks: group.sinks.map((sink) => {
      const move = moves.find((m) => m.g === group.id && m.kind === 'P' && m.index === sink.index);
      return move ? { ...sink, node: move.to } : sink;
    }),
  }));
}

function counts(groups: readonly Group[], on: readonly NodeEntry[]): number[] {
  const seats = groups.flatMap(seatsOf);
  return on.map(({ id }) => seats.filter((seat) => seat.node === id).length);
}
const spreadOf = (numbers: readonly number[]): number => Math.max(...numbers) - Math.min(...numbers);

function expectDistinct(groups: readonly Group[]): void {
  for (const group of groups) {
    const used = seatsOf(group).map((seat) => seat.node);
    expect(new Set(used).size).toBe(used.length);
  }
}

/**
 * Most plans in a row: a plan moves a shard once, and where that does not suffice, the next one continues.
 */
const ROUNDS = 20;

/**
 * Plans until no move is left: once where shards weigh the same. The target of every move must have no seat
 * of the group when its turn comes.
 */
function settle(
  groups: Group[],
  input: Omit<PlanInput, 'groups'>,
  rounds = 1,
): { groups: Group[]; moves: PlannedMove[] } {
  let after = groups;
  const moves: PlannedMove[] = [];
  for (let round = 0; round < rounds; round++) {
    const more = planMoves({ groups: after, ...input });
    for (const move of more) {
      if (move.swap?.kind === 'P') continue;
      after = moved(after, [move, ...more.filter((other) => isSwapOf(move, other))]);
      expectDistinct(after);
    }
    moves.push(...more);
    if (more.length === 0) return { groups: after, moves };
  }
  expect(planMoves({ groups: after, ...input })).toEqual([]);
  return { groups: after, moves };
}

const shape = fc.record({
  k: fc.integer({ min: 1, max: 5 }),
  r: fc.integer({ min: 0, max: 3 }),
  groups: fc.integer({ min: 1, max: 12 }),
  spare: fc.integer({ min: 0, max: 4 }),
  more: fc.integer({ min: 1, max: 8 }),
});

describe('growing', () => {
  it('ends balanced to one shard, and moves no more than the new nodes take', () => {
    fc.assert(
      fc.property(shape, ({ k, r, groups, spare, more }) => {
        const old = k + r + spare;
        const before = settle(
          formed(k, r, groups, nodes(1, old)),
          {
            nodes: nodes(1, old),
            leaving: [],
            weight: EQUAL,
          },
          ROUNDS,
        ).groups;
        const all = nodes(1, old + more);
        const { groups: after, moves } = settle(before, { nodes: all, leaving: [], weight: EQUAL }, ROUNDS);
        expectDistinct(after);
        expect(spreadOf(counts(after, all))).toBeLessThanOrEqual(1);
        // Every move goes to a new node: old nodes exchange no shards.
        expect(moves.every((move) => move.to > old && move.from <= old)).toBe(true);
        const seats = groups * (k + r);
        expect(moves.length).toBeLessThanOrEqual(more * Math.ceil(seats / (old + more)));
      }),
      { numRuns: 200 },
    );
  });

  it('moves about 1/(n+1) of the shards to one more node', () => {
    const before = formed(4, 1, 5, nodes(1, 5));
    const { moves } = settle(before, { nodes: nodes(1, 6), leaving: [], weight: EQUAL });
    expect(moves.length).toBe(Math.floor(25 / 6));
  });
});

describe('where every group has a seat on every node', () => {
  it('data and parity swap until no node has half a share of data shards more than another', () => {
    const square = fc.record({
      k: fc.integer({ min: 1, max: 5 }),
      r: fc.integer({ min: 1, max: 3 }),
      groups: fc.integer({ min: 1, max: 12 }),
      seed: fc.nat(),
    });
    fc.assert(
      fc.property(square, ({ k, r, groups, seed }) => {
        const all = nodes(1, k + r);
        const random = new Random(seed);
        const shuffled = formed(k, r, groups, all).map((group) => {
          const drawn = all.map(({ id }) => ({ id, at: random.next() })).sort((a, b) => a.at - b.at);
          const order = drawn.map(({ id }) => id);
          const data = group.data.map((entry, m) => ({ ...entry, node: order[m]! }));
          const sinks = group.sinks.map((sink) => ({ ...sink, node: order[k + sink.index]! }));
          return { ...group, data, sinks };
        });
        const input = { nodes: all, leaving: [], weight: EQUAL };
        const { groups: after, moves } = settle(shuffled, input, ROUNDS);
        expect(moves.every((move) => moves.some((other) => isSwapOf(move, other)))).toBe(true);
        const data = all.map(({ id }) => after.flatMap((g) => g.data).filter((e) => e.node === id).length);
        expect(spreadOf(data)).toBeLessThanOrEqual(Math.max(1, (groups * k) / all.length / 2));
      }),
      { numRuns: 200 },
    );
  });
});

describe('with two pools, of which one has a seat on every node', () => {
  /** Plans in a row that are enough in any case. */
  const MANY = 400;

  /** Carries out one plan after the other, from the same weights, until one has no moves. */
  function planned(groups: Group[], on: NodeEntry[], weights: ReadonlyMap<string, Weight>): Group[] {
    const weight = ({ g, kind, index }: Seat) => weights.get(`${g}${kind}${index}`)!;
    return settle(groups, { nodes: on, leaving: [], weight }, MANY).groups;
  }

  const groupOf = (id: number, data: number[], parity: number[]): Group => ({
    id,
    pool: id,
    version: 1,
    data: data.map((at) => ({ node: at, inc: 1, gen: 1, init: false })),
    sinks: parity.map((at, index) => {
      const sid = 10 * id + index + 1;
      return { sid, kind: 'P', index, node: at, inc: 1, init: false, ...CAPABILITIES.P };
    }),
  });

  it('moves of one pool do not undo swaps of the other, which undo them', () => {
    const weights = new Map<string, Weight>([
      ['0M0', { bytes: 95, load: 13 }],
      ['0M1', { bytes: 95, load: 13 }],
      ['0M2', { bytes: 103, load: 14 }],
      ['0P0', { bytes: 103, load: 40 }],
      ['0P1', { bytes: 103, load: 40 }],
      ['1M0', { bytes: 27, load: 11 }],
      ['1P0', { bytes: 27, load: 11 }],
      ['1P1', { bytes: 27, load: 11 }],
    ]);
    planned([groupOf(0, [4, 5, 2], [1, 3]), groupOf(1, [1], [4, 2])], nodes(1, 5), weights);
  });

  it('planning ends, whatever seats weigh', () => {
    const shapes = fc.record({
      k: fc.integer({ min: 1, max: 4 }),
      r: fc.integer({ min: 1, max: 2 }),
      groups: fc.integer({ min: 1, max: 4 }),
      mirrored: fc.integer({ min: 0, max: 3 }),
      seed: fc.nat(),
    });
    fc.assert(
      fc.property(shapes, ({ k, r, groups, mirrored, seed }) => {
        const all = nodes(1, k + r);
        const random = new Random(seed);
        const shuffled = () =>
          all
            .map(({ id }) => ({ id, at: random.next() }))
            .sort((a, b) => a.at - b.at)
            .map(({ id }) => id);
        const jobs = Array.from({ length: groups + mirrored }, (_, id) => {
          const order = shuffled();
          const width = id < groups ? k : 1;
          return groupOf(id, order.slice(0, width), order.slice(width, width + r));
        });
        const weights = new Map(
          jobs.flatMap((job) =>
            seatsOf(job).map(({ g, kind, index }): [string, Weight] => [
              `${g}${kind}${index}`,
              { bytes: 90 + random.below(20), load: 10 + random.below(kind === 'P' ? 40 : 10) },
            ]),
          ),
        );
        planned(jobs, all, weights);
      }),
      { numRuns: 1000 },
    );
  });

  it('a group with two seats on one node swaps nothing: that is left to repair', () => {
    const crowded = groupOf(0, [1, 1, 1, 5], [5]);
    const input = { nodes: [node(1), node(5)], leaving: [], weight: EQUAL };
    expect(planMoves({ groups: [crowded], ...input })).toEqual([]);
  });
});

describe('shrinking', () => {
  it('empties the nodes that leave, ends balanced, and moves little else', () => {
    fc.assert(
      fc.property(shape, ({ k, r, groups, spare, more }) => {
        const all = nodes(1, k + r + spare + more);
        const before = settle(
          formed(k, r, groups, all),
          { nodes: all, leaving: [], weight: EQUAL },
          ROUNDS,
        ).groups;
        const stay = nodes(1, k + r + spare);
        const leaving = nodes(stay.length + 1, all.length);
        const held = counts(before, leaving).reduce((sum, count) => sum + count, 0);
        const { groups: after, moves } = settle(before, { nodes: stay, leaving, weight: EQUAL }, ROUNDS);
        expectDistinct(after);
        expect(counts(after, leaving).every((count) => count === 0)).toBe(true);
        expect(spreadOf(counts(after, stay))).toBeLessThanOrEqual(1);
        // Where the lightest node has seats of all groups, another shard has to make room.
        expect(moves.filter(({ swap }) => !swap).length).toBeLessThanOrEqual(held + groups);
      }),
      { numRuns: 200 },
    );
  });

  it('leaves a shard where it is when no other node is free for it', () => {
    const all = nodes(1, 3);
    const groups = formed(2, 1, 1, all);
    expect(planMoves({ groups, nodes: nodes(1, 2), leaving: [node(3)], weight: EQUAL })).toEqual([]);
  });
});

describe('weights', () => {
  const weightOf =
    (sizes: readonly number[]) =>
    ({ g, kind, index }: Seat) => ({
      bytes: sizes[(g * 7 + index * 3 + (kind === 'P' ? 1 : 0)) % sizes.length]!,
      load: 0,
    });

  it('whatever they are, it ends, is lawful, and no single move would help much', () => {
    fc.assert(
      fc.property(
        shape,
        fc.array(fc.nat(1_000_000), { minLength: 1, maxLength: 20 }),
        ({ k, r, groups, spare, more }, sizes) => {
          const old = k + r + spare;
          const all = nodes(1, old + more);
          const weight = weightOf(sizes);
          settle(formed(k, r, groups, nodes(1, old)), { nodes: all, leaving: [], weight }, ROUNDS);
        },
      ),
      { numRuns: 200 },
    );
  });

  it('balances bytes before numbers: large shards stay apart, a small one goes to the empty node', () => {
    // Two groups of 1+1: the shards of group 0 are a hundred times as large.
    const groups = formed(1, 1, 2, nodes(1, 2));
    const weight = ({ g }: Seat) => ({ bytes: g === 0 ? 1e6 : 1e4, load: 0 });
    const { moves } = settle(groups, { nodes: nodes(1, 3), leaving: [], weight });
    expect(moves).toEqual([expect.objectContaining({ g: 1, to: 3 })]);
  });

  it('among equal bytes the busier shard moves to the idle node', () => {
    const groups = formed(2, 0, 4, nodes(1, 2));
    const weight = ({ g, index }: Seat) => ({ bytes: 4096, load: g === 1 && index === 0 ? 4 : 1 });
    const { moves } = settle(groups, { nodes: nodes(1, 3), leaving: [], weight });
    expect(moves).toContainEqual(expect.objectContaining({ g: 1, kind: 'M', index: 0, to: 3 }));
  });
});

describe('hosts', () => {
  it('parts members of a group that share a host once hosts suffice, and never puts two together', () => {
    fc.assert(
      fc.property(shape, fc.integer({ min: 1, max: 6 }), ({ k, r, groups, spare, more }, hosts) => {
        const crowded = nodes(1, k + r + spare, (id) => `host-${id % hosts}`);
        const all = [...crowded, ...nodes(crowded.length + 1, crowded.length + k + r + more)];
        const { groups: after } = settle(
          formed(k, r, groups, crowded),
          {
            nodes: all,
            leaving: [],
            weight: EQUAL,
          },
          ROUNDS,
        );
        expectDistinct(after);
        for (const group of after) {
          const used = seatsOf(group).map((seat) => all.find((entry) => entry.id === seat.node)!.host);
          expect(new Set(used).size).toBe(used.length);
        }
      }),
      { numRuns: 100 },
    );
  });
});

describe('zones', () => {
  it('come to have equally many members of each group, on different hosts', () => {
    const zones = fc.integer({ min: 1, max: 4 });
    fc.assert(
      fc.property(shape, zones, fc.nat(3), ({ k, r, groups, spare }, count, misplaced) => {
        // The nodes are in the order in which they joined, zone by zone, so groups lie in few zones.
        const first = nodes(
          1,
          k + r + spare,
          (id) => `zone-${id % Math.min(count, misplaced + 1)}/host-${id}`,
        );
        const rest = nodes(
          first.length + 1,
          first.length + (k + r) * count,
          (id) => `zone-${id % count}/host-${id}`,
        );
        const all = [...first, ...rest];
        const input = { nodes: all, leaving: [], weight: EQUAL };
        const { groups: after } = settle(formed(k, r, groups, first), input, ROUNDS);
        expectDistinct(after);
        for (const group of after) {
          const used = seatsOf(group).map((seat) => all.find((entry) => entry.id === seat.node)!.host);
          expect(new Set(used).size).toBe(used.length);
          const inZone = Array.from({ length: count }, (_, zone) =>
            used.filter((host) => host.startsWith(`zone-${zone}/`)),
          );
          const sizes = inZone.map(({ length }) => length);
          expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThanOrEqual(1);
        }
      }),
      { numRuns: 100 },
    );
  });
});

describe('moves under way', () => {
  it('count as done: planning again goes on where the last plan was', () => {
    const all = nodes(1, 7);
    const groups = formed(4, 1, 5, nodes(1, 5));
    const input = { nodes: all, leaving: [], weight: EQUAL };
    const moves = planMoves({ groups, ...input });
    const [first, ...rest] = moves;
    const started = groups.map((group) => {
      if (group.id !== first!.g) return group;
      const { kind, index, to } = first!;
      const place = { sid: 99, kind, index, node: to, inc: 1, init: false };
      const sink = { ...place, ...CAPABILITIES[kind], movesMember: seatOf(group, first!) };
      return { ...group, sinks: [...group.sinks, sink] };
    });
    expect(planMoves({ groups: started, ...input }).length).toBe(rest.length);
  });
});
