/** The same samples are the same batches in every format, however a file is cut; errors name their place. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { Batch } from '../../src/data/batch.js';
import { chunks } from '../../src/data/bytes.js';
import { sampleFormatOf } from '../../src/data/formats.js';
import { keyOf } from '../../src/data/keys.js';
import { checkWithoutSchema, openReader } from '../../src/data/open.js';
import { parseSchema } from '../../src/data/parse-schema.js';
import { temporaryDirectory } from '../training/models/rows.js';
import { cutFiles, readBatches } from './read.js';
import { FORMAT_NAMES, type Sample, samples, schema, writeSamples } from './samples.js';

const reader = openReader(schema);

async function all(batches: AsyncIterable<Batch>): Promise<Batch[]> {
  const found: Batch[] = [];
  for await (const batch of batches) found.push(batch);
  return found;
}

/** One batch of these samples, worked out from the samples themselves. */
function expected(rows: readonly Sample[]) {
  const bucket = (age: number) => [age < 18, age >= 18 && age < 30, age >= 30 && age < 50, age >= 50];
  const dense = rows.flatMap(({ age, count, time }) => [
    age ?? 0,
    Math.log1p(Math.max(0, count)),
    ...(age === null ? [0, 0, 0, 0] : bucket(age).map(Number)),
    (time - 1000) / 10,
  ]);
  const keys = (column: number, values: (row: Sample) => readonly unknown[]) =>
    rows.flatMap((row) => values(row).map((value) => keyOf(schema.sparse[column]!, value)));
  const ends = (values: (row: Sample) => readonly unknown[]) => {
    const counts = rows.map((row) => values(row).length);
    return [0, ...counts.map((_, row) => counts.slice(0, row + 1).reduce((sum, count) => sum + count))];
  };
  const column = (index: number, values: (row: Sample) => readonly unknown[]) => ({
    keys: BigUint64Array.from(keys(index, values)),
    offsets: Uint32Array.from(ends(values)),
  });
  return {
    size: rows.length,
    labels: Float32Array.from(rows, ({ rating }) => Number(rating >= 4)),
    dense: Float32Array.from(dense),
    keys: new BigUint64Array(0),
    columns: [
      column(0, ({ user }) => [user]),
      column(1, ({ city }) => [city]),
      column(2, ({ hash }) => [hash]),
      column(3, ({ tags }) => tags.slice(-3)),
      {
        ...column(4, ({ seen }) => seen),
        weights: Float32Array.from(rows.flatMap(({ shares }) => shares)),
      },
    ],
    weights: Float32Array.from(rows, ({ weight }) => weight),
    times: Float64Array.from(rows, ({ time }) => time),
  };
}

describe.each(FORMAT_NAMES)('%s', (name) => {
  const rows = samples(437);

  test('has the samples that were written', async () => {
    const file = writeSamples(temporaryDirectory(), name, rows);
    expect(await reader.countRows([file])).toBe(437);
    const batches = await all(readBatches(reader, { files: [file], batch: 100 }));
    expect(batches.map(({ size }) => size)).toEqual([100, 100, 100, 100, 37]);
    for (const [index, batch] of batches.entries())
      expect(batch).toEqual(expected(rows.slice(100 * index, 100 * index + 100)));
  });

  test('ranges count in the unit that the table of formats says', async () => {
    const file = writeSamples(temporaryDirectory(), name, rows);
    let bytes = 0;
    for await (const chunk of chunks(file)) bytes += chunk.length;
    const { size } = await reader.measure(file);
    expect(size).toBe({ bytes, rows: rows.length }[sampleFormatOf(file).ranges]);
  });

  test('ranges share no sample and miss none, wherever they are cut', async () => {
    const few = rows.slice(0, 250);
    const file = writeSamples(temporaryDirectory(), name, few);
    const { size } = await reader.measure(file);
    for (const ranges of [2, 3, 7, 40]) {
      const step = Math.ceil(size / ranges);
      const times: number[] = [];
      for (let begin = 0; begin < size; begin += step) {
        const range = { file, begin, end: Math.min(size, begin + step), batch: 16 };
        for (const batch of await all(reader.readRange(range))) times.push(...batch.times!);
      }
      expect(times).toEqual(few.map(({ time }) => time));
    }
  });

  test('a file may be one range, so that its batches are those of any other format', async () => {
    const file = writeSamples(temporaryDirectory(), name, rows.slice(0, 100));
    const [cut] = await cutFiles(reader, [file], 16, Number.POSITIVE_INFINITY);
    expect(cut).toMatchObject({ name, rangeBytes: cut!.size });
    const batches = await all(reader.readRange({ file, begin: 0, end: cut!.size, batch: 16 }));
    expect(batches.map(({ size }) => size)).toEqual([16, 16, 16, 16, 16, 16, 4]);
  });

  test('files are read one after the other', async () => {
    const first = writeSamples(temporaryDirectory(), name, rows.slice(0, 30));
    const second = writeSamples(temporaryDirectory(), 'a.jsonl', rows.slice(30, 50));
    const batches = await all(readBatches(reader, { files: [first, second], batch: 50 }));
    expect(batches).toEqual([expected(rows.slice(0, 30)), expected(rows.slice(30, 50))]);
  });

  test('no samples are no batches', async () => {
    const file = writeSamples(temporaryDirectory(), name, []);
    expect(await reader.countRows([file])).toBe(0);
    expect(await all(readBatches(reader, { files: [file], batch: 5 }))).toEqual([]);
  });
});

describe('what is wrong is named', () => {
  const small = openReader(
    parseSchema(
      {
        label: 'y',
        dense: ['x'],
        sparse: [
          { column: 'id', key: 'integer' },
          { column: 'l', multi: true },
        ],
      },
      's',
    ),
  );

  async function failure(name: string, content: string): Promise<string> {
    const file = join(temporaryDirectory(), name);
    writeFileSync(file, content);
    const error = await all(readBatches(small, { files: [file], batch: 4 })).catch(
      (thrown: unknown) => thrown,
    );
    expect(error).toMatchObject({ code: 'BAD_DATA', message: expect.stringContaining(`${file}`) });
    const { message } = error as Error;
    expect(message).not.toContain('\n');
    return message.slice(file.length);
  }

  const INTEGER = 'an integer from -2^63 + 1 to 2^64 - 2, and neither -1 nor 2^63';
  const HEAD = 'y,x,id,l\n1,2,3,a|b\n';

  test.each([
    ['no column', 'y,x,l\n', ':1: there must be a column "id", and the header has y, x, l'],
    ['a column twice', 'y,x,id,l,x\n', ':1: the header has the column "x" more than once'],
    ['too few fields', `${HEAD}1,2,3\n`, ':3: 3 columns instead of 4'],
    ['an empty line', `${HEAD}\n${HEAD}`, ':3: a blank line; only the end of a file may have some'],
    ['a label', `${HEAD}2,2,3,a\n`, ':3: column "y" must be 0 or 1, not "2"'],
    ['no label', `${HEAD},2,3,a\n`, ':3: column "y" must be 0 or 1, not ""'],
    ['a word', `${HEAD}1,two,3,a\n`, ':3: column "x" must be a number or empty, not "two"'],
    ['hexadecimal', `${HEAD}1,0x10,3,a\n`, ':3: column "x" must be a number or empty, not "0x10"'],
    ['too much', `${HEAD}1,1e39,3,a\n`, ':3: column "x" must be a number or empty, not "1e39"'],
    ['a negative key', `${HEAD}1,2,-1,a\n`, `:3: column "id" must be ${INTEGER} or empty, not "-1"`],
    ['a key of 2^63', `${HEAD}1,2,9223372036854775808,a\n`, ':3: column "id" must be an integer'],
    ['an empty value', `${HEAD}1,2,3,a||b\n`, ':3: column "l" must be a list of values, each text, not ""'],
    ['an open quote', `${HEAD}1,2,3,"a\n`, ':3: column 4 must end with a quote, on the same line'],
    [
      'more after a quote',
      `${HEAD}1,"2"3,3,a\n`,
      ':3: column 2 must end after its quote, not go on with "3"',
    ],
    ['a long line', `${HEAD}1,2,3,${'a'.repeat(70_000)}`, ':3:1: a line of more than 65536 bytes'],
  ])('CSV: %s', async (_name, content, message) => {
    expect(await failure('a.csv', content)).toContain(message);
  });

  test.each([
    ['no JSON', '{"y":1}\n{y:1}\n', ':2: must be an object of JSON, not "{y:1}"'],
    ['a list', '[1]\n', ':1: must be an object of JSON, not "[1]"'],
    ['a list for a number', '{"y":1,"x":[2]}\n', ':1: column "x" must be a number or empty, not [2]'],
    ['an object for a key', '{"y":1,"id":{}}\n', `:1: column "id" must be ${INTEGER} or empty, not {}`],
    ['a fraction', '{"y":1,"id":1.5}\n', ':1: column "id" must be an integer'],
    ['an integer as a float', '{"y":1,"id":1e18}\n', ':1: column "id" must be an integer'],
    [
      'null in a list',
      '{"y":1,"l":["a",null]}\n',
      ':1: column "l" must be a list of values, each text, not null',
    ],
  ])('JSON lines: %s', async (_name, content, message) => {
    expect(await failure('a.jsonl', content)).toContain(message);
  });

  test('the line is that of the file, also in the middle of it', async () => {
    const file = join(temporaryDirectory(), 'a.csv');
    const lines = Array.from({ length: 100 }, (_, i) => (i === 80 ? '1,?,3,a' : '1,2,3,a'));
    writeFileSync(file, ['y,x,id,l', ...lines, ''].join('\n'));
    const reading = all(small.readRange({ file, begin: 300, end: 10_000, batch: 8 }));
    await expect(reading).rejects.toMatchObject({
      message: expect.stringContaining(`${file}:82: column "x"`),
    });
  });

  test('parquet: the row, a column that is not there, and what is no parquet', async () => {
    const directory = temporaryDirectory();
    const rows = samples(250);
    const file = writeSamples(directory, 'a.parquet', rows.with(230, { ...rows[0]!, hash: 'no hash' }));
    const read = (of: ReturnType<typeof openReader>) => all(readBatches(of, { files: [file], batch: 64 }));
    const hash = 'column "hash" must be up to 16 hexadecimal digits or empty, not "no hash"';
    await expect(read(reader)).rejects.toMatchObject({
      code: 'BAD_DATA',
      message: `${file}: row 231: ${hash}`,
    });
    const missing = `${file}: there must be a column "y", and the file has rating, age`;
    await expect(read(small)).rejects.toMatchObject({ message: expect.stringContaining(missing) });
    writeFileSync(file, 'y,x\n');
    await expect(read(openReader(schema))).rejects.toMatchObject({
      code: 'BAD_DATA',
      message: expect.stringContaining(`${file}: must be a parquet file`),
    });
  });

  test('files of other formats need a schema; parquet is not compressed once more, and does not grow', () => {
    for (const file of ['a.parquet', 'a.jsonl.gz'])
      expect(() => checkWithoutSchema([file])).toThrow(expect.objectContaining({ code: 'BAD_ARGUMENT' }));
    checkWithoutSchema(['a.tsv', 'a.csv', 'a.gz', 'day_0']);
    expect(() => reader.grows('a.parquet.gz')).toThrow(expect.objectContaining({ code: 'BAD_ARGUMENT' }));
    expect(['a.csv', 'a.jsonl', 'a.parquet', 'a.csv.gz'].map((file) => reader.grows(file))).toEqual([
      ...[true, true, false, false],
    ]);
  });
});

test('columns without a header are named by the schema', async () => {
  const headless = parseSchema({ label: 'y', sparse: ['c'], header: ['c', 'other', 'y'] }, 's');
  const file = join(temporaryDirectory(), 'a.tsv');
  writeFileSync(file, 'a\t5\t1\nb\t6\t0\r\n');
  const [batch] = await all(readBatches(openReader(headless), { files: [file], batch: 4 }));
  expect([...batch!.labels]).toEqual([1, 0]);
  expect([...batch!.columns![0]!.keys]).toEqual(['a', 'b'].map((value) => keyOf(headless.sparse[0]!, value)));
});

test('several labels', async () => {
  const two = parseSchema({ label: ['y', { column: 'z', atLeast: 2 }], sparse: ['c'] }, 's');
  const file = join(temporaryDirectory(), 'a.jsonl');
  writeFileSync(file, '{"y":true,"z":1,"c":1}\n{"y":false,"z":2.5,"c":2}\n');
  const [batch] = await all(readBatches(openReader(two), { files: [file], batch: 4 }));
  expect([...batch!.labels]).toEqual([1, 0]);
  expect([...batch!.targets!]).toEqual([1, 0, 0, 1]);
});
