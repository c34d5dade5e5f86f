/** Reads files as a worker does: as a source. */
import type { Batch } from '../../src/data/batch.js';
import { fileSource } from '../../src/data/file-source.js';
import type { Reader } from '../../src/data/reader.js';
import { readAll } from '../../src/data/source.js';
import { cutParts } from '../../src/train/files.js';

export interface ReadOptions {
  files: readonly string[];
  batch: number;
}

export function readBatches(
  reader: Reader,
  { files, batch }: ReadOptions,
): AsyncGenerator<Batch, void, undefined> {
  return readAll(fileSource(reader, files), batch);
}

export async function cutFiles(
  reader: Reader,
  files: readonly string[],
  batch: number,
  rangeBatches?: number,
) {
  return cutParts(await fileSource(reader, files).list(), batch, rangeBatches);
}
