/** Reads files as a worker does: as a source. */
import type { Batch } from '../../src/data/batch.js';
import { fileSource } from '../../src/data/file-source.js';
import type { DataReader } from '../../src/data/reader.js';
import { readAll } from '../../src/data/source.js';
import { cutParts } from '../../src/training/loop/files.js';

export interface ReadOptions {
  files: readonly string[];
  batch: number;
}

export function readBatches(
  reader: DataReader,
  { files, batch }: ReadOptions,
): AsyncGenerator<Batch, void, undefined> {
  return readAll(fileSource(reader, files), batch);
}

export async function cutFiles(
  reader: DataReader,
  files: readonly string[],
  batch: number,
  rangeBatches?: number,
) {
  return cutParts(await fileSource(reader, files).list(), batch, rangeBatches);
}
