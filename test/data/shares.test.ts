/** Shares of batches, which ranks that train together have: in every format those of the whole batches. */
import { statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Batch } from '../../src/data/batch.js';
import type { LineBatch } from '../../src/data/line-bytes.js';
import { openReader } from '../../src/data/open.js';
import { parquetFormat } from '../../src/data/parquet-format.js';
import { parseSchema } from '../../src/data/parse-schema.js';
import { openLines } from '../../src/data/raw-lines.js';
import { type DataReader, readerOf, type SharedBatch } from '../../src/data/reader.js';
import { SchemaRows } from '../../src/data/rows.js';
import { denseWidth } from '../../src/data/schema.js';
import { loadNative } from '../../src/engine/native.js';
import { temporaryDirectory } from '../training/models/rows.js';
import { FORMAT_NAMES, samples, schema, writeSamples } from './samples.js';

const ROWS = 250;
const BATCH = 12;
const SHARES = 3;

/** Samples [first, end) of a batch. */
function partOf(batch: Batch, first: number, end: number): Batch {
  const width = denseWidth(schema);
  const columns = batch.columns!.map(({ keys, offsets, weights }) => {
    const [from, to] = [offsets[first]!, offsets[end]!];
    return {
      keys: keys.slice(from, to),
      offsets: offsets.slice(first, end + 1).map((at) => at - from),
      ...(weights && { weights: weights.slice(from, to) }),
    };
  });
  return {
    size: end - first,
    labels: batch.labels.slice(first, end),
    dense: batch.dense.slice(first * width, end * width),
    keys: batch.keys,
    columns,
    weights: batch.weights!.slice(first, end),
    times: batch.times!.slice(first, end),
  };
}

async function all<T>(batches: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const batch of batches) found.push(batch);
  return found;
}

/** Compares the shares of ranges that follow each other with the whole batches. */
async function compare(reader: DataReader, file: string): Promise<void> {
  const { size } = await reader.measure(file);
  let sizes = 0;
  for (let begin = 0; begin < size; begin += Math.ceil(size / 4)) {
    const range = { file, begin, end: Math.min(size, begin + Math.ceil(size / 4)), batch: BATCH };
    const whole = await all(reader.readRange(range));
    for (let index = 0; index < SHARES; index++) {
      const expected = whole.map((batch): SharedBatch => {
        const part = batch.size / SHARES;
        const isDivided = Number.isInteger(part);
        const of = isDivided ? partOf(batch, index * part, (index + 1) * part) : partOf(batch, 0, batch.size);
        return { batch: of, samples: batch.size };
      });
      const shares = await all(reader.readShares({ ...range, share: { index, count: SHARES } }));
      expect(shares).toEqual(expected);
      sizes += shares.length;
    }
  }
  expect(sizes).toBeGreaterThan((SHARES * ROWS) / BATCH);
}

test.each(FORMAT_NAMES)('shares are parts of the batches: %s', async (name) => {
  await compare(openReader(schema), writeSamples(temporaryDirectory(), name, samples(ROWS)));
});

test('shares are parts of the batches: parquet by hyparquet', async () => {
  const format = parquetFormat(schema, 'hyparquet');
  const reader = readerOf<SchemaRows>({
    formatOf: () => format,
    grows: () => false,
    begin: (capacity) => new SchemaRows(schema, capacity),
  });
  await compare(reader, writeSamples(temporaryDirectory(), 'a.parquet', samples(ROWS)));
});

test('a batch of the largest size that cannot be divided is every share', async () => {
  for (const name of ['a.tsv', 'a.parquet'] as const) {
    const reader = openReader(schema);
    const file = writeSamples(temporaryDirectory(), name, samples(20));
    const { size } = await reader.measure(file);
    const range = { file, begin: 0, end: size, batch: 10, share: { index: 3, count: 4 } };
    const shares = await all(reader.readShares(range));
    expect(shares.map(({ batch, samples }) => [batch.size, samples])).toEqual([
      [10, 10],
      [10, 10],
    ]);
  }
});

const BOM = '\uFEFF';

test('shares of lines as they are', async () => {
  const file = join(temporaryDirectory(), 'a.tsv');
  writeFileSync(file, `${BOM}head\na\nb\r\nc\nd\ne`);
  const range = { file, begin: 0, end: statSync(file).size, batch: 4 };
  const texts = async (index: number) => {
    const shares = await all(openLines(true).readShares({ ...range, share: { index, count: 2 } }));
    return shares.map(({ batch }) => Buffer.from((batch as LineBatch).lines).toString());
  };
  expect(await texts(0)).toEqual(['a\nb\r\n', 'e\n']);
  expect(await texts(1)).toEqual(['c\nd\n', 'e\n']);
});

test('a malformed line is named by the share that has it, and parsed by no other one', async () => {
  const file = join(temporaryDirectory(), 'a.csv');
  const lines = Array.from({ length: 20 }, (_, line) => `${line % 2},"k""${line}"\n`);
  lines[13] = 'x,y\n';
  writeFileSync(file, `label,key\n${lines.join('')}`);
  const reader = openReader(parseSchema({ label: 'label', sparse: ['key'] }, 'schema'));
  const { size } = await reader.measure(file);
  const read = (index: number, begin: number) =>
    all(reader.readShares({ file, begin, end: size, batch: 8, share: { index, count: 2 } }));
  const sizes = (shares: readonly SharedBatch[]) => shares.map(({ batch }) => batch.size);
  expect(sizes(await read(0, 0))).toEqual([4, 4, 2]);
  await expect(read(1, 0)).rejects.toThrow(`${file}:15: column "label" must be`);
  // From a place in the second line of samples on.
  await expect(read(1, 14)).rejects.toThrow(`${file}:15: column "label" must be`);
});

test('rows of other shares are passed over by DuckDB', async () => {
  const file = writeSamples(temporaryDirectory(), 'a.parquet', samples(96));
  const native = loadNative();
  const skip = native.skipColumns;
  let skipped = 0;
  native.skipColumns = (columns, rows) => {
    skipped += rows;
    return skip(columns, rows);
  };
  try {
    const range = { file, begin: 0, end: 96, batch: BATCH, share: { index: 1, count: SHARES } };
    expect(await all(openReader(schema).readShares(range))).toHaveLength(8);
  } finally {
    native.skipColumns = skip;
  }
  expect(skipped).toBe(7 * 8);
});
