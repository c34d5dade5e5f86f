// The part of reading.py that the TypeScript library does: node reading.mjs SCHEMA BATCH FILE
// Every line of standard input asks for a round, which prints CPU seconds and rows.
import { createInterface } from 'node:readline';
import { openReader } from '../../dist/src/data/open.js';
import { readSchema } from '../../dist/src/data/parse-schema.js';

const [schema, batch, file] = process.argv.slice(2);
const reader = openReader(await readSchema(schema));
const { size } = await reader.measure(file);

for await (const _ of createInterface({ input: process.stdin })) {
  const before = process.cpuUsage();
  let rows = 0;
  for await (const each of reader.readRange({ file, begin: 0, end: size, batch: Number(batch) }))
    rows += each.size;
  const { user, system } = process.cpuUsage(before);
  console.log(`${(user + system) / 1e6} ${rows}`);
}
