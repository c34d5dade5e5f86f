/** The files of `bench read`, what a schema says of them, and what DuckDB is asked of them. */

import { createReadStream } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { CATEGORY_FIELDS, DENSE_FIELDS } from '../../src/data/criteo.js';
import { parseSchema } from '../../src/data/parse-schema.js';
import type { Schema } from '../../src/data/schema.js';
import { writeDemoData } from '../../src/training/loop/demo-data.js';
import { randomU32 } from '../common/random.js';

const INTEGERS = Array.from({ length: DENSE_FIELDS }, (_, index) => `I${index + 1}`);
const CATEGORIES = Array.from({ length: CATEGORY_FIELDS }, (_, index) => `C${index + 1}`);
const CRITEO = ['label', ...INTEGERS, ...CATEGORIES];

export interface ReadFile {
  name: string;
  path: string;
  /** undefined: the Criteo layout */
  schema: Schema | undefined;
  /** The same work for DuckDB: every value is decoded, numbers are transformed, keys are hashed. */
  query: string;
}

const logs = (columns: readonly string[]) =>
  columns.map((column) => `sum(ln(1 + greatest(coalesce("${column}", 0), 0)))`);
const hashes = (columns: readonly string[]) => columns.map((column) => `bit_xor(hash("${column}"))`);

export async function writeCriteo(directory: string, rows: number): Promise<ReadFile[]> {
  const path = join(directory, 'criteo.tsv');
  await writeDemoData({ train: path, rows, keys: 1_000_000, seed: 1 });
  const types = CRITEO.map((column) => `'${column}': '${column.startsWith('C') ? 'VARCHAR' : 'INTEGER'}'`);
  const how = `delim='\\t', header=false, auto_detect=false, columns={${types.join(', ')}}`;
  const from = `read_csv('${path}', ${how})`;
  const work = ['count(*)', 'sum("label")', ...logs(INTEGERS), ...hashes(CATEGORIES)].join(', ');
  const query = `SELECT ${work} FROM ${from}`;
  return [
    { name: 'Criteo TSV', path, schema: undefined, query },
    { name: 'TSV, hashes', path, schema: criteoSchema('hash', CRITEO), query },
    { name: 'TSV, text', path, schema: criteoSchema('string', CRITEO), query },
  ];
}

function criteoSchema(key: string, header?: readonly string[]): Schema {
  const written = {
    label: 'label',
    dense: INTEGERS.map((column) => ({ column, transform: 'log1p' })),
    sparse: CATEGORIES.map((column) => ({ column, key })),
    ...(header && { header }),
  };
  return parseSchema(written, 'criteo');
}

interface Column {
  name: string;
  type: 'INT32' | 'INT64' | 'DOUBLE' | 'BYTE_ARRAY';
  data: unknown[];
  list?: boolean;
}

async function writeParquet(path: string, columns: readonly Column[]): Promise<void> {
  const { parquetWriteBuffer } = await import('hyparquet-writer');
  const element = ({ type }: Column) => ({ type, ...(type === 'BYTE_ARRAY' && { converted_type: 'UTF8' }) });
  const elements = columns.flatMap((column) =>
    column.list
      ? [
          { name: column.name, repetition_type: 'OPTIONAL', converted_type: 'LIST', num_children: 1 },
          { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
          { name: 'element', repetition_type: 'OPTIONAL', ...element(column) },
        ]
      : [{ name: column.name, repetition_type: 'OPTIONAL', ...element(column) }],
  );
  const all = {
    columnData: columns.map(({ name, data }) => ({ name, data })),
    schema: [{ name: 'root', num_children: columns.length }, ...elements],
    rowGroupSize: 100_000,
    codec: 'SNAPPY',
  };
  type Options = Parameters<typeof parquetWriteBuffer>[0];
  await writeFile(path, new Uint8Array(parquetWriteBuffer(all as Options)));
}

/** The rows of the Criteo file. */
export async function criteoParquet(directory: string): Promise<ReadFile> {
  const data: unknown[][] = CRITEO.map(() => []);
  for await (const line of createInterface({ input: createReadStream(join(directory, 'criteo.tsv')) }))
    for (const [index, text] of line.split('\t').entries()) {
      const number = index <= DENSE_FIELDS;
      data[index]!.push(text === '' ? null : number ? Number(text) : text);
    }
  const path = join(directory, 'criteo.parquet');
  const type = (index: number) => (index <= DENSE_FIELDS ? 'INT32' : 'BYTE_ARRAY');
  await writeParquet(
    path,
    CRITEO.map((name, index) => ({ name, type: type(index), data: data[index]! })),
  );
  const work = ['count(*)', 'sum("label")', ...logs(INTEGERS), ...hashes(CATEGORIES)].join(', ');
  const query = `SELECT ${work} FROM read_parquet('${path}')`;
  return { name: 'Criteo parquet', path, schema: criteoSchema('hash'), query };
}

const GENRES = ['Action', 'Comedy', 'Drama', 'Horror', 'Musical', 'Romance', 'Sci-Fi', 'Thriller', 'War'];

/** Ratings with numbers as keys, and lists. */
export async function ratingsParquet(directory: string, rows: number): Promise<ReadFile> {
  const random = randomU32(7);
  const column = (make: () => unknown) => Array.from({ length: rows }, make);
  const some = <T>(most: number, make: () => T) => Array.from({ length: random() % (most + 1) }, make);
  const columns: Column[] = [
    { name: 'rating', type: 'INT32', data: column(() => 1 + (random() % 5)) },
    { name: 'user', type: 'INT64', data: column(() => BigInt(random() % 100_000)) },
    { name: 'item', type: 'INT64', data: column(() => BigInt(random() % 20_000)) },
    { name: 'age', type: 'DOUBLE', data: column(() => 10 + (random() % 60)) },
    { name: 'userRatings', type: 'INT32', data: column(() => random() % 2000) },
    { name: 'city', type: 'BYTE_ARRAY', data: column(() => `city ${random() % 500}`) },
    {
      ...{ name: 'genres', type: 'BYTE_ARRAY', list: true },
      data: column(() => some(4, () => GENRES[random() % GENRES.length]!)),
    },
    {
      ...{ name: 'liked', type: 'INT32', list: true },
      data: column(() => some(10, () => random() % 20_000)),
    },
  ];
  const path = join(directory, 'ratings.parquet');
  await writeParquet(path, columns);
  const written = {
    label: { column: 'rating', atLeast: 4 },
    dense: ['age', { column: 'userRatings', transform: 'log1p' }],
    sparse: [
      { column: 'user', key: 'integer', table: 'users' },
      { column: 'item', key: 'integer', table: 'items' },
      'city',
      { column: 'genres', multi: true },
      { column: 'liked', key: 'integer', table: 'items', multi: true, limit: 20 },
    ],
  };
  const numbers = ['sum(CASE WHEN rating >= 4 THEN 1 ELSE 0 END)', 'sum(age)', ...logs(['userRatings'])];
  const lists = ['genres', 'liked'].map(
    (name) => `bit_xor(list_aggregate(list_transform(${name}, lambda x: hash(x)), 'bit_xor'))`,
  );
  const work = ['count(*)', ...numbers, ...hashes(['user', 'item', 'city']), ...lists].join(', ');
  return {
    name: 'ratings parquet',
    path,
    schema: parseSchema(written, 'ratings'),
    query: `SELECT ${work} FROM read_parquet('${path}')`,
  };
}
