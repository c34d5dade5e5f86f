import { describe, expect, it } from 'vitest';
import type { SavedDataset } from '../../src/protocol/checkpoints.js';
import type { SavedShardRows } from '../../src/sim/oracle.js';
import { checkExact, checkRanges, differences, type PushMasks } from '../../src/sim/saved-ranges.js';
import { Violation } from '../../src/sim/violation.js';

/** Three batches, each pushed to shard 0/0: pushes 1 to 3, which are bits 1 to 3 of its row. */
const RANGE = { range: { number: 1 }, writer: 9, batches: [1, 2, 3].map(() => [{ g: 0, m: 0 }]) };
const [FIRST, SECOND, THIRD] = [2, 4, 8];
const NOTHING: PushMasks = new Map();

const rows = (mask: number): SavedShardRows[] => [{ g: 0, m: 0, sessions: [], maskOf: () => mask }];

const saved = (open?: { done: number }): SavedDataset =>
  ({
    next: 2,
    setAside: [],
    open: open ? [{ number: 1, session: 5, ...open }] : [],
  }) as unknown as SavedDataset;

const check = (mask: number, open?: { done: number }, before = NOTHING) =>
  checkRanges(saved(open), rows(mask), [RANGE], () => 5, before);

const exact = (mask: number, done: number, before = NOTHING) =>
  checkExact(saved({ done }), rows(mask), [RANGE], before);

describe('the check of the ranges of a checkpoint', () => {
  it('finds a batch that counts as done and is not in the rows', () => {
    check(FIRST + SECOND + THIRD);
    check(FIRST + SECOND, { done: 1 });
    expect(() => check(FIRST + THIRD)).toThrow(Violation);
    expect(() => check(SECOND + THIRD, { done: 1 })).toThrow(Violation);
  });

  it('takes what the job had lost before it was restored for lost (seed 2811006770)', () => {
    const before = differences(saved(), rows(FIRST + THIRD), [RANGE]);
    check(FIRST + THIRD, undefined, before);
    expect(() => check(FIRST, undefined, before)).toThrow(Violation);
  });

  it('of one instant: finds a batch more and a batch less', () => {
    exact(FIRST, 1);
    expect(() => exact(FIRST + SECOND, 1)).toThrow(Violation);
    expect(() => exact(FIRST, 2)).toThrow(Violation);
  });

  it('of one instant: knows what the job was restored with', () => {
    const before = differences(saved({ done: 1 }), rows(SECOND), [RANGE]);
    exact(SECOND, 1, before);
    exact(SECOND, 2, before);
    exact(SECOND + THIRD, 3, before);
    expect(() => exact(SECOND + THIRD, 2, before)).toThrow(Violation);
  });
});
