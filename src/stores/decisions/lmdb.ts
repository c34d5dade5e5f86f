/** Entries that earlier versions kept in an LMDB environment, read once. */
import { existsSync } from 'node:fs';
import { open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { KintsugiError } from '../../common/errors.js';
import { importOptional } from '../../common/optional.js';

const FILE = 'data.mdb';
/** The magic of an LMDB file, and where it lies. */
const MAGIC = [0xde, 0xc0, 0xef, 0xbe];
const MAGIC_AT = 24;

/** LMDB trusts what it maps: a file that is something else would crash the process. @throws BAD_ARGUMENT */
async function checkFile(path: string): Promise<void> {
  const start = Buffer.alloc(MAGIC_AT + MAGIC.length);
  const file = await open(path, 'r');
  const { bytesRead } = await file.read(start);
  await file.close();
  if (bytesRead === start.length && MAGIC.every((byte, i) => start[MAGIC_AT + i] === byte)) return;
  throw new KintsugiError('BAD_ARGUMENT', `"${path}" is not an LMDB file`);
}

/** The JSON of values by key; empty where there is no such file. @throws BAD_ARGUMENT, DEPENDENCY_MISSING */
export async function readLmdb(directory: string): Promise<Map<string, string>> {
  const path = join(directory, FILE);
  if (!existsSync(path)) return new Map();
  await checkFile(path);
  const lmdb = await importOptional<typeof import('lmdb')>('lmdb');
  // Without this option a path with a dot in it is taken for a file.
  const database = lmdb.open<unknown, string>({ path: directory, noSubdir: false, encoding: 'msgpack' });
  const entries = [...database.getRange()].map(({ key, value }) => [key, JSON.stringify(value)] as const);
  await database.close();
  return new Map(entries);
}

/** An earlier version that is started here by mistake, or still runs, does not go on with an old state. */
export async function retireLmdb(directory: string): Promise<void> {
  const path = join(directory, FILE);
  if (!existsSync(path)) return;
  await rename(path, `${path}.imported`);
  await rm(join(directory, 'lock.mdb'), { force: true });
}
