/** Opens a file of pretrained embeddings: the ending of its name says the format. */
import { bad } from '../bytes.js';
import { VECTOR_ENDINGS, vectorFormatOf } from '../formats.js';
import { PACKED_ENDINGS, packing } from '../packing.js';
import type { ArrayPlace, VectorBatches, VectorChoice, VectorOptions } from './readers.js';

/**
 * The places of the arrays of files that are read one after the other: their rows are numbered as those of
 * one array. @throws BAD_DATA
 */
export async function arrayPlaces(files: readonly string[], options: VectorChoice): Promise<ArrayPlace[]> {
  const firsts: number[] = [];
  let all = 0;
  for (const file of files) {
    firsts.push(all);
    all += (await vectorFormatOf(file)?.arrayRows?.(file, options)) ?? 0;
  }
  return firsts.map((first) => ({ first, all }));
}

/** The rows of a file. @throws BAD_DATA with file, row and what was expected; BAD_ARGUMENT */
export function readVectors(file: string, options: VectorOptions): VectorBatches {
  const { name, ending } = packing(file);
  const format = vectorFormatOf(name);
  if (format?.compression === 'none' && ending !== undefined)
    throw bad(`${file}: ${name.split('.').pop()} files must not be compressed`);
  if (!format?.vectors || (format.compression === 'inside' && ending !== undefined)) {
    const formats = `${VECTOR_ENDINGS} (also ${PACKED_ENDINGS})`;
    throw bad(`${file}: the name must end in ${formats}, which says the format`);
  }
  return format.vectors(file, options, (other) => vectorFormatOf(other) === format);
}
