/**
 * Sets rows of a table of a running job to what files hold: embeddings that were trained before, elsewhere.
 * Rows are set, and nothing is added to them, so an import that was broken off is simply made again. What the
 * files say of other rows stays as it is, and training may go on meanwhile.
 */

import { KintsugiError } from '../../common/errors.js';
import {
  checkArray,
  checkFields,
  checkFunction,
  checkSignal,
  checkText,
  type OptionKeys,
} from '../../common/options.js';
import { checkFiles } from '../../data/bytes.js';
import { checkColumn } from '../../data/keys.js';
import type { KeyKind, SparseColumn } from '../../data/schema.js';
import { arrayPlaces, readVectors } from '../../data/vectors/open.js';
import type { ValueOrder } from '../../data/vectors/readers.js';
import type { VectorBatch } from '../../data/vectors/rows.js';
import { loadNative } from '../../engine/native.js';
import type { TableSpec } from '../../protocol/map.js';
import { initialState, joinRows } from '../../stores/checkpoint/layout.js';
import type { Client } from '../client/client.js';
import { pipelined } from '../client/concurrent.js';
import { internalsOf } from '../client/connected.js';
import { batchRows } from '../client/scan.js';

/** Batches that are not durable yet, and bytes of keys and rows in each. */
const IN_FLIGHT = 4;
const BATCH_BYTES = 1 << 20;

/** Options of {@link importRows}. */
export interface ImportOptions {
  /** Name of the table; it exists. Default: that of `column`. */
  table?: string | undefined;
  /** Kind of the keys in the files, in a table that a schema names. Default: `integer`. */
  key?: KeyKind | undefined;
  /** The column of a schema whose values the keys in the files are, instead of `table` and `key`. */
  column?: SparseColumn | undefined;
  /**
   * Where the keys are: the column (default: `key`), the tensor, or another npy file, which has those of all
   * npy files together. Without it the keys of the rows of arrays are their numbers from 0, which go on from
   * file to file.
   */
  keys?: string | undefined;
  /**
   * Where the values are: the columns with commas between (default: all but the keys), or the tensor
   * (default: the only one with rows of floats).
   */
  values?: string | undefined;
  /** Called when a batch is durable. */
  onProgress?: ((progress: ImportProgress) => void) | undefined;
  signal?: AbortSignal | undefined;
}

const IMPORT_OPTIONS = {
  table: true,
  key: true,
  column: true,
  keys: checkText,
  // Thousands of columns are many characters.
  values: (where: string, given: string) => checkText(where, given, Number.POSITIVE_INFINITY),
  onProgress: checkFunction,
  signal: checkSignal,
} satisfies OptionKeys<ImportOptions>;

/** How far an import is. */
export interface ImportProgress {
  file: string;
  /** Rows of all files until now */
  rows: number;
}

/** The result of an import. */
export interface ImportResult {
  files: number;
  /** A key that is there twice counts twice. */
  rows: number;
}

/**
 * Sets the rows whose keys and values are in files (safetensors, npy, parquet, CSV, TSV), one file after the
 * other. Resolves when every row is durable. A row begins like a new one: its optimizer has seen no gradient.
 * Of a key that is there more than once the last row counts. An import that failed is made again as a whole.
 *
 * @example
 * ```ts
 * await importRows(client, ['items.safetensors'], { table: 'items', values: 'item_embedding.weight' });
 * ```
 * @param given files on this machine or `s3://bucket/path`; the ending of a name says the format
 * @throws BAD_DATA with file and row, UNKNOWN_TABLE, BAD_ARGUMENT, DEPENDENCY_MISSING, PLACE_FAILED,
 * MEMORY_LIMIT, UNRECOVERABLE, ABORTED, CLOSED
 */
export async function importRows(
  client: Client,
  given: readonly string[],
  options: ImportOptions,
): Promise<ImportResult> {
  checkArray('importRows: files', given);
  const files = [...given];
  for (const file of files) checkText('importRows: files', file);
  checkFields('importRows', options, IMPORT_OPTIONS);
  internalsOf(client);
  const column = columnOf(options);
  if (options.column === undefined) checkText('importRows: table', column.table);
  checkColumn('importRows', column);
  const table = client.table(column.table);
  const { spec } = table;
  const { keys, values, onProgress, signal } = options;
  await checkFiles(files);
  const batch = batchRows(client.rowWidth(spec), BATCH_BYTES);
  const places = await arrayPlaces(files, { keys, values });
  let rows = 0;
  const order: ValueOrder = {};
  for (const [index, file] of files.entries()) {
    const among = places[index];
    const batches = readVectors(file, { dim: spec.dim, column, keys, values, batch, among, order });
    const done = pipelined(IN_FLIGHT, batches, async (each) => {
      await client.assign([{ table, ...rowsOf(client, spec, each) }], { signal });
      return each.keys.length;
    });
    try {
      for await (const count of done) {
        rows += count;
        onProgress?.({ file, rows });
      }
    } catch (error) {
      throw withCount(error, rows);
    }
  }
  return { files: files.length, rows };
}

function columnOf({ table, key, column }: ImportOptions): SparseColumn {
  if (column !== undefined) {
    if (table === undefined && key === undefined) return column;
    throw new KintsugiError('BAD_ARGUMENT', 'importRows: `column` says the table and what its keys are');
  }
  return {
    ...{ name: 'key', column: 'key', key: key ?? 'integer', table: table as string, shared: true },
    ...{ multi: false, pooling: 'mean', limit: 1, separator: '|' },
  };
}

/** Each key once, as its last row says, with the state of a new row. */
function rowsOf(client: Client, spec: TableSpec, batch: VectorBatch) {
  const { dim, optimizer, policy } = spec;
  const { keys, values } = lastOfEach(batch, dim);
  const fresh = initialState(dim, optimizer, policy);
  const state = new Float32Array(keys.length * fresh.length);
  for (let row = 0; row < keys.length; row++) state.set(fresh, row * fresh.length);
  return { keys, gradients: joinRows({ values, state }, client.rowWidth(spec), dim) };
}

function lastOfEach({ keys, values }: VectorBatch, dim: number): VectorBatch {
  const { keys: each, inverse } = loadNative().unique(keys);
  if (each.length === keys.length) return { keys, values };
  const last = new Float32Array(each.length * dim);
  for (const [row, index] of inverse.entries())
    last.set(values.subarray(row * dim, (row + 1) * dim), index * dim);
  return { keys: each, values: last };
}

/** Adds to an error how many rows were set: they stay. */
function withCount(error: unknown, rows: number): unknown {
  if (!(error instanceof KintsugiError) || rows === 0) return error;
  const text = `${error.message} (${rows} rows before it are set; the import can be made again as a whole)`;
  return new KintsugiError(error.code, text, { cause: error });
}
