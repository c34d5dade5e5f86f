/** What `bench plan` can be told, and the jobs that are planned and run. */
import type { OptimizerKind } from '../../src/optimizers.js';
import {
  COMMON_FLAGS,
  completed,
  type Flags,
  type Given,
  number,
  QUIET_FLAG,
  teller,
  whole,
} from '../common/flags.js';

export interface Shape {
  ps: number;
  code: string;
  dim: number;
  optimizer: OptimizerKind;
  rows: number;
  batch: number;
  workers: number;
  /** What a step waits for a model; it takes no processor of this machine. */
  computeMs: number;
}

export interface PlanOptions {
  smoke: boolean;
  shapes: Shape[];
  /** Runs of each shape. */
  rounds: number;
  /** Of each run, without its beginning. */
  seconds: number;
  json: string | undefined;
  tell(text: string): void;
}

export const PLAN_FLAGS = {
  ...COMMON_FLAGS,
  ...QUIET_FLAG,
  rounds: {
    value: 'n',
    help: 'in which rates are measured and each job is run; medians count',
    standard: '3',
    smoke: '1',
  },
  seconds: { value: 'n', help: 'of each run', standard: '5', smoke: '0.3' },
} as const satisfies Flags;

const SHAPES: readonly Shape[] = [
  {
    ...{ ps: 6, code: '4+1', dim: 16, optimizer: 'adagrad', rows: 400_000 },
    ...{ batch: 2048, workers: 2, computeMs: 0 },
  },
  {
    ...{ ps: 3, code: 'none', dim: 64, optimizer: 'sgd', rows: 300_000 },
    ...{ batch: 4096, workers: 3, computeMs: 0 },
  },
  {
    ...{ ps: 4, code: '2+1', dim: 32, optimizer: 'adam', rows: 200_000 },
    ...{ batch: 512, workers: 3, computeMs: 50 },
  },
];

const SMOKE: readonly Shape[] = [
  {
    ...{ ps: 4, code: '2+1', dim: 16, optimizer: 'adagrad', rows: 20_000 },
    ...{ batch: 256, workers: 1, computeMs: 5 },
  },
];

/** @throws BAD_ARGUMENT */
export function parsePlanOptions(given: Given<typeof PLAN_FLAGS>): PlanOptions {
  const flags = completed(PLAN_FLAGS, given);
  return {
    smoke: flags.smoke ?? false,
    shapes: [...(flags.smoke ? SMOKE : SHAPES)],
    rounds: whole(flags, 'rounds', 1),
    seconds: number(flags, 'seconds'),
    json: flags.json,
    tell: teller(flags),
  };
}
