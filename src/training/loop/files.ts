/**
 * How the parts of a source are cut into ranges of samples: by their sizes and the width of their samples, so
 * every worker cuts them alike.
 */

import type { SourcePart } from '../../data/source.js';
import type { DatasetSpec } from '../../library/client/dataset.js';

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

/**
 * Parts by name and size, in ranges of about `rangeBatches` batches (default: by the size of the data;
 * infinite: each part is one range).
 */
export function cutParts(
  parts: readonly SourcePart[],
  batch: number,
  rangeBatches?: number,
): DatasetSpec['files'] {
  const batches = parts.reduce((sum, { size, perSample = 1 }) => sum + size / perSample / batch, 0);
  const several = Math.min(RANGE_BATCHES, Math.max(MIN_RANGE_BATCHES, Math.floor(batches / MIN_RANGES)));
  return parts.map(({ name, size, perSample = 1, least = 1, mark }) => {
    const units = Math.ceil(perSample * batch * (rangeBatches ?? several) * FILL);
    const wanted = Number.isFinite(units) ? units : size;
    return { name, size, rangeBytes: Math.max(1, least, wanted), ...(mark !== undefined && { mark }) };
  });
}

/**
 * As `cutParts`, for parts that grow. Each growth is cut anew from where it begins, so ranges may be smaller.
 */
export function cutGrowingParts(
  parts: readonly SourcePart[],
  batch: number,
  rangeBatches = RANGE_BATCHES,
): DatasetSpec['files'] {
  return parts.map(({ name, perSample = 1 }) => {
    return { name, size: 0, rangeBytes: Math.ceil(perSample * batch * rangeBatches * FILL) };
  });
}
