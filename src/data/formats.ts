/**
 * The formats of data files, one entry each. The ending of a file's name says its format. Readers, the ranges
 * that workers lease, refusals and their texts derive from this table, and so does the help of `import`.
 *
 * Without a schema every file is read in the Criteo layout, whatever its name (criteo.ts).
 */
import { KintsugiError } from '../common/errors.js';
import { delimitedParser } from './delimited.js';
import { jsonParser } from './jsonl.js';
import { lineFormat } from './line-format.js';
import { packing } from './packing.js';
import { parquetFormat } from './parquet-format.js';
import type { Format } from './reader.js';
import type { SchemaRows } from './rows.js';
import type { Schema } from './schema.js';
import {
  npyRows,
  readDelimitedVectors,
  readNpyVectors,
  readParquetVectors,
  readSafetensorsVectors,
  safetensorsRows,
  type VectorChoice,
  type VectorReader,
} from './vectors/readers.js';

/** How workers train the samples of a format. */
export interface SampleFormat {
  /**
   * Unit of a range. `bytes`: a range is the lines that start in it (lines.ts). `rows`: a range is rows of
   * row groups (parquet.ts).
   */
  ranges: 'bytes' | 'rows';
  /** Columns have positions, so that files need no names of them (named-columns.ts). */
  positions: boolean;
  /** Bytes that are appended to a file change nothing before them, so `--follow` can train it. */
  grows: boolean;
  /**
   * Endings that no file in the Criteo layout has: without a schema such a file is refused. Files with the
   * other endings of the format are then read in the Criteo layout.
   */
  needSchema: readonly string[];
  /** The reader of all files of the format. */
  open(schema: Schema): Format<SchemaRows>;
}

export interface FileFormat {
  /** Name of the format in messages and in docs/training.md */
  name: string;
  /** Endings of file names, with the dot, before the ending of a compression (packing.ts) */
  endings: readonly string[];
  /**
   * `whole`: a file may be compressed as a whole, and is then read from its start. `inside`: the format
   * compresses its parts itself. `none`: a reader reads at any place of a file.
   */
  compression: 'whole' | 'inside' | 'none';
  /** undefined: workers cannot train files of the format */
  samples?: SampleFormat;
  /** Reads pretrained embeddings; undefined: `kintsugi import` does not take the format */
  vectors?: VectorReader;
  /** Counts the rows of an array, whose numbers may be their keys; undefined: every row names its key */
  arrayRows?: (file: string, options: VectorChoice) => Promise<number>;
}

/** Lines can be cut at any byte, and a line that is appended moves none. */
const LINES = { ranges: 'bytes', grows: true } as const;

const delimitedFormat = (schema: Schema, delimiter: string) =>
  lineFormat(delimitedParser(schema, delimiter), schema.header === undefined);

const TSV: FileFormat & { samples: SampleFormat } = {
  name: 'TSV',
  endings: ['.tsv'],
  compression: 'whole',
  samples: { ...LINES, positions: true, needSchema: [], open: (schema) => delimitedFormat(schema, '\t') },
  vectors: (file, options) => readDelimitedVectors(file, '\t', options),
};

export const FORMATS: readonly FileFormat[] = [
  {
    name: 'safetensors',
    endings: ['.safetensors'],
    compression: 'none',
    vectors: readSafetensorsVectors,
    arrayRows: safetensorsRows,
  },
  {
    name: 'npy',
    endings: ['.npy'],
    compression: 'none',
    vectors: readNpyVectors,
    arrayRows: npyRows,
  },
  {
    name: 'parquet',
    endings: ['.parquet'],
    compression: 'inside',
    samples: {
      ranges: 'rows',
      positions: false,
      grows: false,
      needSchema: ['.parquet'],
      open: (schema) => parquetFormat(schema),
    },
    vectors: readParquetVectors,
  },
  {
    name: 'CSV',
    endings: ['.csv'],
    compression: 'whole',
    samples: { ...LINES, positions: true, needSchema: [], open: (schema) => delimitedFormat(schema, ',') },
    vectors: (file, options) => readDelimitedVectors(file, ',', options),
  },
  TSV,
  {
    name: 'JSON lines',
    endings: ['.jsonl', '.ndjson', '.json'],
    compression: 'whole',
    samples: {
      ...LINES,
      positions: false,
      needSchema: ['.jsonl', '.ndjson'],
      open: (schema) => lineFormat((file) => jsonParser(file, schema)),
    },
  },
];

const hasEnding = (name: string, endings: readonly string[]) => endings.some((each) => name.endsWith(each));

/**
 * The format of a file of samples: TSV where the ending says no other one.
 * @throws BAD_ARGUMENT for a compressed file of a format that does not allow it
 */
export function sampleFormatOf(file: string): SampleFormat {
  const { name, ending } = packing(file);
  const format = FORMATS.find(({ samples, endings }) => samples && hasEnding(name, endings)) ?? TSV;
  if (ending !== undefined && format.compression !== 'whole') {
    const text = `${file}: ${format.name} is compressed inside; a file of it cannot end in ${ending}`;
    throw new KintsugiError('BAD_ARGUMENT', text);
  }
  return format.samples!;
}

/** True for a file of samples that has no meaning without a schema. */
export function needsSchema(file: string): boolean {
  const { name } = packing(file);
  return FORMATS.some(({ samples }) => samples && hasEnding(name, samples.needSchema));
}

const VECTOR_FORMATS = FORMATS.filter(({ vectors }) => vectors);
const vectorEndings = VECTOR_FORMATS.flatMap(({ endings }) => endings);

/** Endings of files that `kintsugi import` takes, as help and messages list them. */
export const VECTOR_ENDINGS = `${vectorEndings.slice(0, -1).join(', ')} or ${vectorEndings.at(-1)}`;

/**
 * The format of a file of embeddings. Capital letters in the ending are as good as small ones.
 * @param name without the ending of a compression
 */
export function vectorFormatOf(name: string): FileFormat | undefined {
  return VECTOR_FORMATS.find(({ endings }) => hasEnding(name.toLowerCase(), endings));
}
