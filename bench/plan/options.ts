/** Options of `bench plan`, and the jobs that are planned and run. */
import type { OptimizerKind } from '../../src/engine/optimizers.js';
import { type OptionsOf, optionSpec, QUIET_FLAG } from '../common/flags.js';

export interface PlanShape {
  ps: number;
  code: string;
  dim: number;
  optimizer: OptimizerKind;
  rows: number;
  batch: number;
  workers: number;
  /** Milliseconds that a step waits in the place of a model; they take no processor of this machine. */
  computeMs: number;
}

const SHAPES: readonly PlanShape[] = [
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

const SMOKE: readonly PlanShape[] = [
  {
    ...{ ps: 4, code: '2+1', dim: 16, optimizer: 'adagrad', rows: 20_000 },
    ...{ batch: 256, workers: 1, computeMs: 5 },
  },
];

export const PLAN_OPTIONS = optionSpec(
  {
    ...QUIET_FLAG,
    rounds: {
      value: 'n',
      help: 'in which rates are measured and each job is run; medians count',
      standard: '3',
      smoke: '1',
    },
    seconds: { value: 'n', help: 'of each run', standard: '5', smoke: '0.3' },
  },
  (flags) => ({
    shapes: [...(flags.texts.smoke ? SMOKE : SHAPES)],
    /** Runs of each shape. */
    rounds: flags.whole('rounds', 1),
    /** Length of each run, without its beginning. */
    seconds: flags.number('seconds'),
  }),
);
export type PlanOptions = OptionsOf<typeof PLAN_OPTIONS>;
