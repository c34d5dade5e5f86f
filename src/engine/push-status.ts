/** Answers of `Shard.push` and `Shard.pull`. */
export const PushStatus = {
  APPLIED: 0,
  /** The push or pull needs absent blocks, which `missing()` lists. No row was changed. */
  ABSENT: 1,
  UNKNOWN_TABLE: 2,
  DIM_MISMATCH: 3,
  KEY_RESERVED: 4,
  /** The budget or the system refuses memory. Nothing was changed. */
  MEMORY_LIMIT: 5,
  BAD_FRAME: 6,
  /** The push has a learning rate, and the optimizer of a table takes none. */
  BAD_ARGUMENT: 7,
  /**
   * The push finds no room in the open batch, which is not empty: its delta would be larger than it may be,
   * or rows go in it so that new keys find slots. It is to come again after `flush`. No row of it was
   * changed.
   */
  BATCH_FULL: 8,
  /** The delta of the push alone might be larger than it may be. Nothing was changed. */
  DELTA_LIMIT: 9,
} as const;
