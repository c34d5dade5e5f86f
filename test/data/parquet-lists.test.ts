/** Pages of lists as pyarrow before 12 writes them: with values where the number of rows should be. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parquetMetadata } from 'hyparquet';
import { parquetWriteBuffer } from 'hyparquet-writer';
import { expect, test, vi } from 'vitest';
import { parquetFormat } from '../../src/data/parquet-format.js';
import { parseSchema } from '../../src/data/parse-schema.js';
import { readerOf } from '../../src/data/reader.js';
import { SchemaRows } from '../../src/data/rows.js';
import { loadNative } from '../../src/engine/native.js';
import { temporaryDirectory } from '../training/models/rows.js';

const ROWS = 300;
const schema = parseSchema(
  { label: 'y', sparse: [{ column: 'l', key: 'integer', multi: true, table: 't' }] },
  'schema.json',
);

function content(): Uint8Array {
  const elements = [
    { name: 'root', num_children: 2 },
    { name: 'y', type: 'INT32', repetition_type: 'REQUIRED' },
    { name: 'l', repetition_type: 'OPTIONAL', converted_type: 'LIST', num_children: 1 },
    { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
    { name: 'element', repetition_type: 'OPTIONAL', type: 'INT64' },
  ];
  const list = (_: unknown, row: number) => Array.from({ length: row % 5 }, (_, at) => BigInt(10 * row + at));
  const columnData = [
    { name: 'y', data: Array.from({ length: ROWS }, () => 1) },
    { name: 'l', data: Array.from({ length: ROWS }, list), encoding: 'PLAIN' },
  ];
  const all = { columnData, schema: elements, pageSize: 200, codec: 'UNCOMPRESSED' };
  return new Uint8Array(parquetWriteBuffer(all as unknown as Parameters<typeof parquetWriteBuffer>[0]));
}

interface Header {
  compressed_page_size: number;
  data_page_header_v2?: { num_values: number; num_nulls: number; num_rows: number };
}

/** Numbers of a header, of up to 14 bits: each follows the mark of an i32 field. */
function field(value: number): number[] {
  const twice = 2 * value;
  return [0x15, ...(twice < 128 ? [twice] : [(twice & 0x7f) | 0x80, twice >> 7])];
}

/** Writes `numberOf` a page as its number of rows, into all pages of lists. Returns how many there are. */
async function patch(bytes: Uint8Array, numberOf: (values: number, rows: number) => number): Promise<number> {
  const { parquetHeader } = (await import('hyparquet/src/column.js' as string)) as {
    parquetHeader(reader: object): Header;
  };
  const meta = parquetMetadata(bytes.slice().buffer).row_groups[0]!.columns[1]!.meta_data!;
  const reader = { view: new DataView(bytes.buffer), offset: Number(meta.data_page_offset) };
  const end = reader.offset + Number(meta.total_compressed_size);
  let pages = 0;
  while (reader.offset < end) {
    const at = reader.offset;
    const { data_page_header_v2: page, compressed_page_size } = parquetHeader(reader);
    const { num_values, num_nulls, num_rows } = page!;
    const before = [...field(num_values), ...field(num_nulls)];
    const place = Buffer.from(bytes.buffer, at, reader.offset - at).indexOf(
      Buffer.from([...before, ...field(num_rows)]),
    );
    const number = field(numberOf(num_values, num_rows));
    expect(place).toBeGreaterThan(0);
    expect(number).toHaveLength(2);
    bytes.set(number, at + place + before.length);
    reader.offset += compressed_page_size;
    pages += 1;
  }
  return pages;
}

async function keysOf(file: string, begin: number, decoder?: 'hyparquet'): Promise<bigint[]> {
  const format = parquetFormat(schema, decoder);
  const reader = readerOf<SchemaRows>({
    formatOf: () => format,
    grows: () => false,
    begin: (capacity) => new SchemaRows(schema, capacity),
  });
  const keys: bigint[] = [];
  for await (const { columns } of reader.readRange({ file, begin, end: ROWS, batch: 50 }))
    keys.push(...columns![0]!.keys);
  return keys;
}

test('pages whose rows are the number of their values are read as they are, in every range', async () => {
  const bytes = content();
  expect(await patch(bytes, (values) => values)).toBeGreaterThan(10);
  const file = join(temporaryDirectory(), 'old.parquet');
  writeFileSync(file, bytes);
  const take = vi.spyOn(loadNative(), 'takeColumns');
  for (const begin of [0, 70, 155, 299]) {
    const expected = Array.from({ length: ROWS - begin }, (_, at) => begin + at).flatMap((row) =>
      Array.from({ length: row % 5 }, (_, at) => BigInt(10 * row + at)),
    );
    expect(await keysOf(file, begin, 'hyparquet'), `hyparquet from ${begin}`).toEqual(expected);
    expect(await keysOf(file, begin), `from ${begin}`).toEqual(expected);
  }
  expect(take).toHaveBeenCalled();
  vi.restoreAllMocks();
});

test('pages of another number of rows are refused where that would be believed', async () => {
  const bytes = content();
  await patch(bytes, (_, rows) => rows + 1);
  const file = join(temporaryDirectory(), 'wrong.parquet');
  writeFileSync(file, bytes);
  await expect(keysOf(file, 0, 'hyparquet')).rejects.toMatchObject({
    code: 'BAD_DATA',
    message: expect.stringContaining('rows, as its header says'),
  });
});
