/** Options of `bench pull` and `bench push`, and the sizes that follow from them. */
import { type OptionsOf, optionSpec } from '../flags.js';

export const DIM = 64;
/** Rows of one request, in the comparisons. */
export const REQUEST_ROWS = 4096;

export const LOOPBACK_OPTIONS = optionSpec(
  {
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
  },
  (flags) => ({
    rows: Math.max(REQUEST_ROWS, flags.whole('rows', 0)),
    /** Rows of a large table; 0: there is none. */
    growTo: flags.whole('growTo', 0),
    rounds: flags.whole('rounds', 1),
    turnMs: flags.whole('turnMs', 1),
  }),
);
export type LoopbackOptions = OptionsOf<typeof LOOPBACK_OPTIONS>;
