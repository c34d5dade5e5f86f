/**
 * manifest.json of a saved job: what the tables are, and for every file its size and SHA-256. It carries a
 * SHA-256 of itself, so that a flipped digit in a learning rate is noticed just as one in a row.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { tableProblem } from '../core/scheduler/tables.js';
import { describe, KintsugiError } from '../errors.js';
import type { Pool, TableSpec } from '../protocol/map.js';
import { missing } from './safetensors.js';

export const MANIFEST = 'manifest.json';
export const FORMAT = 'kintsugi-checkpoint';
export const FORMAT_VERSION = 1;
/** Data files have plain names, so that a manifest cannot point outside its directory. */
const FILE_NAME = /^[A-Za-z0-9_-][A-Za-z0-9._-]*\.safetensors$/;
const SHA256 = /^[0-9a-f]{64}$/;

/** A specification without the id, which belongs to the job that it was saved from. */
export type SavedTable = Omit<TableSpec, 'id'> & { rows: number };

export interface SavedFile {
  table: string;
  /** Shard of the table's pool, and how many that pool had. */
  shard: number;
  shards: number;
  name: string;
  rows: number;
  bytes: number;
  sha256: string;
}

export interface Manifest {
  format: typeof FORMAT;
  version: number;
  /** The job that was saved, for people. Loading does not depend on it. */
  job: { id: string; pools: Pool[] };
  tables: SavedTable[];
  /** Shards without a row have no file. */
  files: SavedFile[];
  /** Shards that were beyond repair when a partial save was made. */
  lost?: { table: string; shard: number }[];
}

function bad(problem: string): KintsugiError {
  return new KintsugiError('BAD_CHECKPOINT', `${MANIFEST}: ${problem}`);
}

function hashOf(body: object): string {
  return createHash('sha256').update(JSON.stringify(body)).digest('hex');
}

export function encodeManifest(manifest: Manifest): string {
  return `${JSON.stringify({ ...manifest, sha256: hashOf(manifest) }, null, 2)}\n`;
}

/** @throws BAD_CHECKPOINT */
export function decodeManifest(text: string): Manifest {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw bad(`not JSON (${describe(error)})`);
  }
  if (typeof json !== 'object' || json === null) throw bad('not an object');
  const { sha256, ...body } = json as Manifest & { sha256?: unknown };
  if (body.format !== FORMAT) throw bad(`not the manifest of a saved job (format "${body.format}")`);
  if (body.version !== FORMAT_VERSION) {
    throw bad(`format version ${body.version}; this program reads version ${FORMAT_VERSION}`);
  }
  if (sha256 !== hashOf(body)) throw bad('its content does not match its SHA-256');
  checkTables(body);
  checkFiles(body);
  return body;
}

export async function readManifest(directory: string): Promise<Manifest> {
  const text = await readFile(join(directory, MANIFEST), 'utf8').catch((error: unknown) => {
    throw bad(missing(error) ? `the file is missing in ${directory}` : describe(error));
  });
  return decodeManifest(text);
}

/** SHA-256 of a file, hexadecimal. */
export async function hashFile(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const piece of createReadStream(path, { highWaterMark: 1 << 20 }))
    hash.update(piece as Uint8Array);
  return hash.digest('hex');
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function checkTables({ tables, job }: Manifest): void {
  if (!Array.isArray(tables) || !Array.isArray(job?.pools)) throw bad('tables or pools are missing');
  for (const table of tables) {
    const problem = tableProblem(table, job.pools);
    if (problem) throw bad(problem);
    if (!isCount(table.rows)) throw bad(`table "${table.name}" has no valid number of rows`);
  }
  if (new Set(tables.map((table) => table.name)).size < tables.length) throw bad('a table occurs twice');
}

function checkFiles({ tables, files }: Manifest): void {
  if (!Array.isArray(files)) throw bad('the list of files is missing');
  const rows = new Map(tables.map((table) => [table.name, 0]));
  for (const file of files) {
    if (!FILE_NAME.test(file.name)) throw bad(`"${file.name}" is not the name of a data file`);
    const before = rows.get(file.table);
    if (before === undefined) throw bad(`${file.name} belongs to no table`);
    if (!isCount(file.rows) || !isCount(file.bytes) || !SHA256.test(file.sha256)) {
      throw bad(`the entry of ${file.name} has no valid rows, bytes or sha256`);
    }
    rows.set(file.table, before + file.rows);
  }
  if (new Set(files.map((file) => file.name)).size < files.length) throw bad('a file occurs twice');
  for (const table of tables) {
    const found = rows.get(table.name);
    if (found !== table.rows) throw bad(`table "${table.name}" has ${table.rows} rows, its files ${found}`);
  }
}
