/** Snapshots of a data shard, as the engine gives them (native/engine/snapshot.h). */
import type { FilterShape } from './filters.js';

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
  /** Slots of the table's filter, in place of rows: those that have counted something. */
  filter?: FilterCounters;
}

/** Counters of keys that wait, a byte each. */
export interface FilterCounters {
  /** Numbers of slots in the line of all shards. */
  slots: BigUint64Array;
  /** n x (bytes of a row in its column). */
  counters: Uint8Array;
}

/** The filter of a shard without its counters. */
export interface FilterState extends FilterShape {
  /** Sightings that it has counted: it decides what the filter forgets next. */
  waiting: number;
}

/** Filters of a data shard. */
export interface NativeFilters {
  /** The filters of all tables that have one. */
  filters(): (FilterState & { table: number })[];
  /**
   * Adds counters to those that are there: full ones stay full, slots of other shards are passed over.
   * `waiting` replaces what it was. For a shard that no sink follows. Statuses: APPLIED, or nothing was
   * changed and UNKNOWN_TABLE (it has no filter), DIM_MISMATCH or MEMORY_LIMIT.
   * @throws BAD_ARGUMENT when the open batch is not empty, a snapshot is open, or blocks are absent
   */
  loadFilter(table: number, slots: BigUint64Array, counters: Uint8Array, waiting: number): number;
}
