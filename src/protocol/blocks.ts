/** The size of a block, in which recovery, moves and checks of parities count. */

/**
 * Bytes of the rows of a block, at most. A block has as many slots as fit, and one slot where a single row is
 * larger.
 */
export const BLOCK_BYTES = 4096;
