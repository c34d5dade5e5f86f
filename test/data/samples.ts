/** The same samples as files of every format, written by the tests themselves. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { parquetWriteBuffer } from 'hyparquet-writer';
import { parseSchema } from '../../src/data/parse-schema.js';
import type { Schema } from '../../src/data/schema.js';
import { zstdStored } from './zstd.js';

export interface Sample {
  rating: number;
  age: number | null;
  count: number;
  user: number;
  city: string | null;
  hash: string;
  tags: string[];
  seen: number[];
  shares: number[];
  weight: number;
  time: number;
}

export const WRITTEN = {
  label: { column: 'rating', atLeast: 4 },
  dense: [
    'age',
    { column: 'count', transform: 'log1p' },
    { column: 'age', name: 'age_bucket', transform: { bucketise: [18, 30, 50] } },
    { column: 'time', transform: { normalise: { mean: 1000, std: 10 } } },
  ],
  sparse: [
    { column: 'user', key: 'integer', table: 'users' },
    'city',
    { column: 'hash', key: 'hash' },
    { column: 'tags', multi: true, pooling: 'sum', limit: 3 },
    { column: 'seen', key: 'integer', table: 'users', multi: true, weights: 'shares' },
  ],
  tables: { users: { optimizer: { kind: 'sgd', lr: 0.1 } } },
  weight: 'weight',
  time: 'time',
};

export const schema: Schema = parseSchema(WRITTEN, 'schema.json');

/** Repeatable integers below `below`. */
function randomOf(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const CITIES = ['Paris', 'São Paulo', 'Québec, QC', 'the "Big" Apple', 'a\tb', '東京', 'x', '"', ' blank '];

export function samples(count: number, seed = 1): Sample[] {
  const random = randomOf(seed);
  const several = <T>(most: number, make: () => T) => Array.from({ length: random(most + 1) }, make);
  return Array.from({ length: count }, () => {
    const seen = several(6, () => random(1000));
    return {
      rating: 1 + random(5),
      age: random(8) === 0 ? null : random(80),
      count: random(10_000) - 3,
      user: random(500),
      city: random(6) === 0 ? null : CITIES[random(CITIES.length)]!,
      hash: random(2 ** 32).toString(16),
      tags: several(5, () => `tag${random(30)}`),
      seen,
      shares: seen.map(() => random(8) / 4),
      weight: random(16) / 8,
      time: 900 + random(200) + random(4) / 4,
    };
  });
}

const COLUMNS = Object.keys(samples(1)[0]!) as (keyof Sample)[];

function delimited(rows: readonly Sample[], delimiter: string): string {
  const cell = (value: Sample[keyof Sample]) => {
    const text = Array.isArray(value) ? value.join('|') : String(value ?? '');
    return text.includes(delimiter) || text.includes('"') ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const line = (row: Sample) => COLUMNS.map((column) => cell(row[column])).join(delimiter);
  return [COLUMNS.join(delimiter), ...rows.map(line), ''].join('\n');
}

export interface ParquetOptions {
  codec?: 'UNCOMPRESSED' | 'SNAPPY';
  /** Encodings of columns that are not lists; usually the writer takes the smallest */
  encodings?: Partial<Record<keyof Sample, string>>;
}

export function parquet(
  rows: readonly Sample[],
  rowGroupSize: number,
  options: ParquetOptions = {},
): Uint8Array {
  const { codec = 'SNAPPY', encodings = {} } = options;
  const text = { type: 'BYTE_ARRAY', converted_type: 'UTF8' } as const;
  const list = (name: string, element: object) => [
    { name, repetition_type: 'OPTIONAL', converted_type: 'LIST', num_children: 1 },
    { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
    { name: 'element', repetition_type: 'OPTIONAL', ...element },
  ];
  const flat = (name: string, element: object) => [{ name, repetition_type: 'OPTIONAL', ...element }];
  const elements = [
    { name: 'root', num_children: COLUMNS.length },
    ...flat('rating', { type: 'INT32' }),
    ...flat('age', { type: 'DOUBLE' }),
    ...flat('count', { type: 'INT32' }),
    ...flat('user', { type: 'INT64' }),
    ...flat('city', text),
    ...flat('hash', text),
    ...list('tags', text),
    ...list('seen', { type: 'INT32' }),
    ...list('shares', { type: 'DOUBLE' }),
    ...flat('weight', { type: 'DOUBLE' }),
    ...flat('time', { type: 'DOUBLE' }),
  ];
  const value = (row: Sample, column: keyof Sample) =>
    column === 'user' ? BigInt(row.user) : (row[column] as unknown);
  const columnData = COLUMNS.map((name) => {
    const encoding = encodings[name];
    return { name, data: rows.map((row) => value(row, name)), ...(encoding && { encoding }) };
  });
  const all = { columnData, schema: elements, rowGroupSize, pageSize: 2000, codec };
  return new Uint8Array(parquetWriteBuffer(all as Parameters<typeof parquetWriteBuffer>[0]));
}

const FORMATS = {
  'a.csv': (rows: readonly Sample[]) => delimited(rows, ','),
  'a.tsv': (rows: readonly Sample[]) => delimited(rows, '\t'),
  'a.csv.gz': (rows: readonly Sample[]) => gzipSync(delimited(rows, ',')),
  'a.tsv.zst': (rows: readonly Sample[]) => zstdStored(Buffer.from(delimited(rows, '\t'))),
  'a.jsonl': (rows: readonly Sample[]) => rows.map((row) => `${JSON.stringify(row)}\n`).join(''),
  'a.parquet': (rows: readonly Sample[]) => parquet(rows, 100),
};

export type FormatName = keyof typeof FORMATS;

export const FORMAT_NAMES = Object.keys(FORMATS) as FormatName[];

/** Writes a file of this name. */
export function writeSamples(directory: string, name: FormatName, rows: readonly Sample[]): string {
  const path = join(directory, name);
  writeFileSync(path, FORMATS[name](rows));
  return path;
}
