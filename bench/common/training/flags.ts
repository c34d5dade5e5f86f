/** Flags of the benchmarks that train: `bench recovery` and `bench scaling`. */
import type { Flags } from '../flags.js';

/**
 * Arithmetic of a step, in units of about a millisecond: the model of the ECRec paper for 512 keys, which are
 * 20 samples of 26 categories: 20 x 6 x 2.5 million parameters = 0.3 GFLOP of forward and backward, at the 69
 * GFLOP/s that a core here gives to dense math.
 */
const COMPUTE = 4;

export const TRAINING_FLAGS = {
  dim: { value: 'n', help: 'floats of a row', standard: '64', smoke: '16' },
  batch: { value: 'n', help: 'keys of one training step', standard: '512', smoke: '128' },
  compute: {
    value: 'n',
    help: 'what a step computes, in units of about a millisecond',
    standard: `${COMPUTE}`,
    smoke: '1',
  },
} as const satisfies Flags;
