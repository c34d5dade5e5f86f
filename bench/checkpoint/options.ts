/** What `bench checkpoint` can be told. */
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
  whole,
} from '../common/flags.js';
import { TRAINING_FLAGS } from '../common/training/flags.js';
import { type Mode, modeOf } from '../common/training/modes.js';

/** What is measured, in this order. */
export const PARTS = ['beside', 'compare', 'full', 'restore'] as const;
export type Part = (typeof PARTS)[number];

export interface CheckpointBenchOptions {
  smoke: boolean;
  parts: Part[];
  rows: number;
  ps: number;
  mode: Mode;
  dim: number;
  /** Keys of one training step, and what a step computes, in units of about a millisecond. */
  batch: number;
  compute: number;
  /** Milliseconds between two checkpoints. */
  intervalMs: number;
  /** With and without checkpoints, in turns; full checkpoints and restores, too. */
  rounds: number;
  /** Milliseconds for which each of the ways is watched. */
  watchMs: number;
  /** Where checkpoints go, for the time of the run; undefined: among temporary files. */
  directory: string | undefined;
  svg: string | undefined;
  json: string | undefined;
  /** Append every record of every role here. */
  log: string | undefined;
  tell(text: string): void;
}

export const CHECKPOINT_FLAGS = {
  ...COMMON_FLAGS,
  ...QUIET_FLAG,
  ...LOG_FLAG,
  ...TRAINING_FLAGS,
  // Pulls and pushes alone: as many as the PS can do.
  compute: { ...TRAINING_FLAGS.compute, standard: '0', smoke: '0' },
  parts: { value: 'list', help: 'what is measured', standard: PARTS.join(',') },
  rows: { value: 'n', help: 'rows of the table in millions', standard: '5', smoke: '0.02' },
  ps: { value: 'n', help: 'PS', standard: '6', smoke: '3' },
  code: { value: 'k+r', help: 'code of the job', standard: '4+1', smoke: '2+1' },
  interval: { value: 'seconds', help: 'between two checkpoints', standard: '10', smoke: '0.5' },
  rounds: { value: 'n', help: 'turns of all that takes turns', standard: '3', smoke: '1' },
  watch: { value: 'seconds', help: 'for which each way is watched', standard: '30', smoke: '1.5' },
  dir: { value: 'directory', help: 'where checkpoints go while it runs (default: temporary files)' },
  svg: { value: 'file', help: 'write a picture of the comparison' },
} as const satisfies Flags;

/** @throws BAD_ARGUMENT */
export function parseCheckpointOptions(given: Given<typeof CHECKPOINT_FLAGS>): CheckpointBenchOptions {
  const flags = completed(CHECKPOINT_FLAGS, given);
  const { smoke = false, dir: directory, svg, json, log } = flags;
  const parts = flags.parts.split(',');
  const [mode] = modeOf(flags.code, [1]);
  if (!mode || mode.intervalSeconds !== undefined)
    throw bad(`--code must be k+r or none, not "${flags.code}"`);
  const wrong = parts.find((part) => !PARTS.includes(part as Part));
  if (wrong !== undefined) throw bad(`--parts must name some of ${PARTS.join(', ')}, not "${wrong}"`);
  return {
    parts: PARTS.filter((part) => parts.includes(part)),
    // Millions on the command line.
    rows: Math.round(number(flags, 'rows') * 1e6),
    ps: whole(flags, 'ps', 1),
    mode,
    dim: whole(flags, 'dim', 1),
    batch: whole(flags, 'batch', 1),
    compute: numberOrZero(flags, 'compute'),
    intervalMs: number(flags, 'interval') * 1000,
    rounds: whole(flags, 'rounds', 1),
    watchMs: number(flags, 'watch') * 1000,
    ...{ smoke, directory, svg, json, log },
    tell: teller(flags),
  };
}
