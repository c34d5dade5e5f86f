/** How data files are cut into ranges of samples: by their sizes and the width of their lines, so every worker cuts them alike. */
import { basename } from 'node:path';
import type { DatasetSpec } from '../dataset.js';
import { isPacked, measure } from './criteo.js';

/** Batches of a range: little is redone when a worker is lost, and few leases are needed. */
export const RANGE_BATCHES = 32;
/** Where the data are few, ranges are smaller, so that several workers have something to do; but not by more. */
const MIN_RANGE_BATCHES = 4;
const MIN_RANGES = 16;
/** A little less than whole batches: then the last batch of a range is nearly full, and not nearly empty. */
const FILL = 0.98;
/** Reading a range of a compressed file means decompressing what comes before it. */
const PACKED_RANGES = 8;

/**
 * Files by base name and size, in ranges of about `rangeBatches` batches (default: by the size of the data).
 * @throws BAD_DATA for a file that cannot be read
 */
export async function cutFiles(
  files: readonly string[],
  batch: number,
  rangeBatches?: number,
): Promise<DatasetSpec['files']> {
  const measures = await Promise.all(files.map(measure));
  const batches = measures.reduce((sum, { size, lineBytes }) => sum + size / lineBytes / batch, 0);
  const several = Math.min(RANGE_BATCHES, Math.max(MIN_RANGE_BATCHES, Math.floor(batches / MIN_RANGES)));
  return measures.map(({ size, lineBytes }, index) => {
    const file = files[index]!;
    const least = isPacked(file) ? Math.ceil(size / PACKED_RANGES) : 1;
    const wanted = Math.ceil(lineBytes * batch * (rangeBatches ?? several) * FILL);
    return { name: basename(file), size, rangeBytes: Math.max(1, least, wanted) };
  });
}
