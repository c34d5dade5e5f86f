/** The files that `--data` names, as a source. */
import { basename } from 'node:path';
import { KintsugiError } from '../common/errors.js';
import { checkFiles, markOf } from './bytes.js';
import { GrowingFiles } from './growing.js';
import { isRemote } from './object-store.js';
import { isPacked } from './packing.js';
import type { DataReader } from './reader.js';
import type { Source } from './source.js';

/** A part is a file, of its base name. */
export function fileSource(reader: DataReader, files: readonly string[]): Source {
  const growing = new GrowingFiles(files);
  return {
    async list() {
      await checkFiles(files);
      const parts = files.map(async (file) => {
        return { name: basename(file), ...(await reader.measure(file)), mark: await markOf(file) };
      });
      return Promise.all(parts);
    },
    read: ({ part, ...range }) => reader.readRange({ file: files[part]!, ...range }),
    count: () => reader.countRows(files),
    async sizes() {
      const other = files.find((file) => !reader.grows(file));
      if (other === undefined) return growing.sizes();
      const place = isRemote(other) ? 'is in an object store' : 'has no lines';
      const what = isPacked(other) ? 'is compressed' : place;
      throw new KintsugiError('BAD_ARGUMENT', `--follow: ${other} ${what} and cannot be followed`);
    },
    resume: (known) => growing.resume(known),
    changed: (signal) => growing.changed(signal),
    close: () => growing.close(),
  };
}
