/** What `bench scaling` can be told. */
import {
  bad,
  COMMON_FLAGS,
  completed,
  type Flags,
  type Given,
  LOG_FLAG,
  number,
  numberOrZero,
  QUIET_FLAG,
  teller,
} from '../common/flags.js';
import { TRAINING_FLAGS } from '../common/training/flags.js';

export interface ScalingOptions {
  smoke: boolean;
  rows: number;
  /** PS at first and at the end, and in between. */
  ps: number;
  to: number;
  dim: number;
  /** Keys of one training step. */
  batch: number;
  /** What a step computes, in units of about a millisecond. */
  compute: number;
  /** Seconds of steady training before and after each scaling. */
  calmSeconds: number;
  moveRate: string | undefined;
  /** The picture, as HTML. */
  html: string | undefined;
  json: string | undefined;
  /** Append every record of every role here. */
  log: string | undefined;
  tell(text: string): void;
}

export const SCALING_FLAGS = {
  ...COMMON_FLAGS,
  ...QUIET_FLAG,
  ...LOG_FLAG,
  ...TRAINING_FLAGS,
  rows: { value: 'n', help: 'rows of the table in millions', standard: '0.5', smoke: '0.01' },
  ps: { value: 'n', help: 'PS at first and at the end, at least 5', standard: '5' },
  to: { value: 'n', help: 'PS in between', standard: '7' },
  calm: {
    value: 'seconds',
    help: 'steady training before and after each scaling',
    standard: '20',
    smoke: '0.5',
  },
  moveRate: { value: 'size', help: 'as of "kintsugi ps" (default: what leaves room for requests)' },
  html: { value: 'file', help: 'write a picture' },
} as const satisfies Flags;

/** @throws BAD_ARGUMENT */
export function parseScalingOptions(given: Given<typeof SCALING_FLAGS>): ScalingOptions {
  const flags = completed(SCALING_FLAGS, given);
  const { smoke = false, moveRate, html, json, log } = flags;
  const ps = number(flags, 'ps');
  const to = number(flags, 'to');
  if (ps < 5 || to <= ps) throw bad(`--ps must be at least 5 and --to more than --ps, not ${ps} and ${to}`);
  return {
    smoke,
    // Millions on the command line.
    rows: Math.round(number(flags, 'rows') * 1e6),
    ps,
    to,
    dim: number(flags, 'dim'),
    batch: number(flags, 'batch'),
    compute: numberOrZero(flags, 'compute'),
    calmSeconds: number(flags, 'calm'),
    ...{ moveRate, html, json, log },
    tell: teller(flags),
  };
}
