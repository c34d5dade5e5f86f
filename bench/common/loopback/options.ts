/** What `bench pull` and `bench push` can be told, and the sizes that follow from it. */
import { COMMON_FLAGS, completed, type Flags, type Given, whole } from '../flags.js';
import type { BenchOptions } from '../report.js';

export const DIM = 64;
/** Rows of one request, in the comparisons. */
export const REQUEST_ROWS = 4096;

export const LOOPBACK_FLAGS = {
  ...COMMON_FLAGS,
  rows: { value: 'n', help: 'rows of the table, and keys in Redis', standard: '1000000', smoke: '8192' },
  growTo: {
    value: 'n',
    help: 'rows of a large table to compare with; 0 leaves this out',
    standard: '20000000',
    smoke: '0',
  },
  rounds: {
    value: 'n',
    help: 'interleaved rounds; every contender has a turn in each',
    standard: '9',
    smoke: '1',
  },
  turnMs: { value: 'n', help: 'milliseconds that a turn lasts', standard: '500', smoke: '20' },
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
  const flags = completed(LOOPBACK_FLAGS, given);
  const { smoke = false, json } = flags;
  return {
    smoke,
    json,
    rows: Math.max(REQUEST_ROWS, whole(flags, 'rows', 0)),
    growTo: whole(flags, 'growTo', 0),
    rounds: whole(flags, 'rounds', 1),
    turnMs: whole(flags, 'turnMs', 1),
  };
}
