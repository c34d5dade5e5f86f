/** What `bench recovery` can be told, and what it compares. */
import {
  COMMON_FLAGS,
  type Flags,
  type Given,
  LOG_FLAG,
  number,
  numberOrZero,
  numbers,
  QUIET_FLAG,
  teller,
} from '../common/flags.js';
import { COMPUTE, TRAINING_FLAGS } from '../common/training/flags.js';
import { type Mode, modeOf } from '../common/training/modes.js';

export interface RecoveryOptions {
  smoke: boolean;
  /** Rows of the table, one run per mode for each. */
  sizes: number[];
  modes: Mode[];
  ps: number;
  dim: number;
  /** Keys of one training step. */
  batch: number;
  /** What a step computes, in units of about a millisecond. */
  compute: number;
  /** Seconds of training before the kill, and the least after it. */
  calmSeconds: number;
  watchSeconds: number;
  recoveryRate: string | undefined;
  /** The picture, as HTML. */
  html: string | undefined;
  /** The picture of the largest size alone, as SVG. */
  svg: string | undefined;
  json: string | undefined;
  /** Append every record of every role here. */
  log: string | undefined;
  tell(text: string): void;
}

export const RECOVERY_FLAGS = {
  ...COMMON_FLAGS,
  ...QUIET_FLAG,
  ...LOG_FLAG,
  ...TRAINING_FLAGS,
  sizes: { value: 'list', help: 'rows of the table in millions, one run per mode for each (default: 1,2,5)' },
  modes: {
    value: 'list',
    help: 'of codes, codes/idle, none, checkpoint (default: 4+1,4+1/idle,1+1,checkpoint)',
  },
  intervals: { value: 'list', help: 'seconds between two checkpoints (default: 20)' },
  ps: { value: 'n', help: 'PS (default: 6)' },
  calm: { value: 'seconds', help: 'training before the kill (default: 15)' },
  watch: { value: 'seconds', help: 'training after it, at least (default: 6)' },
  recoveryRate: { value: 'size', help: 'as of "kintsugi ps" (default: what leaves room for requests)' },
  html: { value: 'file', help: 'write a picture of every size' },
  svg: { value: 'file', help: 'write a picture of the largest size' },
} as const satisfies Flags;

/** @throws BAD_ARGUMENT */
export function parseRecoveryOptions(flags: Given<typeof RECOVERY_FLAGS>): RecoveryOptions {
  const { smoke = false, recoveryRate, html, svg, json, log } = flags;
  const intervals = numbers(flags, 'intervals', smoke ? [1] : [20]);
  const modes = (flags.modes ?? (smoke ? '4+1,checkpoint' : '4+1,4+1/idle,1+1,checkpoint')).split(',');
  return {
    smoke,
    // Millions on the command line.
    sizes: numbers(flags, 'sizes', smoke ? [0.02] : [1, 2, 5]).map((millions) => Math.round(millions * 1e6)),
    modes: modes.flatMap((name) => modeOf(name, intervals)),
    ps: number(flags, 'ps', 6),
    dim: number(flags, 'dim', smoke ? 16 : 64),
    batch: number(flags, 'batch', smoke ? 128 : 512),
    compute: numberOrZero(flags, 'compute', smoke ? 1 : COMPUTE),
    calmSeconds: number(flags, 'calm', smoke ? 1 : 15),
    watchSeconds: number(flags, 'watch', smoke ? 0.5 : 6),
    ...{ recoveryRate, html, svg, json, log },
    tell: teller(flags),
  };
}
