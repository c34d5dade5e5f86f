/** Opens a file of pretrained embeddings: the ending of its name says the format. */
import { bad } from '../bytes.js';
import { VECTOR_ENDINGS, vectorFormatOf } from '../formats.js';
import { PACKED_ENDINGS, packing } from '../packing.js';
import type { VectorBatches, VectorOptions } from './readers.js';

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
