/**
 * Saves a job: one safetensors file per table and shard, or several where a shard has many rows, plus a
 * manifest. The files are written to a
 * temporary directory, which is renamed when everything is on the disk. So the directory is complete if it
 * exists.
 *
 * The job goes on meanwhile. Every saved row is whole (values and state of one moment), but different rows
 * are of different moments, and a row that is new since its shard was listed is left out. Stop the workers
 * first for a state of one moment of the training.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { rowParts, shapeOf, takePart } from '../checkpoint/layout.js';
import type { Client } from '../client/client.js';
import { internalsOf } from '../client/internals.js';
import { poolOfTable, shardKeys } from '../client/scan.js';
import { describe, invariant, KintsugiError } from '../errors.js';
import { checkInteger, checkOptions, checkText, type OptionKeys } from '../options.js';
import { locate, shardCount, type TableSpec } from '../protocol/map.js';
import { syncDirectory } from '../storage/sync.js';
import { encodeManifest, FORMAT, FORMAT_VERSION, hashFile, MANIFEST, type Manifest } from './manifest.js';
import { pullRows, sortedLists } from './rows.js';
import { missing, SafetensorsWriter } from './safetensors.js';

/** Options of {@link save}. */
export interface SaveOptions {
  /** Called after every batch. */
  onProgress?: ((progress: SaveProgress) => void) | undefined;
  signal?: AbortSignal | undefined;
  /** Leave out shards that are beyond repair, and say so in the manifest, instead of failing. */
  partial?: boolean | undefined;
  /**
   * Most rows in a file; a shard with more has several. A save keeps the keys of one file in memory, of 8
   * bytes each. Default: 1,048,576.
   */
  rowsPerFile?: number | undefined;
}

const SAVE_OPTIONS = {
  onProgress: true,
  signal: true,
  partial: true,
  rowsPerFile: true,
} satisfies OptionKeys<SaveOptions>;

const ROWS_PER_FILE = 1 << 20;

/** How far a save is. */
export interface SaveProgress {
  table: string;
  /** Shards of all tables that are saved, and how many there are. */
  shards: number;
  shardsTotal: number;
  rows: number;
}

/** What a save wrote. */
export interface SaveResult {
  tables: number;
  rows: number;
  files: number;
  bytes: number;
  /** (table, shard) pairs that a partial save had to leave out. */
  lost: number;
}

/**
 * Saves every table, without the ones of audits, into `directory`, which must not exist or be empty.
 * @throws BAD_ARGUMENT (the directory cannot be used), UNRECOVERABLE, ABORTED, CLOSED
 */
export async function save(
  client: Client,
  directory: string,
  options: SaveOptions = {},
): Promise<SaveResult> {
  checkText('save: directory', directory);
  checkOptions('save', options, SAVE_OPTIONS);
  if (options.rowsPerFile !== undefined) checkInteger('save: rowsPerFile', options.rowsPerFile, 1);
  const target = resolve(directory);
  await refuseUsed(target, directory);
  const temporary = join(dirname(target), `.${basename(target)}.${randomBytes(6).toString('hex')}.partial`);
  await writing(directory, () => mkdir(temporary, { recursive: true }));
  try {
    const manifest = await saveTables(client, temporary, options);
    await writing(directory, async () => {
      await writeDurably(join(temporary, MANIFEST), encodeManifest(manifest));
      await syncDirectory(temporary);
      await rename(temporary, target);
      await syncDirectory(dirname(target));
    });
    const { tables, files } = manifest;
    const sum = (field: 'rows' | 'bytes') => files.reduce((total, file) => total + file[field], 0);
    return {
      tables: tables.length,
      rows: sum('rows'),
      files: files.length,
      bytes: sum('bytes'),
      lost: manifest.lost?.length ?? 0,
    };
  } catch (error) {
    await rm(temporary, { recursive: true, force: true });
    throw error;
  }
}

async function refuseUsed(target: string, shown: string): Promise<void> {
  const names = await readdir(target).catch((error: unknown) => {
    if (missing(error)) return [];
    throw new KintsugiError('BAD_ARGUMENT', `cannot save to ${shown}: ${describe(error)}`);
  });
  if (names.length > 0) {
    throw new KintsugiError('BAD_ARGUMENT', `${shown} is not empty; save into a new directory`);
  }
}

/** Errors of the file system, with the directory that the user named. */
async function writing<T>(shown: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof KintsugiError || (error as NodeJS.ErrnoException).syscall === undefined) throw error;
    throw new KintsugiError('BAD_ARGUMENT', `cannot write ${shown}: ${describe(error)}`, { cause: error });
  }
}

async function saveTables(client: Client, directory: string, options: SaveOptions): Promise<Manifest> {
  const { job, pools } = client.clusterMap;
  const specs = client.tables().sort((a, b) => (a.name < b.name ? -1 : 1));
  const manifest: Manifest = {
    format: FORMAT,
    version: FORMAT_VERSION,
    job: { id: job, pools },
    tables: [],
    files: [],
  };
  const shardsOf = (spec: TableSpec) => shardCount(poolOfTable(client.clusterMap, spec));
  const progress = { shards: 0, shardsTotal: specs.reduce((sum, spec) => sum + shardsOf(spec), 0), rows: 0 };
  for (const [index, spec] of specs.entries()) {
    const shards = shardsOf(spec);
    let tableRows = 0;
    const onRows = (rows: number) => {
      progress.rows += rows;
      options.onProgress?.({ table: spec.name, ...progress });
    };
    for (let shard = 0; shard < shards; shard++) {
      let part = 0;
      for await (const keys of listsOrLost(client, spec, shard, options, manifest)) {
        tableRows += keys.length;
        const name = fileName(index, spec.name, { shard, shards, part: part++ });
        const path = join(directory, name);
        await writing(directory, () => saveRows(client, spec, shard, keys, path, options, onRows));
        const [sha256, { size }] = await Promise.all([hashFile(path), stat(path)]);
        manifest.files.push({
          table: spec.name,
          shard,
          shards,
          name,
          rows: keys.length,
          bytes: size,
          sha256,
        });
      }
      progress.shards++;
    }
    const { id: _, ...saved } = spec;
    manifest.tables.push({ ...saved, rows: tableRows });
  }
  return manifest;
}

/**
 * The keys of a shard, a list for each file. A partial save has none of a shard that is beyond repair, and an
 * entry in the manifest.
 */
async function* listsOrLost(
  client: Client,
  spec: TableSpec,
  shard: number,
  options: SaveOptions,
  manifest: Manifest,
): AsyncGenerator<BigUint64Array> {
  const pages = shardKeys(internalsOf(client).session, spec, shard, { signal: options.signal });
  const lists = sortedLists(pages, options.rowsPerFile ?? ROWS_PER_FILE);
  if (!options.partial) return yield* lists;
  const { group, member } = locate(poolOfTable(client.clusterMap, spec), shard);
  const { unrecoverable } = await client.status();
  const lost = unrecoverable.some(({ g, m }) => g === group && m === member);
  const first = lost ? undefined : await unlessLost(lists.next());
  if (first === undefined) {
    manifest.lost = [...(manifest.lost ?? []), { table: spec.name, shard }];
  } else if (!first.done) {
    yield first.value;
    yield* lists;
  }
}

/** What it gives, or undefined when that is beyond repair. */
async function unlessLost<T>(work: Promise<T>): Promise<T | undefined> {
  return work.catch((error: unknown) => {
    if (error instanceof KintsugiError && error.code === 'UNRECOVERABLE') return undefined;
    throw error;
  });
}

/** The table's name as far as file systems allow it, and numbers that make the file name unique. */
function fileName(
  index: number,
  table: string,
  { shard, shards, part }: { shard: number; shards: number; part: number },
): string {
  const slug = table.replace(/[^A-Za-z0-9_-]/g, '_').slice(0, 64);
  const digits = String(shards - 1).length;
  const place = `${String(index).padStart(3, '0')}-${slug}-${String(shard).padStart(digits, '0')}`;
  return part === 0 ? `${place}.safetensors` : `${place}-${part}.safetensors`;
}

async function saveRows(
  client: Client,
  spec: TableSpec,
  shard: number,
  keys: BigUint64Array,
  path: string,
  options: SaveOptions,
  onRows: (rows: number) => void,
): Promise<void> {
  const width = client.rowWidth(spec);
  const parts = rowParts(spec.dim, spec.optimizer);
  invariant(parts.reduce((sum, part) => sum + part.floats, 0) === width, 'parts make up the row', { width });
  const writer = await SafetensorsWriter.create(
    path,
    [
      { name: 'keys', dtype: 'U64', shape: [keys.length] },
      ...parts.map((part) => ({ name: part.name, dtype: 'F32' as const, shape: shapeOf(part, keys.length) })),
    ],
    {
      format: FORMAT,
      table: spec.name,
      pool: spec.pool,
      shard: String(shard),
      optimizer: spec.optimizer.kind,
    },
  );
  try {
    let from = 0;
    for await (const batch of pullRows(client, spec, keys, { signal: options.signal })) {
      await writer.write('keys', from * 8, batch.keys);
      for (const part of parts) {
        await writer.write(part.name, from * part.floats * 4, takePart(batch.rows, width, part));
      }
      from += batch.keys.length;
      onRows(batch.keys.length);
    }
    await writer.finish();
  } finally {
    await writer.abandon();
  }
}

async function writeDurably(path: string, text: string): Promise<void> {
  const file = await open(path, 'wx');
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}
