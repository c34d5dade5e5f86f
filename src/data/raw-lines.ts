/** Lines as they are, for programs with a parser of their own: batches of so many whole lines. */
import { KintsugiError } from '../common/errors.js';
import { sampleFormatOf } from './formats.js';
import { LineBytes, rawParser } from './line-bytes.js';
import { lineFormat } from './line-format.js';
import { type DataReader, readerOf } from './reader.js';

/** @param header the first line of each file is none of the samples */
export function openLines(header: boolean): DataReader {
  const lines = lineFormat((file) => rawParser(file, header), header);
  return readerOf({
    formatOf(file) {
      if (sampleFormatOf(file).ranges === 'bytes') return lines;
      throw new KintsugiError('BAD_ARGUMENT', `${file}: has no lines that a reader of one's own could take`);
    },
    grows: (file) => sampleFormatOf(file).grows,
    begin: (capacity) => new LineBytes(capacity),
  });
}
