/** What `bench pull` and `bench push` can be asked, and the sizes that follow from it. */
import { KintsugiError } from '../../src/errors.js';
import type { BenchOptions } from '../report.js';

export const DIM = 64;
/** Rows of one request, in the comparisons. */
export const REQUEST_ROWS = 4096;

export interface LoopbackOptions extends BenchOptions {
  /** Rows of the table, and keys in Redis. */
  rows: number;
  /** Rows of the large table that is compared with one of `rows`; 0 leaves this out. */
  growTo: number;
  /** Interleaved rounds; every contender has a turn in each. */
  rounds: number;
  /** How long a turn lasts. */
  turnMs: number;
}

function count(flags: Record<string, unknown>, name: string, otherwise: number): number {
  const value = flags[name] === undefined ? otherwise : Number(flags[name]);
  if (Number.isInteger(value) && value >= 0) return value;
  throw new KintsugiError('BAD_ARGUMENT', `--${name}: "${String(flags[name])}" is not a whole number`);
}

const FLAGS = ['smoke', 'json', 'rows', 'growTo', 'rounds', 'turnMs'];

/** @throws BAD_ARGUMENT */
export function loopbackOptions(flags: Record<string, unknown>): LoopbackOptions {
  for (const name of Object.keys(flags)) {
    if (!FLAGS.includes(name)) throw new KintsugiError('BAD_ARGUMENT', `unknown flag "${name}"`);
  }
  const smoke = flags.smoke === true || flags.smoke === 'true';
  const options: LoopbackOptions = {
    smoke,
    rows: Math.max(REQUEST_ROWS, count(flags, 'rows', smoke ? 2 * REQUEST_ROWS : 1_000_000)),
    growTo: count(flags, 'growTo', smoke ? 0 : 20_000_000),
    rounds: Math.max(1, count(flags, 'rounds', smoke ? 1 : 9)),
    turnMs: Math.max(1, count(flags, 'turnMs', smoke ? 20 : 500)),
  };
  if (typeof flags.json === 'string') options.json = flags.json;
  return options;
}
