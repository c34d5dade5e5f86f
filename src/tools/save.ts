/**
 * Saves a job: one safetensors file per table and shard, plus a manifest. The files are written to a
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
import type { Client } from '../client/client.js';
import { describe, invariant, KintsugiError } from '../errors.js';
import { checkOptions, checkText, type OptionKeys } from '../options.js';
import { locate, shardCount, type TableSpec } from '../protocol/map.js';
import { syncDirectory } from '../storage/sync.js';
import { rowParts, shapeOf, takePart } from './layout.js';
import { encodeManifest, FORMAT, FORMAT_VERSION, hashFile, MANIFEST, type Manifest } from './manifest.js';
import { poolOfTable, pullRows, shardKeys } from './rows.js';
import { missing, SafetensorsWriter } from './safetensors.js';

/** Options of {@link save}. */
export interface SaveOptions {
  /** Called after every batch. */
  onProgress?: ((progress: SaveProgress) => void) | undefined;
  signal?: AbortSignal | undefined;
  /** Leave out shards that are beyond repair, and say so in the manifest, instead of failing. */
  partial?: boolean | undefined;
}

const SAVE_OPTIONS = { onProgress: true, signal: true, partial: true } satisfies OptionKeys<SaveOptions>;

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
  const shardsOf = (spec: TableSpec) => shardCount(poolOfTable(client, spec));
  const progress = { shards: 0, shardsTotal: specs.reduce((sum, spec) => sum + shardsOf(spec), 0), rows: 0 };
  for (const [index, spec] of specs.entries()) {
    const shards = shardsOf(spec);
    let tableRows = 0;
    for (let shard = 0; shard < shards; shard++) {
      const keys = await keysOrLost(client, spec, shard, options, manifest);
      tableRows += keys.length;
      if (keys.length > 0) {
        const name = fileName(index, spec.name, shard, shards);
        const path = join(directory, name);
        const onRows = (rows: number) => {
          progress.rows += rows;
          options.onProgress?.({ table: spec.name, ...progress });
        };
        await writing(directory, () => saveShard(client, spec, shard, keys, path, options, onRows));
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
 * The keys of a shard. A partial save has none of a shard that is beyond repair, and an entry in the
 * manifest.
 */
async function keysOrLost(
  client: Client,
  spec: TableSpec,
  shard: number,
  options: SaveOptions,
  manifest: Manifest,
): Promise<BigUint64Array> {
  if (!options.partial) return shardKeys(client, spec, shard);
  const { group, member } = locate(poolOfTable(client, spec), shard);
  const { unrecoverable } = await client.status();
  let lost = unrecoverable.some(({ g, m }) => g === group && m === member);
  try {
    if (!lost) return await shardKeys(client, spec, shard);
  } catch (error) {
    if (!(error instanceof KintsugiError) || error.code !== 'UNRECOVERABLE') throw error;
    lost = true;
  }
  manifest.lost = [...(manifest.lost ?? []), { table: spec.name, shard }];
  return new BigUint64Array(0);
}

/** The table's name as far as file systems allow it, and a number that makes the file name unique. */
function fileName(index: number, table: string, shard: number, shards: number): string {
  const slug = table.replace(/[^A-Za-z0-9_-]/g, '_').slice(0, 64);
  const digits = String(shards - 1).length;
  return `${String(index).padStart(3, '0')}-${slug}-${String(shard).padStart(digits, '0')}.safetensors`;
}

async function saveShard(
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
