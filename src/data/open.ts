/** Opens the reader of files that a schema describes, or of the Criteo layout. */
import { KintsugiError } from '../common/errors.js';
import { criteo } from './criteo.js';
import { needsSchema, type SampleFormat, sampleFormatOf } from './formats.js';
import { type DataReader, type Format, readerOf } from './reader.js';
import { SchemaRows } from './rows.js';
import type { Schema } from './schema.js';

/** @param schema undefined: every file is in the Criteo layout, whose batches are never in given memory */
export function openReader(schema: Schema | undefined): DataReader {
  if (!schema) return criteo;
  const opened = new Map<SampleFormat, Format<SchemaRows>>();
  const formatOf = (file: string): Format<SchemaRows> => {
    const format = sampleFormatOf(file);
    if (schema.header === 'positions' && !format.positions)
      throw new KintsugiError('BAD_ARGUMENT', `${file}: its columns have names, and no positions`);
    const known = opened.get(format) ?? format.open(schema);
    opened.set(format, known);
    return known;
  };
  return readerOf({
    formatOf,
    grows: (file) => sampleFormatOf(file).grows,
    begin: (capacity, place) =>
      place?.used?.begun(place.memory) ?? new SchemaRows(schema, capacity, place?.memory),
  });
}

/** @throws BAD_ARGUMENT for files that have no meaning without a schema */
export function checkWithoutSchema(files: readonly string[]): void {
  const file = files.find(needsSchema);
  if (file === undefined) return;
  const text = `${file}: --schema says what its columns mean; without one, files have the Criteo layout`;
  throw new KintsugiError('BAD_ARGUMENT', text);
}
