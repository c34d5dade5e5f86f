// Reads a checkpoint of Kintsugi with nothing but Node: node read-checkpoint.mjs DIRECTORY [NUMBER]
// Prints one line of JSON per row: table, key, values, and the optimizer's state.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const [directory, wanted] = process.argv.slice(2);
const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

/** The tensors and the metadata of a safetensors file: a length, a header in JSON, and the data. */
function readTensors(file) {
  const end = 8 + Number(file.readBigUInt64LE());
  const { __metadata__: metadata, ...tensors } = JSON.parse(file.subarray(8, end));
  const data = (name) => {
    if (!tensors[name]) return new ArrayBuffer(0);
    const [from, to] = tensors[name].data_offsets;
    return Uint8Array.from(file.subarray(end + from, end + to)).buffer;
  };
  return { names: Object.keys(tensors), metadata, data };
}

// A folder with a manifest is a checkpoint. The manifest's first line has the SHA-256 of the rest of it.
const folders = readdirSync(directory).filter((name) => /^\d{6,}$/.test(name));
const complete = folders.filter((folder) => readdirSync(join(directory, folder)).includes('manifest.json'));
const newest = complete.sort((a, b) => a - b).at(-1);
const folder = wanted === undefined ? newest : wanted.padStart(6, '0');
if (!folder) throw new Error(`${directory} has no checkpoint`);
const text = readFileSync(join(directory, folder, 'manifest.json'));
const manifest = JSON.parse(text);
if (manifest.sha256 !== sha256(text.subarray(text.indexOf('\n') + 1))) throw new Error('a damaged manifest');
console.error(`checkpoint ${manifest.number} of ${manifest.createdAt}: ${manifest.bytes} bytes`);

for (const shard of manifest.shards) {
  const tables = new Map(manifest.tables.map(({ name }) => [name, new Map()]));
  // Oldest first: later segments replace rows of earlier ones.
  for (const segment of shard.segments) {
    const file = readFileSync(join(directory, segment.name));
    if (sha256(file) !== segment.sha256) throw new Error(`${segment.name} is damaged`);
    const { names, metadata, data } = readTensors(file);
    for (const table of names.flatMap((name) => /^(.*)\.keys$/s.exec(name)?.[1] ?? [])) {
      const rows = tables.get(table);
      for (const key of new BigUint64Array(data(`${table}.removed`))) rows.delete(key);
      const keys = new BigUint64Array(data(`${table}.keys`));
      const [values, state] = ['values', 'state'].map((name) => new Float32Array(data(`${table}.${name}`)));
      const parts = (metadata[`${table}.state`] ?? '').split(',').filter(Boolean);
      const dim = values.length / keys.length;
      let at = 0;
      for (const [i, key] of keys.entries()) {
        const row = { values: [...values.subarray(i * dim, (i + 1) * dim)] };
        for (const [name, floats] of parts.map((part) => part.split(':'))) {
          row[name] = [...state.subarray(at, at + Number(floats))];
          at += Number(floats);
        }
        rows.set(key, row);
      }
    }
  }
  for (const [table, rows] of tables)
    for (const [key, row] of rows) console.log(JSON.stringify({ table, key: String(key), ...row }));
}
