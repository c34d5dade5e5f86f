/** The reader of what a schema describes: the ending of a file's name says its format. */
import { KintsugiError } from '../errors.js';
import { packing } from './bytes.js';
import { criteo } from './criteo.js';
import { delimitedParser } from './delimited.js';
import { jsonParser } from './jsonl.js';
import { lineFormat } from './lines.js';
import { parquetFormat } from './parquet.js';
import { type Format, type Reader, readerOf } from './reader.js';
import { SchemaRows } from './rows.js';
import type { Schema } from './schema.js';

const JSON_LINES = /\.(jsonl|ndjson|json)$/;

/** @param schema undefined: every file is in the Criteo layout */
export function openReader(schema: Schema | undefined): Reader {
  if (!schema) return criteo;
  const formats = {
    csv: lineFormat(delimitedParser(schema, ',')),
    tsv: lineFormat(delimitedParser(schema, '\t')),
    json: lineFormat((file) => jsonParser(file, schema)),
    parquet: parquetFormat(schema),
  };
  const formatOf = (file: string): Format<SchemaRows> => {
    const { name, ending } = packing(file);
    if (name.endsWith('.parquet')) {
      if (ending === undefined) return formats.parquet;
      const text = `${file}: parquet is compressed inside; a file of it cannot end in ${ending}`;
      throw new KintsugiError('BAD_ARGUMENT', text);
    }
    if (JSON_LINES.test(name)) return formats.json;
    return name.endsWith('.csv') ? formats.csv : formats.tsv;
  };
  return readerOf(formatOf, (capacity) => new SchemaRows(schema, capacity));
}

/** @throws BAD_ARGUMENT for files that have no meaning without a schema */
export function checkWithoutSchema(files: readonly string[]): void {
  const file = files.find((each) => /\.(parquet|jsonl|ndjson)$/.test(packing(each).name));
  if (file === undefined) return;
  const text = `${file}: --schema says what its columns mean; without one, files have the Criteo layout`;
  throw new KintsugiError('BAD_ARGUMENT', text);
}
