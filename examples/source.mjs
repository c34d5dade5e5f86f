/**
 * A source of your own: ratings in a binary file, 16 bytes each (user, item, hour as u32, rating as f32). A
 * record is a sample, and a range is a range of records.
 *
 *     npx kintsugi local --data ratings.bin --source ./source.mjs --schema schema.json --kill ps@50%
 *
 * with a schema such as
 *
 *     { "label": { "column": "rating", "atLeast": 4 }, "sparse": [
 *       { "column": "user", "key": "integer", "table": "users" },
 *       { "column": "item", "key": "integer", "table": "items" }, "hour" ] }
 *
 * With a running job: `kintsugi worker --source ./source.mjs`. With `--follow` it trains what is appended.
 *
 * @typedef {import('kintsugi-ps').Source} Source
 * @typedef {import('kintsugi-ps').SourceOptions} SourceOptions
 */
import { open, stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { batchesOf } from 'kintsugi-ps';

const RECORD_BYTES = 16;
/** Records that are read at once. */
const CHUNK = 4096;

/** Records `begin` to `end` of a file. */
async function* records(file, begin, end) {
  const handle = await open(file);
  try {
    for (let at = begin; at < end; at += CHUNK) {
      const length = RECORD_BYTES * Math.min(CHUNK, end - at);
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, RECORD_BYTES * at);
      if (bytesRead < length) throw new Error(`${file} ends before record ${end}`);
      for (let offset = 0; offset < length; offset += RECORD_BYTES) {
        yield {
          user: buffer.readUInt32LE(offset),
          item: buffer.readUInt32LE(offset + 4),
          hour: buffer.readUInt32LE(offset + 8),
          rating: buffer.readFloatLE(offset + 12),
        };
      }
    }
  } finally {
    await handle.close();
  }
}

/** Records that the source reports must stay, so they are synced to disk first. */
async function wholeRecords(file) {
  const handle = await open(file);
  try {
    const { size } = await handle.stat();
    await handle.datasync();
    return Math.floor(size / RECORD_BYTES);
  } finally {
    await handle.close();
  }
}

/** @type {(options: SourceOptions) => Source} */
export default function ratings({ paths, schema }) {
  const count = async (file) => Math.floor((await stat(file)).size / RECORD_BYTES);
  return {
    async list() {
      return Promise.all(paths.map(async (file) => ({ name: basename(file), size: await count(file) })));
    },
    read({ part, begin, end, batch }) {
      return batchesOf(
        schema,
        records(paths[part], begin, end),
        batch,
        `${paths[part]} from record ${begin}`,
      );
    },
    async count() {
      const counts = await Promise.all(paths.map(count));
      return counts.reduce((sum, each) => sum + each, 0);
    },
    sizes: () => Promise.all(paths.map(wholeRecords)),
  };
}
