/** What `bench recovery` can be told, and what it compares. */
import {
  COMMON_FLAGS,
  completed,
  type Flags,
  type Given,
  LOG_FLAG,
  number,
  numberOrZero,
  numbers,
  QUIET_FLAG,
  teller,
} from '../common/flags.js';
import { TRAINING_FLAGS } from '../common/training/flags.js';
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
  sizes: {
    value: 'list',
    help: 'rows of the table in millions, one run per mode for each',
    standard: '1,2,5',
    smoke: '0.02',
  },
  modes: {
    value: 'list',
    help: 'of codes, codes/idle, none, checkpoint',
    standard: '4+1,4+1/idle,1+1,checkpoint',
    smoke: '4+1,checkpoint',
  },
  intervals: { value: 'list', help: 'seconds between two checkpoints', standard: '20', smoke: '1' },
  ps: { value: 'n', help: 'PS', standard: '6' },
  calm: { value: 'seconds', help: 'training before the kill', standard: '15', smoke: '1' },
  watch: { value: 'seconds', help: 'training after it, at least', standard: '6', smoke: '0.5' },
  recoveryRate: { value: 'size', help: 'as of "kintsugi ps" (default: what leaves room for requests)' },
  html: { value: 'file', help: 'write a picture of every size' },
  svg: { value: 'file', help: 'write a picture of the largest size' },
} as const satisfies Flags;

/** @throws BAD_ARGUMENT */
export function parseRecoveryOptions(given: Given<typeof RECOVERY_FLAGS>): RecoveryOptions {
  const flags = completed(RECOVERY_FLAGS, given);
  const { smoke = false, recoveryRate, html, svg, json, log } = flags;
  const intervals = numbers(flags, 'intervals');
  const modes = flags.modes.split(',');
  return {
    smoke,
    // Millions on the command line.
    sizes: numbers(flags, 'sizes').map((millions) => Math.round(millions * 1e6)),
    modes: modes.flatMap((name) => modeOf(name, intervals)),
    ps: number(flags, 'ps'),
    dim: number(flags, 'dim'),
    batch: number(flags, 'batch'),
    compute: numberOrZero(flags, 'compute'),
    calmSeconds: number(flags, 'calm'),
    watchSeconds: number(flags, 'watch'),
    ...{ recoveryRate, html, svg, json, log },
    tell: teller(flags),
  };
}
