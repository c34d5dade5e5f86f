/** How data files are cut into ranges of samples: by their sizes and the width of their lines, so every worker cuts them alike. */
import { basename } from 'node:path';
import type { DatasetSpec } from '../dataset.js';
import { isPacked, measure } from './criteo.js';

/** Reading a range of a compressed file means decompressing what comes before it. */
const PACKED_RANGES = 8;

/** Files by base name and size, in ranges of about `rangeBatches` batches. @throws BAD_DATA for one that cannot be read */
export async function cutFiles(
  files: readonly string[],
  batch: number,
  rangeBatches: number,
): Promise<DatasetSpec['files']> {
  const measures = await Promise.all(files.map(measure));
  return measures.map(({ size, lineBytes }, index) => {
    const file = files[index]!;
    const least = isPacked(file) ? Math.ceil(size / PACKED_RANGES) : 1;
    return { name: basename(file), size, rangeBytes: Math.max(least, lineBytes * batch * rangeBatches) };
  });
}
