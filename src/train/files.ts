/**
 * How data files are cut into ranges of samples: by their sizes and the width of their lines, so every worker
 * cuts them alike.
 */
import { basename } from 'node:path';
import type { DatasetSpec } from '../client/dataset.js';
import { KintsugiError } from '../errors.js';
import { isPacked, measure } from './criteo.js';

/** Batches of a range: little is redone when a worker is lost, and few leases are needed. */
export const RANGE_BATCHES = 32;
/**
 * Where the data are few, ranges are smaller, so that several workers have something to do; but not by more.
 */
const MIN_RANGE_BATCHES = 4;
const MIN_RANGES = 16;
/**
 * A little less than whole batches, so that the last batch of a range is nearly full instead of nearly empty.
 */
const FILL = 0.98;
/** Bytes of a line in a file that has none yet: about what lines of the layout have. */
const USUAL_LINE_BYTES = 200;
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

/**
 * The same for files that grow. What there is when somebody looks is cut anew from there, so ranges may be
 * smaller.
 * @throws BAD_DATA for a file that cannot be read, BAD_ARGUMENT for one that cannot be read from its middle
 */
export async function cutGrowingFiles(
  files: readonly string[],
  batch: number,
  rangeBatches = RANGE_BATCHES,
): Promise<DatasetSpec['files']> {
  const packed = files.find(isPacked);
  if (packed !== undefined) {
    throw new KintsugiError('BAD_ARGUMENT', `--follow: ${packed} is compressed and cannot be followed`);
  }
  const measures = await Promise.all(files.map(measure));
  return measures.map(({ size, lineBytes }, index) => {
    const bytes = (size > 0 ? lineBytes : USUAL_LINE_BYTES) * batch * rangeBatches * FILL;
    return { name: basename(files[index]!), size: 0, rangeBytes: Math.ceil(bytes) };
  });
}
