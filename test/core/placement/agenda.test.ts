/** The agenda of moves: a swap is open while both halves are, and a plan with half of one is made again. */
import { expect, it } from 'vitest';
import { Agenda } from '../../../src/core/placement/agenda.js';
import { type PlannedMove, seatsOf } from '../../../src/core/placement/balance.js';
import { CAPABILITIES, type Group } from '../../../src/protocol/map.js';

const group = (data: number[], parity: number): Group => ({
  id: 0,
  pool: 0,
  version: 1,
  data: data.map((node) => ({ node, inc: 1, gen: 1, init: true })),
  sinks: [{ sid: 1, kind: 'P', index: 0, node: parity, inc: 1, init: true, ...CAPABILITIES.P }],
});
const shard = { g: 0, kind: 'M', index: 0 } as const;
const parity = { g: 0, kind: 'P', index: 0 } as const;
const swap: PlannedMove[] = [
  { ...shard, from: 1, to: 3, bytes: 0, swap: parity },
  { ...parity, from: 3, to: 1, bytes: 0, swap: shard },
];
const weigh = () => ({ bytes: 0, load: 0 });

it('both halves are open until both have begun; where one seat went alone, another plan is made', () => {
  const plans: number[][] = [];
  const open = (groups: Group[]) =>
    agenda.open('key', groups, weigh, () => {
      plans.push(groups.flatMap(seatsOf).map(({ node }) => node));
      return plans.length === 1 ? swap : [];
    });
  const agenda = new Agenda();
  expect(open([group([1, 2], 3)])).toEqual(swap);
  expect(open([group([1, 2], 3)])).toEqual(swap);
  expect(plans.length).toBe(1);
  // The parity was lost with its node, and its second took the seat.
  expect(open([group([1, 2], 1)])).toEqual([]);
  expect(plans).toEqual([
    [1, 2, 3],
    [1, 2, 1],
  ]);
});
