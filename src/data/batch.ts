/** Batches: samples that are trained together. Readers make them, and models take them. */

/** B is the number of samples. Matrices are row-major. */
export interface Batch {
  /** B */
  size: number;
  /** B labels, 0 or 1; of several labels the first */
  labels: Float32Array;
  /** B x width of the dense columns. Without a schema B x 13, log1p of the integer fields. */
  dense: Float32Array;
  /**
   * Without a schema B x 26: (column + 1) << 32 | value; a missing value is a key of its own, see
   * `missingKey` in src/data/criteo.ts. With a schema it is empty: see `columns`.
   */
  keys: BigUint64Array;
  /** The sparse columns of the schema, in its order */
  columns?: readonly SparseValues[];
  /** B x labels, where the schema has several */
  targets?: Float32Array;
  /** B weights of the samples, where the schema has a column for them */
  weights?: Float32Array;
  /** B times, where the schema has a column for them */
  times?: Float64Array;
}

/** Values of a sparse column: sample b has offsets[b]..offsets[b + 1] of them. */
export interface SparseValues {
  keys: BigUint64Array;
  /** B + 1 */
  offsets: Uint32Array;
  /** As many as keys */
  weights?: Float32Array;
}

/** A batch under construction. */
export interface SparseRows {
  readonly size: number;
  readonly capacity: number;
  /** The batch; nothing is added afterwards. */
  finish(): Batch;
}
