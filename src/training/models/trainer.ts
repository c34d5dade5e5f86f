/**
 * The trainer interface: declarations and computations of a model, and the part of a parameter server that
 * the worker loop uses. Only types, so that a model file and the client library agree without importing each
 * other.
 *
 * Shapes: B is the size of a batch (the last one of a pass may be smaller); matrices are row-major.
 */

import type { Batch } from '../../data/batch.js';
import type { Schema } from '../../data/schema.js';
import type { InitializerSpec, OptimizerSpec } from '../../engine/native.js';
import type { TablePolicy } from '../../engine/policies.js';

export type { Batch, SparseValues } from '../../data/batch.js';

/** An embedding table, sharded over the PS nodes and erasure coded. */
export interface SparseTable {
  name: string;
  dim: number;
  optimizer: OptimizerSpec;
  initializer: InitializerSpec;
  /** Default: that of --table-policy. */
  policy?: TablePolicy | undefined;
}

/** A dense parameter of any shape. It lives on the PS as a table of chunk rows; no worker initialises it. */
export interface DenseTensor {
  name: string;
  shape: number[];
  optimizer: OptimizerSpec;
  initializer: InitializerSpec;
  /**
   * A whole number from 0 (the default). Tensors with different numbers begin with independent values. Of
   * those with the same number, the same shape and the same initializer all begin alike.
   */
  draw?: number;
}

/**
 * Arrays may be reused by the model: the loop has taken what it needs before the next call.
 */
export interface StepResult {
  /** Mean over the batch */
  loss: number;
  /** Per table: keys.length x dim, the gradient of the mean loss for each row that `step` was given */
  rowGrads: Float32Array[];
  /** Per tensor: as many values as its shape has */
  denseGrads: Float32Array[];
}

/** `rows` and `dense` belong to the loop and are valid only during the call. */
export interface Model {
  readonly tables: readonly SparseTable[];
  readonly tensors: readonly DenseTensor[];
  /**
   * The keys that each table needs for a batch: one array per table, duplicates allowed. They must depend on
   * the batch alone: another worker that trains it again must push to the same rows.
   */
  keys(batch: Batch): BigUint64Array[];
  /** `rows[t]`: keys(batch)[t].length x dim values; `dense[i]`: the values of tensor i. */
  step(batch: Batch, rows: Float32Array[], dense: Float32Array[]): Promise<StepResult>;
  /** B probabilities that the label is 1. */
  predict(batch: Batch, rows: Float32Array[], dense: Float32Array[]): Promise<Float32Array>;
  /** Frees what the model holds; nothing is called afterwards. */
  close?(): Promise<void>;
}

/** Options that a model is made with. */
export interface ModelOptions {
  /** Width of an embedding row */
  dim: number;
  /** Size of a full batch */
  batch: number;
  seed: number;
  optimizer: OptimizerSpec;
  denseOptimizer: OptimizerSpec;
  /** Threads for dense math in this worker */
  threads: number;
  /** Schema of the data; undefined: the Criteo layout */
  schema?: Schema | undefined;
  /** Flags that only the model knows */
  [flag: string]: unknown;
}

/** Options that every model gets by name, and the flags of a worker that give them. */
export const COMMON_OPTIONS: ReadonlyMap<string, string> = new Map([
  ['dim', '--dim'],
  ['batch', '--batch'],
  ['seed', '--seed'],
  ['threads', '--threads'],
  ['optimizer', '--optimizer'],
  ['denseOptimizer', '--dense-optimizer'],
  ['schema', '--schema'],
]);

/** The default export of a model file (`--model ./file.js`). */
export type ModelFactory = (options: ModelOptions) => Promise<Model> | Model;

/** A table as the parameter server is to create it. */
export interface ModelTable {
  name: string;
  dim: number;
  optimizer: OptimizerSpec;
  initializer: InitializerSpec;
  seed: number;
  policy?: TablePolicy | undefined;
}

export interface RowsToPull {
  table: string;
  /** Unique keys */
  keys: BigUint64Array;
}

export interface PushUpdate {
  table: string;
  /** Unique keys */
  keys: BigUint64Array;
  /** keys.length x dim */
  gradients: Float32Array;
  /** How often the batch named each key. Default: once. */
  counts?: Uint32Array;
}

/** The part of a parameter server that the worker loop uses. */
export interface ParameterStore {
  /** Does nothing for a table that exists with the same specification, but for its learning rate. */
  createTables(specs: ModelTable[]): Promise<void>;
  /** One fused request; keys.length x dim values for each entry. */
  pull(requests: RowsToPull[]): Promise<Float32Array[]>;
  /**
   * One fused update, of this batch; resolves when it is durable. The arrays must not be changed before that.
   */
  push(updates: PushUpdate[], batch: Batch): Promise<void>;
}
