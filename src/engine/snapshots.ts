/** Snapshots of a data shard, as the engine gives them (native/engine/snapshot.h). */

/** A snapshot that has begun. */
export interface SnapshotBegun {
  /** Number of the snapshot, from 1. */
  stamp: number;
  /** The snapshot after which its rows changed; 0: it has all rows. */
  since: number;
  /** Rows with a key, and bytes of their keys, values and state, and of keys whose rows went. */
  rows: number;
  bytes: number;
}

/** Some rows of a table: n keys, n x dim values, and n x (row width - dim) floats of optimizer state. */
export interface SnapshotRows {
  table: number;
  keys: BigUint64Array;
  values: Float32Array;
  state: Float32Array;
  /** Keys whose rows went since the earlier snapshot, in place of rows. */
  removed?: BigUint64Array;
}
