/** The formula of the documentation for the memory of a table. */

/** Index: buckets of eight keys, at most 65 % full, a power of two of them, 96 bytes each. */
const BUCKET_BYTES = 96;
const KEYS_PER_BUCKET = 8 * 0.65;

/**
 * Bytes that the rows of one table take in all PS together: per row a key and its floats (values and
 * optimizer state, up to a multiple of 16 bytes), the index of each data shard, and r/k of keys and rows for
 * the parities.
 */
export function tableBytes(rows: number, floatsPerRow: number, shards = 1, k = 1, r = 0): number {
  const coded = rows * (8 + Math.ceil((floatsPerRow * 4) / 16) * 16);
  const buckets = 2 ** Math.ceil(Math.log2(rows / shards / KEYS_PER_BUCKET));
  return coded * (1 + r / k) + shards * buckets * BUCKET_BYTES;
}
