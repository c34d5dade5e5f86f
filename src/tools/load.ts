/**
 * Loads a saved job into a running one, of any number of nodes and any code. Everything is verified before
 * the first row is loaded: a directory that is damaged anywhere is refused as a whole, with the name of the
 * file.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { putPart, type RowPart, rowParts, shapeOf } from '../checkpoint/layout.js';
import type { TensorSpec } from '../checkpoint/safetensors.js';
import type { Client } from '../client/client.js';
import { eachAtMost, ranges } from '../client/concurrent.js';
import { internalsOf } from '../client/internals.js';
import { batchRows, rowCounts } from '../client/scan.js';
import { KintsugiError } from '../errors.js';
import { checkOptions, checkText, type OptionKeys } from '../options.js';
import { type TableSpec, tableByName } from '../protocol/map.js';
import { hashFile, type Manifest, readManifest, type SavedFile, type SavedTable } from './manifest.js';
import { SafetensorsReader } from './safetensors.js';

/** Batches that are not durable yet, and bytes of keys and rows in each; it is in memory several times. */
const IN_FLIGHT = 4;
const BATCH_BYTES = 1 << 20;

/** Options of {@link load}. */
export interface LoadOptions {
  /** Called when a batch is durable. */
  onProgress?: ((progress: LoadProgress) => void) | undefined;
  signal?: AbortSignal | undefined;
}

const LOAD_OPTIONS = { onProgress: true, signal: true } satisfies OptionKeys<LoadOptions>;

/** How far a load is. */
export interface LoadProgress {
  table: string;
  rows: number;
  rowsTotal: number;
}

/** What was loaded. */
export interface LoadResult {
  tables: number;
  rows: number;
}

/**
 * Creates the saved tables and fills them. Resolves when every row is durable. The client must have been
 * opened without `audit`, and tables that exist must be empty: rows that are in the job and not in the saved
 * one would otherwise survive.
 * @throws BAD_CHECKPOINT, TABLE_EXISTS, BAD_ARGUMENT, MEMORY_LIMIT, UNRECOVERABLE, ABORTED, CLOSED
 */
export async function load(
  client: Client,
  directory: string,
  options: LoadOptions = {},
): Promise<LoadResult> {
  checkText('load: directory', directory);
  checkOptions('load', options, LOAD_OPTIONS);
  const manifest = await verify(directory, options.signal);
  await refuseFilled(client, manifest.tables);
  await client.createTables(manifest.tables.map(({ rows: _, ...spec }) => spec));
  const progress = { rows: 0, rowsTotal: manifest.tables.reduce((sum, table) => sum + table.rows, 0) };
  for (const file of manifest.files) {
    await loadFile(client, join(directory, file.name), file, options, (rows) => {
      progress.rows += rows;
      options.onProgress?.({ table: file.table, ...progress });
    });
  }
  return { tables: manifest.tables.length, rows: progress.rows };
}

// ---- verification

/**
 * Checks a whole saved job: manifest, and every file's presence, size, structure and SHA-256. @throws
 * BAD_CHECKPOINT
 */
export async function verify(directory: string, signal?: AbortSignal): Promise<Manifest> {
  const manifest = await readManifest(directory);
  const listed = new Set(manifest.files.map((file) => file.name));
  // A data file that the manifest does not list means that two saved jobs were mixed.
  for (const name of await readdir(directory)) {
    if (name.endsWith('.safetensors') && !listed.has(name)) {
      throw new KintsugiError('BAD_CHECKPOINT', `${name}: the manifest does not list this file`);
    }
  }
  const tables = new Map(manifest.tables.map((table) => [table.name, table]));
  for (const file of manifest.files) {
    if (signal?.aborted) throw new KintsugiError('ABORTED', 'the operation was aborted');
    await verifyFile(join(directory, file.name), file, tables.get(file.table)!);
  }
  return manifest;
}

async function verifyFile(path: string, file: SavedFile, table: SavedTable): Promise<void> {
  const bad = (problem: string) => new KintsugiError('BAD_CHECKPOINT', `${file.name}: ${problem}`);
  const reader = await SafetensorsReader.open(path);
  const { tensors, fileBytes } = reader.layout;
  await reader.close();
  if (fileBytes !== file.bytes) throw bad(`${fileBytes} bytes where the manifest says ${file.bytes}`);
  const wanted: TensorSpec[] = [
    { name: 'keys', dtype: 'U64', shape: [file.rows] },
    ...rowParts(table.dim, table.optimizer).map((part) => ({
      name: part.name,
      dtype: 'F32' as const,
      shape: shapeOf(part, file.rows),
    })),
  ];
  for (const { name, dtype, shape } of wanted) {
    const found = tensors.get(name);
    if (found?.dtype !== dtype || found.shape.join() !== shape.join()) {
      throw bad(`there is no tensor "${name}" of ${dtype} [${shape}], which table "${table.name}" needs`);
    }
  }
  if (tensors.size > wanted.length) throw bad(`it has tensors that table "${table.name}" does not need`);
  if ((await hashFile(path)) !== file.sha256) throw bad('its content does not match its SHA-256');
}

/** @throws BAD_ARGUMENT */
async function refuseFilled(client: Client, tables: readonly SavedTable[]): Promise<void> {
  const known = tables.flatMap(({ name }) => tableByName(client.clusterMap, name) ?? []);
  if (known.length === 0) return;
  const counts = await rowCounts(internalsOf(client).session);
  for (const { id, name } of known) {
    if ((counts.get(id) ?? 0) === 0) continue;
    const text = `table "${name}" already has rows; load into a job that has none`;
    throw new KintsugiError('BAD_ARGUMENT', text);
  }
}

// ---- rows

async function loadFile(
  client: Client,
  path: string,
  file: SavedFile,
  options: LoadOptions,
  onRows: (rows: number) => void,
): Promise<void> {
  const spec = client.table(file.table).spec;
  const batches = ranges(file.rows, batchRows(client.rowWidth(spec), BATCH_BYTES));
  const reader = await SafetensorsReader.open(path);
  try {
    await eachAtMost(IN_FLIGHT, batches, async ([start, end]) => {
      const { keys, rows } = await readRows(reader, spec, client.rowWidth(spec), start, end);
      await client.assign([{ table: spec.name, keys, gradients: rows }], { signal: options.signal });
      onRows(end - start);
    });
  } finally {
    await reader.close();
  }
}

async function readRows(
  reader: SafetensorsReader,
  spec: TableSpec,
  width: number,
  start: number,
  end: number,
): Promise<{ keys: BigUint64Array; rows: Float32Array }> {
  const count = end - start;
  const part = (name: string, bytes: number) =>
    reader.read(reader.layout.tensors.get(name)!, start * bytes, count * bytes);
  const keys = new BigUint64Array(await part('keys', 8));
  const rows = new Float32Array(count * width);
  const floats = async (p: RowPart) => new Float32Array(await part(p.name, p.floats * 4));
  for (const p of rowParts(spec.dim, spec.optimizer)) putPart(rows, width, p, await floats(p));
  return { keys, rows };
}
