/** What `bench pull` and `bench push` can be told, and the sizes that follow from it. */
import { COMMON_FLAGS, type Flags, type Given, whole } from '../flags.js';
import type { BenchOptions } from '../report.js';

export const DIM = 64;
/** Rows of one request, in the comparisons. */
export const REQUEST_ROWS = 4096;

export const LOOPBACK_FLAGS = {
  ...COMMON_FLAGS,
  rows: { value: 'n', help: 'rows of the table, and keys in Redis (default: 1000000)' },
  growTo: {
    value: 'n',
    help: 'rows of a large table to compare with; 0 leaves this out (default: 20000000)',
  },
  rounds: { value: 'n', help: 'interleaved rounds; every contender has a turn in each (default: 9)' },
  turnMs: { value: 'n', help: 'milliseconds that a turn lasts (default: 500)' },
} as const satisfies Flags;

export interface LoopbackOptions extends BenchOptions {
  rows: number;
  /** 0: no large table. */
  growTo: number;
  rounds: number;
  turnMs: number;
}

/** @throws BAD_ARGUMENT */
export function loopbackOptions(given: Given<typeof LOOPBACK_FLAGS>): LoopbackOptions {
  const { smoke = false, json } = given;
  return {
    smoke,
    json,
    rows: Math.max(REQUEST_ROWS, whole(given, 'rows', smoke ? 2 * REQUEST_ROWS : 1_000_000, 0)),
    growTo: whole(given, 'growTo', smoke ? 0 : 20_000_000, 0),
    rounds: whole(given, 'rounds', smoke ? 1 : 9, 1),
    turnMs: whole(given, 'turnMs', smoke ? 20 : 500, 1),
  };
}
