/** The addon, and a table of four floats. */
import { type EngineTable, loadNative } from '../../src/engine/native.js';

export const native = loadNative();
export const table: EngineTable = {
  id: 3,
  dim: 4,
  optimizer: { kind: 'sgd', lr: 0.5 },
  initializer: { kind: 'uniform', low: -1, high: 1 },
  seed: 11,
};
