/** The scheduler's state in an LMDB environment: a commit is durable when its promise resolves. */
import { closeSync, existsSync, mkdirSync, openSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { open } from 'lmdb';
import { describe, KintsugiError } from '../errors.js';
import type { StateStore } from './index.js';

const KEY = 'state';
/** Version of the layout; another one is refused rather than misread. */
const FORMAT = 2;

interface Stored<T> {
  format: number;
  value: T;
}

/** The magic of an LMDB file, and where it lies. */
const MAGIC = [0xde, 0xc0, 0xef, 0xbe];
const MAGIC_AT = 24;

/** LMDB trusts what it maps: a file that is something else would crash the process. @throws BAD_ARGUMENT */
function checkFile(path: string): void {
  if (!existsSync(path)) return;
  const start = Buffer.alloc(MAGIC_AT + MAGIC.length);
  const file = openSync(path, 'r');
  const length = readSync(file, start);
  closeSync(file);
  if (length === 0 || (length === start.length && MAGIC.every((byte, i) => start[MAGIC_AT + i] === byte)))
    return;
  throw new KintsugiError('BAD_ARGUMENT', `"${path}" is not an LMDB file`);
}

/** @throws BAD_ARGUMENT when the directory cannot be used or holds another format */
export function openLmdbStore<T>(directory: string): StateStore<T> {
  try {
    mkdirSync(directory, { recursive: true });
    checkFile(join(directory, 'data.mdb'));
    // Else a name with a dot in it is taken for a file's.
    const database = open<Stored<T>, string>({ path: directory, noSubdir: false, encoding: 'msgpack' });
    return {
      load: async () => {
        const stored = database.get(KEY);
        if (stored && stored.format !== FORMAT) {
          throw new KintsugiError(
            'BAD_ARGUMENT',
            `${directory} holds a scheduler state of format ${stored.format}, not ${FORMAT}`,
          );
        }
        return stored?.value;
      },
      save: async (value) => {
        await database.put(KEY, { format: FORMAT, value });
        await database.flushed;
      },
      close: () => database.close(),
    };
  } catch (error) {
    throw new KintsugiError(
      'BAD_ARGUMENT',
      `cannot use "${directory}" for the scheduler's state: ${describe(error)}`,
      {
        cause: error,
      },
    );
  }
}
