/** What `bench scaling` can be told. */
import {
  bad,
  COMMON_FLAGS,
  type Flags,
  type Given,
  LOG_FLAG,
  number,
  numberOrZero,
  QUIET_FLAG,
  teller,
} from '../common/flags.js';
import { COMPUTE, TRAINING_FLAGS } from '../common/training/flags.js';

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
  rows: { value: 'n', help: 'rows of the table in millions (default: 0.5)' },
  ps: { value: 'n', help: 'PS at first and at the end, at least 5 (default: 5)' },
  to: { value: 'n', help: 'PS in between (default: 7)' },
  calm: { value: 'seconds', help: 'steady training before and after each scaling (default: 20)' },
  moveRate: { value: 'size', help: 'as of "kintsugi ps" (default: what leaves room for requests)' },
  html: { value: 'file', help: 'write a picture' },
} as const satisfies Flags;

/** @throws BAD_ARGUMENT */
export function parseScalingOptions(flags: Given<typeof SCALING_FLAGS>): ScalingOptions {
  const { smoke = false, moveRate, html, json, log } = flags;
  const ps = number(flags, 'ps', 5);
  const to = number(flags, 'to', 7);
  if (ps < 5 || to <= ps) throw bad(`--ps must be at least 5 and --to more than --ps, not ${ps} and ${to}`);
  return {
    smoke,
    // Millions on the command line.
    rows: Math.round(number(flags, 'rows', smoke ? 0.01 : 0.5) * 1e6),
    ps,
    to,
    dim: number(flags, 'dim', smoke ? 16 : 64),
    batch: number(flags, 'batch', smoke ? 128 : 512),
    compute: numberOrZero(flags, 'compute', smoke ? 1 : COMPUTE),
    calmSeconds: number(flags, 'calm', smoke ? 0.5 : 20),
    ...{ moveRate, html, json, log },
    tell: teller(flags),
  };
}
