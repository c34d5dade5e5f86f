/**
 * Parquet by DuckDB against hyparquet: random columns of every type, read by random schemas in random ranges,
 * are the same batches bit for bit, or the same error. KINTSUGI_PARQUET_FILES says how many files, and
 * KINTSUGI_PARQUET_SEED the seed of the first one.
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { parquetWriteBuffer } from 'hyparquet-writer';
import { expect, test, vi } from 'vitest';
import type { Batch } from '../../src/data/batch.js';
import { parquetFormat } from '../../src/data/parquet-format.js';
import { parseSchema } from '../../src/data/parse-schema.js';
import { readerOf } from '../../src/data/reader.js';
import { SchemaRows } from '../../src/data/rows.js';
import type { Schema } from '../../src/data/schema.js';
import { loadNative } from '../../src/engine/native.js';
import { LINE_STATE } from '../../src/engine/native-data.js';
import { damaged, randomOf } from '../fuzz/damage.js';
import { temporaryDirectory } from '../training/models/rows.js';

const FILES = Number(process.env.KINTSUGI_PARQUET_FILES ?? 60);
const FIRST = Number(process.env.KINTSUGI_PARQUET_SEED ?? 0);

type Random = () => number;
/** From 0 to 1, of a seed. */
function unitOf(seed: number): Random {
  const random = randomOf(seed);
  return () => random(2 ** 20) / 2 ** 20;
}
const below = (random: Random, n: number) => Math.floor(random() * n);
const one = <T>(random: Random, list: readonly T[]): T => list[below(random, list.length)]!;

interface Kind {
  element: object;
  /** A value that every use of the kind takes */
  value(random: Random): unknown;
  /** Values that some uses do not take */
  odd: readonly unknown[];
}

const bytes = (text: string) => new Uint8Array(Buffer.from(text, 'latin1'));
const whole = (bits: number, unsigned: boolean): Kind => {
  const type = bits === 64 ? 'INT64' : 'INT32';
  const most = 2 ** (unsigned ? bits : bits - 1) - 1;
  const large = unsigned
    ? [2n ** 64n - 1n, 2n ** 63n, 2n ** 53n + 1n]
    : [-1n, 2n ** 63n - 1n, -(2n ** 63n), -5n];
  const odd = bits === 64 ? large : [unsigned ? most : -1, 7];
  return {
    element: { type, converted_type: `${unsigned ? 'U' : ''}INT_${bits}` },
    value: (random) => {
      const value = below(random, Math.min(most, 1e6));
      return bits === 64 ? BigInt(value) : value;
    },
    odd,
  };
};
const TEXTS = [
  '0',
  '17',
  '00a7',
  'ffffffffffffffff',
  '',
  '1.5',
  'Zürich',
  'a|b||c',
  '-1',
  '1e400',
  ' 5',
  'true',
];
const KINDS: Record<string, Kind> = {
  bool: { element: { type: 'BOOLEAN' }, value: (random) => random() < 0.5, odd: [] },
  i8: whole(8, false),
  i16: whole(16, false),
  i32: whole(32, false),
  i64: whole(64, false),
  u8: whole(8, true),
  u16: whole(16, true),
  u32: whole(32, true),
  u64: whole(64, true),
  plain32: { element: { type: 'INT32' }, value: (random) => below(random, 3), odd: [-1, -7] },
  plain64: { element: { type: 'INT64' }, value: (random) => BigInt(below(random, 3)), odd: [-1n] },
  f32: {
    element: { type: 'FLOAT' },
    value: (random) => below(random, 9),
    odd: [0.1, -0, Number.NaN, 3.39e38],
  },
  f64: {
    element: { type: 'DOUBLE' },
    value: (random) => below(random, 9),
    odd: [0.5, -0, 1e300, -3, Infinity],
  },
  text: {
    element: { type: 'BYTE_ARRAY', converted_type: 'UTF8' },
    value: (random) => String(below(random, 50)),
    odd: [...TEXTS, 'x'.repeat(300), 'a\0b'],
  },
  bytes: {
    element: { type: 'BYTE_ARRAY' },
    value: (random) => bytes(String(below(random, 50))),
    odd: [...TEXTS, '\xff\xfe', 'a\0b', '7|\xff'].map(bytes),
  },
  fixed: {
    element: { type: 'FIXED_LEN_BYTE_ARRAY', type_length: 3 },
    value: (random) => bytes(String(100 + below(random, 50))),
    odd: ['a|b', '\xff\0|', '|||'].map(bytes),
  },
};

interface Written {
  file: string;
  schema: Schema;
  rows: number;
}

/** A file and a schema of the same seed. `odd`: part of the cells that are unusual. */
function write(directory: string, seed: number, odd: number): Written {
  const random = unitOf(seed);
  const rows = one(random, [1, 40, 300, 5000]);
  const nulls = one(random, [0, 0.1, 0.9]);
  const elements: object[] = [];
  const columnData: { name: string; data: unknown[] }[] = [];
  const add = (name: string, kindName: string, list: boolean, isNeeded = false) => {
    const kind = KINDS[kindName]!;
    const cell = (): unknown =>
      kind.odd.length > 0 && random() < odd ? one(random, kind.odd) : kind.value(random);
    const data = Array.from({ length: rows }, () => {
      if (!isNeeded && random() < nulls) return null;
      if (!list) return cell();
      return Array.from({ length: below(random, 5) }, () => (random() < odd ? null : cell()));
    });
    const optional = { repetition_type: isNeeded ? 'REQUIRED' : 'OPTIONAL' };
    if (list)
      elements.push(
        { name, ...optional, converted_type: 'LIST', num_children: 1 },
        { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
        { name: 'element', repetition_type: 'OPTIONAL', ...kind.element },
      );
    else elements.push({ name, ...optional, ...kind.element });
    columnData.push({ name, data });
  };
  const numbers = Object.keys(KINDS).filter(
    (name) => name !== 'text' && name !== 'bytes' && name !== 'fixed',
  );
  const number = () => (random() < 0.8 ? one(random, numbers) : one(random, ['text', 'bytes', 'fixed']));
  add('label', number(), false, random() < 0.9);
  const transforms = [undefined, 'log1p', { normalise: { mean: 1, std: 2 } }, { bucketise: [1, 3.5] }];
  const dense = transforms.map((transform, index) => {
    add(`d${index}`, number(), false);
    return { column: `d${index}`, ...(transform && { transform }) };
  });
  const sparse = Array.from({ length: 6 }, (_, index) => {
    const column = `s${index}`;
    const multi = index > 2;
    const list = multi && random() < 0.7;
    const kind = one(random, Object.keys(KINDS));
    add(column, kind, list);
    const text = kind === 'text' || kind === 'bytes' || kind === 'fixed' || kind === 'bool';
    const other = one(random, ['integer', 'hash', 'hash64', 'string']);
    const key = random() < 0.7 ? (text ? 'string' : 'integer') : other;
    return {
      column,
      key,
      ...(random() < 0.4 && { table: 'shared' }),
      ...(key === 'string' && random() < 0.3 && { encoding: 'utf8' }),
      ...(multi && { multi, limit: one(random, [1, 3, 100]), separator: '|' }),
    };
  });
  const extras = random() < 0.3;
  if (extras) add('w', one(random, ['f32', 'i32', 'f64']), false, true);
  if (extras) add('t', one(random, ['f64', 'i64', 'u32']), false, true);
  const all = {
    columnData,
    schema: [{ name: 'root', num_children: columnData.length }, ...elements],
    rowGroupSize: one(random, [100, 3000, 100_000]),
    pageSize: one(random, [200, 1 << 20]),
    codec: one(random, ['SNAPPY', 'UNCOMPRESSED']),
  };
  const file = join(directory, `f${seed}.parquet`);
  writeFileSync(
    file,
    new Uint8Array(parquetWriteBuffer(all as unknown as Parameters<typeof parquetWriteBuffer>[0])),
  );
  const written = {
    label: { column: 'label', ...(random() < 0.9 && { atLeast: 2 }) },
    dense,
    sparse,
    ...(extras && { weight: 'w', time: 't' }),
  };
  return { file, schema: parseSchema(written, 'schema'), rows };
}

/** Batches of ranges, one after the other, and how reading ended. */
async function outcome({ file, schema, rows }: Written, seed: number, decoder?: 'hyparquet') {
  const format = parquetFormat(schema, decoder);
  const random = unitOf(seed);
  const reader = readerOf<SchemaRows>({
    formatOf: () => format,
    grows: () => false,
    begin: (capacity) => new SchemaRows(schema, capacity),
  });
  const batches: Batch[] = [];
  const batch = one(
    random,
    [1, 16, 3000].filter((size) => size > 1 || rows < 1000),
  );
  try {
    for (let begin = 0; begin < rows; ) {
      const end = Math.min(rows, begin + 1 + below(random, rows));
      // Some ranges belong to other readers.
      if (random() < 0.8)
        for await (const each of reader.readRange({ file, begin, end, batch })) batches.push(each);
      begin = end;
    }
  } catch (error) {
    return { batches, error: (error as Error).message };
  }
  return { batches };
}

/** Counts rows that the addon takes from DuckDB. */
function countTaken() {
  const native = loadNative();
  const take = native.takeColumns;
  const taken = { rows: 0 };
  vi.spyOn(native, 'takeColumns').mockImplementation((columns, most, state, ...room) => {
    const before = state[LINE_STATE.rows]!;
    take(columns, most, state, ...room);
    taken.rows += state[LINE_STATE.rows]! - before;
  });
  return taken;
}

test(
  'random files are the same batches by DuckDB and by hyparquet',
  async () => {
    const directory = temporaryDirectory();
    const taken = countTaken();
    let [rows, refused] = [0, 0];
    for (let seed = FIRST; seed < FIRST + FILES; seed++) {
      const written = write(directory, seed, seed % 3 === 0 ? 0.02 : 0);
      const [fast, slow] = [await outcome(written, seed), await outcome(written, seed, 'hyparquet')];
      expect(fast, `seed ${seed}`).toEqual(slow);
      rmSync(written.file);
      for (const { size } of slow.batches) rows += size;
      if (slow.error !== undefined) refused += 1;
    }
    expect(refused).toBeGreaterThan(0);
    expect(refused).toBeLessThan(FILES * 0.8);
    expect(taken.rows).toBeGreaterThan(rows * 0.8);
    vi.restoreAllMocks();
  },
  60_000 + 500 * FILES,
);

/** Seeds whose damage is a level of a list: rows move in the column, and in each decoder otherwise. */
const MOVED = [11446, 13274, 21062, 32330, 48836, 54047, 62063, 90184, 9031282];

/** Reads a damaged file by both. Undefined: one of them refuses it, or both. */
async function readDamaged(directory: string, seed: number): Promise<boolean | undefined> {
  const written = write(directory, 3 * seed + 1, 0);
  writeFileSync(written.file, damaged(readFileSync(written.file), randomOf(seed)));
  const [fast, slow] = [await outcome(written, seed), await outcome(written, seed, 'hyparquet')];
  rmSync(written.file);
  if (fast.error !== undefined || slow.error !== undefined) return undefined;
  return isDeepStrictEqual(fast, slow);
}

test(
  'damaged files are the same batches by DuckDB and by hyparquet, or one of them refuses',
  async () => {
    const directory = temporaryDirectory();
    const differ: number[] = [];
    let both = 0;
    const seeds = Array.from({ length: FILES }, (_, index) => FIRST + index);
    for (const seed of [...MOVED, ...seeds]) {
      const isSame = await readDamaged(directory, seed);
      if (isSame === false) differ.push(seed);
      if (isSame) both += 1;
    }
    expect(differ, 'seeds').toEqual([]);
    expect(both).toBeGreaterThan(0);
  },
  60_000 + 500 * FILES,
);
