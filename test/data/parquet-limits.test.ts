/** Cells, lists and pages of parquet have limits. They hold before the bytes are in memory. */
import { writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import zlib from 'node:zlib';
import { parquetWriteBuffer } from 'hyparquet-writer';
import { afterEach, expect, test, vi } from 'vitest';
import type { Batch } from '../../src/data/batch.js';
import { openReader } from '../../src/data/open.js';
import { MAX_CELL_BYTES, MAX_LIST_VALUES, MAX_PAGE_BYTES } from '../../src/data/parquet-pages.js';
import { parseSchema } from '../../src/data/parse-schema.js';
import { readVectors } from '../../src/data/vectors/open.js';
import { temporaryDirectory } from '../training/models/rows.js';
import { readBatches } from './read.js';

const schema = parseSchema(
  { label: 'y', sparse: ['t', { column: 'l', multi: true, limit: 10_000 }] },
  'schema.json',
);
const reader = openReader(schema);

const TEXT = { type: 'BYTE_ARRAY', converted_type: 'UTF8' } as const;
const ELEMENTS = [
  { name: 'root', num_children: 3 },
  { name: 'y', repetition_type: 'OPTIONAL', type: 'INT32' },
  { name: 't', repetition_type: 'OPTIONAL', ...TEXT },
  { name: 'l', repetition_type: 'OPTIONAL', converted_type: 'LIST', num_children: 1 },
  { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
  { name: 'element', repetition_type: 'OPTIONAL', ...TEXT },
];

interface Cells {
  t: readonly (string | Uint8Array | null)[];
  l: readonly (readonly (string | null)[] | null)[];
}

const UNPACKED = { BROTLI: 'brotliDecompressSync', GZIP: 'gunzipSync' } as const;
const packers = {
  BROTLI: (bytes: Uint8Array) =>
    zlib.brotliCompressSync(bytes, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 1 } }),
  GZIP: (bytes: Uint8Array) => zlib.gzipSync(bytes, { level: 1 }),
};

function written(
  { t, l }: Cells,
  { codec = 'BROTLI', ...own }: { codec?: keyof typeof packers; encoding?: string; pageSize?: number } = {},
): { file: string; bytes: number } {
  const { encoding, pageSize } = own;
  const columnData = [
    { name: 'y', data: t.map(() => 1) },
    { name: 't', data: t, ...(encoding !== undefined && { encoding }) },
    { name: 'l', data: l },
  ];
  const all = {
    pageSize,
    rowGroupSize: 10_000,
    columnData,
    schema: ELEMENTS,
    codec,
    compressors: packers,
    statistics: false,
  };
  const bytes = Buffer.from(parquetWriteBuffer(all as unknown as Parameters<typeof parquetWriteBuffer>[0]));
  const file = join(temporaryDirectory(), 'a.parquet');
  writeFileSync(file, bytes);
  return { file, bytes: bytes.length };
}

async function rowsOf(file: string): Promise<Batch[]> {
  const found: Batch[] = [];
  for await (const batch of readBatches(reader, { files: [file], batch: 100_000 })) found.push(batch);
  return found;
}

const refusal = (file: string, column: string, what: string) => ({
  code: 'BAD_DATA',
  message: `${file}: row group 1, column "${column}" must be pages that can be decoded: ${what}`,
});
const tooLong = `the bytes of a text must be from 0 to ${MAX_CELL_BYTES}`;

afterEach(() => {
  vi.restoreAllMocks();
  syncBuiltinESMExports();
});

/** The sizes that pages were decompressed to from now on. */
function watchUnpacking(codec: keyof typeof UNPACKED): () => number[] {
  const spy = vi.spyOn(zlib, UNPACKED[codec]);
  syncBuiltinESMExports();
  return () => spy.mock.calls.map(([, options]) => (options as { maxOutputLength: number }).maxOutputLength);
}

test.each(['BROTLI', 'GZIP'] as const)('a text of 200 MB in a small file: %s', async (codec) => {
  // As bytes, because a string of this length costs the writer seconds.
  const { file, bytes } = written({ t: [Buffer.alloc(200e6, 'x')], l: [[]] }, { codec, encoding: 'PLAIN' });
  expect(bytes).toBeLessThan(1e6);
  const sizes = watchUnpacking(codec);
  await expect(rowsOf(file)).rejects.toMatchObject(
    refusal(file, 't', `the size of a page must be from 0 to ${MAX_PAGE_BYTES}`),
  );
  expect(Math.max(...sizes())).toBeLessThan(1000);
});

test('a page that is more than so many cells can be is not decompressed', async () => {
  const { file } = written({ t: [Buffer.alloc(20e6, 'x')], l: [[]] }, { encoding: 'PLAIN' });
  const sizes = watchUnpacking('BROTLI');
  await expect(rowsOf(file)).rejects.toMatchObject({
    code: 'BAD_DATA',
    message: expect.stringContaining(
      'column "t" must be pages that can be decoded: the size of a page of 1 must',
    ),
  });
  expect(Math.max(...sizes())).toBeLessThan(1000);
});

test.each([
  ['PLAIN', 'PLAIN'],
  ['a dictionary', 'RLE_DICTIONARY'],
  ['lengths', 'DELTA_LENGTH_BYTE_ARRAY'],
  ['prefixes', 'DELTA_BYTE_ARRAY'],
])('a text beside others: %s', async (_what, encoding) => {
  const texts = (bytes: number) => ['a', 'a', 'x'.repeat(bytes), 'b', 'a'];
  const cells = (bytes: number) => ({ t: texts(bytes), l: texts(bytes).map(() => []) });
  const { file } = written(cells(MAX_CELL_BYTES), { encoding });
  expect((await rowsOf(file)).map(({ size }) => size)).toEqual([5]);
  const { file: longer } = written(cells(MAX_CELL_BYTES + 1), { encoding });
  await expect(rowsOf(longer)).rejects.toMatchObject(refusal(longer, 't', tooLong));
});

test('texts that share prefixes are not more together than a page', async () => {
  const text = 'x'.repeat(MAX_CELL_BYTES - 4);
  const count = Math.ceil(MAX_PAGE_BYTES / text.length) + 1;
  const t = Array.from({ length: count }, (_, index) => `${text}${index}`);
  const { file, bytes } = written(
    { t, l: t.map(() => []) },
    { encoding: 'DELTA_BYTE_ARRAY', pageSize: 2 ** 30 },
  );
  expect(bytes).toBeLessThan(1e5);
  await expect(rowsOf(file)).rejects.toMatchObject(
    refusal(file, 't', `the bytes of the texts of a page must be from 0 to ${MAX_PAGE_BYTES}`),
  );
});

test.each([1000, 2 ** 30])('values of a list, in pages of %d bytes', async (pageSize) => {
  const cells = (values: number) => ({
    t: ['a', 'a'],
    l: [['b'], Array.from({ length: values }, () => 'v')],
  });
  const { file } = written(cells(MAX_LIST_VALUES), { pageSize });
  const [batch] = await rowsOf(file);
  expect(batch!.columns![1]!.offsets).toEqual(Uint32Array.of(0, 1, 10_001));
  const { file: longer } = written(cells(MAX_LIST_VALUES + 1), { pageSize });
  await expect(rowsOf(longer)).rejects.toMatchObject(
    refusal(longer, 'l', `a list must have at most ${MAX_LIST_VALUES} values`),
  );
});

/** Pages of the first version, by pyarrow 26.0.1: two lists, ["a"] and 70,000 times "v". */
const FIRST_VERSION = [
  'UEFSMRUEFRAVEEwVBBUAEgAAAQAAAAAAAAAVABUSFRIsFQQVEBUGFQYcAAAAAgAAAAQBAQMCFQQVChUKTBUCFQASAAABAAAA',
  'YRUAFRIVEiwVBBUQFQYVBhwAAAACAAAAAwEBAgAVBBUUFRRMFQQVABIAAAEAAABhAQAAAHYVABUyFTIsFeLFCBUQFQYVBhwA',
  'AAAGAAAAA/zSxQgBBAAAAOLFCAMBA/7SxQgBFQQZbDUAGAZzY2hlbWEVBgAVAiUCGAF5ABUMJQIYAXQlAEwcAAAANQIYAWwV',
  'AhUGTDwAAAA1BBgEbGlzdBUCABUMJQIYB2VsZW1lbnQlAEwcAAAAFgQZHBk8JgAcFQIZNQAGEBkYAXkVABYEFmQWZCY0Jggp',
  'LBUEFQAVAgAVABUQFQIAPCkGGSYABAAAACYAHBUMGTUABhAZGAF0FQAWBBZeFl4mkgEmbCksFQQVABUCABUAFRAVAgA8FgIZ',
  'BhkmAgIAAAAmABwVDBk1AAYQGTgBbARsaXN0B2VsZW1lbnQVABbixQgWjAEWjAEm+gEmygEpLBUEFQAVAgAVABUQFQIAPBbi',
  'xQgZJgTexQgZRgAAAOLFCAAAABbOAhYEJggWzgIAKCBwYXJxdWV0LWNwcC1hcnJvdyB2ZXJzaW9uIDI2LjAuMRk8HAAAHAAA',
  'HAAAAFEBAABQQVIx',
];

test('a list in pages of the first version', async () => {
  const content = Buffer.from(FIRST_VERSION.join(''), 'base64');
  const file = join(temporaryDirectory(), 'a.parquet');
  writeFileSync(file, content);
  await expect(rowsOf(file)).rejects.toMatchObject(
    refusal(file, 'l', `a list must have at most ${MAX_LIST_VALUES} values`),
  );
});

test('files for import have the same limits', async () => {
  const { file } = written({ t: ['x'.repeat(MAX_CELL_BYTES + 1)], l: [[]] }, { encoding: 'PLAIN' });
  const [column] = schema.sparse;
  const reading = readVectors(file, { dim: 1, column: column!, keys: 't', values: 'y', batch: 8 }).next();
  await expect(reading).rejects.toMatchObject(refusal(file, 't', tooLong));
});
