/** The scheduler's state in an LMDB environment: a commit is durable when its promise resolves. */
import { mkdirSync } from 'node:fs';
import { open } from 'lmdb';
import { describe, KintsugiError } from '../errors.js';
import type { StateStore } from './index.js';

const KEY = 'state';
/** Version of the layout; another one is refused rather than misread. */
const FORMAT = 1;

interface Stored<T> {
  format: number;
  value: T;
}

/** @throws BAD_ARGUMENT when the directory cannot be used or holds another format */
export function openLmdbStore<T>(directory: string): StateStore<T> {
  try {
    mkdirSync(directory, { recursive: true });
    const database = open<Stored<T>, string>({ path: directory, encoding: 'msgpack' });
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
