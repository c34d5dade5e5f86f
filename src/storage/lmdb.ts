/** The scheduler's state in an LMDB environment: a commit is durable when its promise resolves. */
import { closeSync, existsSync, mkdirSync, openSync, readSync, statSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { open } from 'lmdb';
import { describe, KintsugiError } from '../errors.js';
import type { Entries, StateStore } from './index.js';

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

/** LMDB hides why a commit failed in a promise, which is rejected. */
async function reasonOf(error: unknown): Promise<string> {
  const { commitError } = error as { commitError?: Promise<never> };
  return describe(commitError === undefined ? error : await commitError.catch((reason: unknown) => reason));
}

/** @throws BAD_ARGUMENT when the directory cannot be used */
export function openLmdbStore(directory: string): StateStore {
  try {
    mkdirSync(directory, { recursive: true });
    checkFile(join(directory, 'data.mdb'));
    // Else a name with a dot in it is taken for a file's.
    const database = open<unknown, string>({ path: directory, noSubdir: false, encoding: 'msgpack' });
    const file = join(directory, 'data.mdb');
    const { ino, dev } = statSync(file);
    // LMDB writes to the file that it has open, also when no name leads to it any more.
    const checkName = async () => {
      const named = await stat(file).catch(() => undefined);
      if (named?.ino !== ino || named.dev !== dev) throw new Error('data.mdb was removed or replaced');
    };
    let failed = false;
    return {
      load: async () => new Map([...database.getRange()].map(({ key, value }) => [key, value])),
      write: async (changes: Entries) => {
        try {
          await database.transaction(() => {
            for (const [key, value] of changes) {
              if (value === undefined) void database.remove(key);
              else void database.put(key, value);
            }
          });
          await database.flushed;
          await checkName();
        } catch (error) {
          failed = true;
          const reason = await reasonOf(error);
          throw new KintsugiError('STORE_FAILED', `cannot write to "${directory}": ${reason}`, {
            cause: error,
          });
        }
      },
      // LMDB never finishes closing after a commit that failed.
      close: () => (failed ? Promise.resolve() : database.close()),
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
