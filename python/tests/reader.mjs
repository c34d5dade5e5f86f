// The reader of the TypeScript library, for test_reader.py.
// node reader.mjs digest SCHEMA BATCH FILE...   a digest of all batches of each file, one a line
// node reader.mjs parquet JSONL FILE             writes the objects of a file of JSON lines as parquet
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { openReader } from '../../dist/src/data/open.js';
import { readSchema } from '../../dist/src/data/parse-schema.js';

const [what, ...given] = process.argv.slice(2);

async function digest(schema, batch, file) {
  const hash = createHash('sha256');
  const reader = openReader(schema);
  const { size } = await reader.measure(file);
  for await (const each of reader.readRange({ file, begin: 0, end: size, batch })) {
    const columns = each.columns.flatMap(({ keys, offsets, weights }) => [keys, offsets, weights]);
    const arrays = [each.targets ?? each.labels, each.dense, each.weights, each.times, ...columns];
    for (const array of arrays)
      if (array) hash.update(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
  }
  return hash.digest('hex');
}

if (what === 'digest') {
  const [schema, batch, ...files] = given;
  for (const file of files) console.log(await digest(await readSchema(schema), Number(batch), file));
} else {
  const { parquetWriteBuffer } = await import('hyparquet-writer');
  const [from, to] = given;
  const rows = readFileSync(from, 'utf8').trim().split('\n').map((line) => JSON.parse(line));
  const text = { type: 'BYTE_ARRAY', converted_type: 'UTF8' };
  const flat = (name, type) => [{ name, repetition_type: 'OPTIONAL', ...type }];
  const list = (name, type) => [
    { name, repetition_type: 'OPTIONAL', converted_type: 'LIST', num_children: 1 },
    { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
    ...flat('element', type),
  ];
  const numbers = { rating: 'INT32', age: 'DOUBLE', count: 'INT32', user: 'INT64', weight: 'DOUBLE' };
  const lists = { tags: [text], seen: ['INT32'], shares: ['DOUBLE'] };
  const fields = { ...numbers, time: 'DOUBLE', city: text, ...lists };
  const typed = (type) => (typeof type === 'string' ? { type } : type);
  const schema = Object.entries(fields).flatMap(([name, type]) =>
    Array.isArray(type) ? list(name, typed(type[0])) : flat(name, typed(type)),
  );
  const value = (name, cell) => (name === 'user' ? BigInt(cell) : cell);
  const columnData = Object.keys(fields).map((name) => {
    return { name, data: rows.map((row) => value(name, row[name])) };
  });
  const root = { name: 'root', num_children: columnData.length };
  writeFileSync(
    to,
    new Uint8Array(parquetWriteBuffer({ columnData, schema: [root, ...schema], rowGroupSize: 150 })),
  );
}
