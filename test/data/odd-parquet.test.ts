/** Odd files of pyarrow (odd/odd_parquet.py): each has one right answer, by DuckDB and by hyparquet. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { keyOf } from '../../src/data/keys.js';
import { unlz4 } from '../../src/data/lz4.js';
import { openParquet } from '../../src/data/parquet.js';
import { parquetFormat } from '../../src/data/parquet-format.js';
import { readerOf } from '../../src/data/reader.js';
import { SchemaRows } from '../../src/data/rows.js';
import type { Schema } from '../../src/data/schema.js';
import { temporaryDirectory } from '../training/models/rows.js';
import { readOdd } from './odd/answer.js';
import { schemaOf } from './odd/kept.js';
import { readBatches } from './read.js';

const FILES: Record<string, readonly string[]> = JSON.parse(
  readFileSync(new URL('odd/odd_parquet.json', import.meta.url), 'utf8'),
);
const contentOf = (name: string) => Buffer.from(FILES[name]!.join(''), 'base64');
const answerTo = (schema: Schema, name: string) => readOdd(schema, 'a.parquet', contentOf(name));

/** Schemas that use a column in every way. */
const uses = (column: string): Record<string, object> => ({
  label: { label: { column, atLeast: 1 }, sparse: ['y'] },
  dense: { label: 'y', dense: [column], sparse: ['y'] },
  weight: { label: 'y', weight: column, sparse: ['y'] },
  time: { label: 'y', time: column, sparse: ['y'] },
  text: { label: 'y', sparse: [column] },
  integer: { label: 'y', sparse: [{ column, key: 'integer' }] },
  several: { label: 'y', sparse: [{ column, multi: true }] },
});

const TIMES = {
  ...{ date: 'DATE', time_ms: 'TIME', time_us: 'TIME', time_ns: 'TIME' },
  ...{ timestamp_ms: 'TIMESTAMP', timestamp_us: 'TIMESTAMP', timestamp_ns: 'TIMESTAMP', zoned: 'TIMESTAMP' },
  ...{ empty: 'TIMESTAMP', list: 'TIMESTAMP' },
};
const refusal = (column: string, type: string) =>
  `column "${column}" must be numbers, text or bytes, and ${type} is none of them: ` +
  'store times as numbers or as text';

test.each(Object.entries(TIMES))(
  'a column %s, which is %s, is refused in every use',
  async (column, type) => {
    for (const [use, schema] of Object.entries(uses(column)))
      expect({ use, ...(await answerTo(schemaOf(schema), 'times')) }).toEqual({
        ...{ use, code: 'BAD_DATA', error: `: ${refusal(column, type)}` },
      });
  },
);

test('times are refused in files of Spark, for import, and in text; other columns are read', async () => {
  const old = await answerTo(schemaOf(uses('c').dense!), 'int96');
  expect(old).toMatchObject({ code: 'BAD_DATA', error: `: ${refusal('c', 'INT96, a timestamp,')}` });
  expect(await answerTo(schemaOf({ label: 'y', sparse: ['y'] }), 'times')).toMatchObject({ labels: [1] });
  const file = join(temporaryDirectory(), 'a.parquet');
  writeFileSync(file, contentOf('times'));
  const { read } = await openParquet(file);
  await expect(read(['date', 'y']).next()).rejects.toMatchObject({
    message: `${file}: ${refusal('date', 'DATE')}`,
  });
  for (const [name, content] of [
    ['a.csv', 'y,c\n1,2024-01-02 03:04:05\n'],
    ['a.jsonl', '{"y":1,"c":"2024-01-02 03:04:05"}\n'],
  ] as const)
    expect(await readOdd(schemaOf(uses('c').dense!), name, Buffer.from(content))).toMatchObject({
      ...{
        code: 'BAD_DATA',
        error: expect.stringContaining('column "c" must be a number or empty, not "2024'),
      },
    });
});

test('JSON is its value, and its integers have all their digits', async () => {
  const schema = schemaOf({ label: 'y', sparse: [{ column: 'c', table: 't' }] });
  const keys = ['5', 'x', '9007199254740993', null].map((value) => keyOf(schema.sparse[0]!, value));
  expect(await answerTo(schema, 'json')).toMatchObject({ keys });
});

test('what is encrypted is refused by that name; other columns are read', async () => {
  const schema = schemaOf(uses('c').integer!);
  expect(await answerTo(schema, 'encrypted')).toEqual({
    ...{ code: 'BAD_DATA', error: ': must be a parquet file: it is encrypted' },
  });
  const closed = await answerTo(schema, 'encrypted column');
  expect(closed).toEqual({ code: 'BAD_DATA', error: ': column "c" is encrypted' });
});

const TEXTS = Array.from({ length: 300 }, (_, i) => `${'ab'.repeat(i % 40)}${i % 7}`);

test.each(['lz4', 'lz4 of version 2'])('%s: hyparquet reads what DuckDB reads', async (name) => {
  const schema = schemaOf({ label: 'y', sparse: [{ column: 'c', table: 't' }] });
  const keys = TEXTS.map((text) => keyOf(schema.sparse[0]!, text));
  expect(await answerTo(schema, name)).toMatchObject({ keys });
  const file = join(temporaryDirectory(), 'a.parquet');
  writeFileSync(file, contentOf(name));
  const slow = readerOf<SchemaRows>({
    formatOf: () => parquetFormat(schema, 'hyparquet'),
    grows: () => false,
    begin: (capacity) => new SchemaRows(schema, capacity),
  });
  const found: bigint[] = [];
  for await (const batch of readBatches(slow, { files: [file], batch: 64 }))
    found.push(...batch.columns![0]!.keys);
  expect(found).toEqual(keys);
});

test('a block of LZ4 is what it says, or an error', () => {
  const text = Buffer.from('0123456789abcdef'.repeat(20));
  // 16 literals, and a match of 304 bytes that goes on into itself
  const block = Buffer.from([0xff, 1, ...text.subarray(0, 16), 16, 0, 255, 30, 0]);
  expect(Buffer.from(unlz4(block, 320))).toEqual(text);
  for (let length = 1; length < block.length - 1; length++)
    expect(() => unlz4(block.subarray(0, length), 320)).toThrow('LZ4: ');
  for (const size of [0, 16, 319, 321, 1 << 16])
    expect(() => unlz4(block, size)).toThrow('LZ4: the block has');
  for (const back of [0, 17, 65535]) {
    const bad = Buffer.from(block);
    bad.writeUInt16LE(back, 18);
    expect(() => unlz4(bad, 320)).toThrow('LZ4: a match begins before the block');
  }
});
