/** Pretrained embeddings: every format gives the same rows, and errors name their place. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { keyOf } from '../../src/data/keys.js';
import type { SparseColumn } from '../../src/data/schema.js';
import { readVectors } from '../../src/data/vectors/open.js';
import type { Dtype } from '../../src/stores/checkpoint/safetensors.js';
import { npy, parquet, safetensors, VECTOR_FORMATS, type Vectors, vectors, writeVectors } from './vectors.js';

const DIM = 3;
const INTEGER: SparseColumn = {
  ...{ name: 'item', column: 'item', key: 'integer', table: 'items', shared: true, multi: false },
  ...{ pooling: 'mean', limit: 1, separator: '|' },
};
let directory = '';

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-vectors-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

interface Own {
  column?: SparseColumn;
  keys?: string | undefined;
  values?: string;
  batch?: number;
}

async function read(file: string, { column = INTEGER, keys, values, batch = 64 }: Own = {}) {
  const found: { keys: bigint[]; rows: number[][]; batches: number } = { keys: [], rows: [], batches: 0 };
  for await (const each of readVectors(file, { dim: DIM, column, keys, values, batch })) {
    found.batches += 1;
    found.keys.push(...each.keys);
    for (let at = 0; at < each.values.length; at += DIM)
      found.rows.push([...each.values.subarray(at, at + DIM)]);
  }
  return found;
}

/** Writes a file and reads it. */
function reading(name: string, content: string | Buffer, own: Own = {}) {
  const file = join(directory, name);
  writeFileSync(file, content);
  return read(file, own);
}

test.each(VECTOR_FORMATS)('%s: all rows, in their order', async (name) => {
  const all = vectors(230, DIM, (row) => (row * 1_000_003) % 2 ** 40);
  const { file, keys } = writeVectors(directory, name, all);
  const found = await read(file, { keys });
  expect(found.keys).toEqual(all.keys.map((key) => BigInt(key)));
  expect(found.rows).toEqual(all.rows);
  expect(found.batches).toBe(Math.ceil(230 / 64));
});

test('a line has at most 4 MiB, wherever it ends', async () => {
  const most = 4 * 2 ** 20;
  const text = (bytes: number) => `key,values,more\n1,1|2|3,${'x'.repeat(bytes - 8)}\n`;
  expect((await reading('longest.csv', text(most), { values: 'values' })).keys).toEqual([1n]);
  await expect(reading('longer.csv', text(most + 1), { values: 'values' })).rejects.toMatchObject({
    code: 'BAD_DATA',
    message: `${join(directory, 'longer.csv')}:2: a line of more than ${most} bytes`,
  });
});

test('keys are those that a column of a schema has, also of text and in the common table', async () => {
  const all = vectors(20, DIM, (row) => `item ${row % 7 === 0 ? 'ä' : row}`);
  for (const column of [
    { ...INTEGER, key: 'string' as const },
    { ...INTEGER, key: 'string' as const, shared: false, table: 'embedding' },
  ])
    for (const name of ['a.csv', 'a.parquet'] as const)
      expect((await read(writeVectors(directory, name, all).file, { column })).keys).toEqual(
        all.keys.map((key) => keyOf(column, key)),
      );
});

test.each<Dtype>(['F64', 'F16', 'BF16'])('values may be %s', async (dtype) => {
  const { rows } = vectors(50, DIM);
  // Values that this type holds exactly.
  const values = rows.flat().map((value) => Math.round(value * 4) / 4 || 0);
  const tensor = { name: 'w', dtype, shape: [50, DIM], values };
  const found = await reading('types.safetensors', safetensors([tensor]));
  expect(found.rows.flat()).toEqual(values);
  expect(found.keys).toEqual(rows.map((_, row) => BigInt(row)));
  if (dtype !== 'BF16') expect((await reading('types.npy', npy(tensor))).rows.flat()).toEqual(values);
});

test('a column may hold a list, and columns may be chosen', async () => {
  const text = 'name,id,vector,other\nx,5,"1|2|3",a\ny,6,4|5|6,b\n';
  const own = { keys: 'id', values: 'vector' };
  const lists = {
    keys: [5n, 6n],
    rows: [
      [1, 2, 3],
      [4, 5, 6],
    ],
    batches: 1,
  };
  expect(await reading('list.csv', text, own)).toEqual(lists);
  const columns = 'c,a,id,b\r\n3,1,5,2\r\n6,4,6,5';
  for (const text of [columns, columns.replaceAll('\r', '\r\r'), `${columns}\r\r`])
    expect(await reading('columns.csv', text, { keys: 'id', values: 'a,b,c' })).toEqual(lists);
});

describe('what is wrong is one line with its place', () => {
  const nan = (all: Vectors): Vectors => {
    return { ...all, rows: all.rows.map((row, at) => (at === 4 ? [0, Number.NaN, 0] : row)) };
  };
  const good = vectors(6, DIM);
  const tensor = { name: 'w', dtype: 'F32' as const, shape: [6, DIM], values: good.rows.flat() };
  const ids = { name: 'ids', dtype: 'I64' as const, shape: [6], values: [1, 2, -1, 4, 5, 6] };
  test.each<[string, string | Buffer, Own, RegExp]>([
    ['a.csv', 'key,a,b,c\n1,2,3,4\n2,3,x,5\n', {}, /a\.csv:3: value 2 must be a number .*, not "x"$/],
    ['a.csv', 'key,a,b,c\n1,2,3,4\n-1,3,4,5\n', {}, /a\.csv:3: the key must be an integer .*, not "-1"$/],
    ['a.csv', 'key,a,b,c\n,2,3,4\n', {}, /a\.csv:2: the key must be .*, not nothing$/],
    ['a.csv', 'key,a,b,c\n1,2,3\n', {}, /a\.csv:2: 3 columns instead of 4$/],
    ['a.csv', 'key,a,b\n1,2,3\n', {}, /a\.csv:2: must have 3 values, as the table has, not 2$/],
    ['a.csv', 'key,a,b,c\n1,2,3,1e39\n', {}, /a\.csv:2: value 3 must be a number that single precision/],
    ['a.csv', 'id,a,b,c\n1,2,3,4\n', {}, /a\.csv:1: must have a column "key", and has id, a, b, c$/],
    ['a.csv', 'key\n1\n', {}, /a\.csv:1: must have columns with values beside "key"$/],
    ['a.csv', '', {}, /a\.csv:1: must be a header/],
    ['a.csv', 'key,a,b,c\n1,"2,3,4\n', {}, /a\.csv:2: column 2 must end with a quote/],
    ['a.parquet', parquet(nan(good)), {}, /a\.parquet: row 5: value 2 must be a number .*, not NaN$/],
    ['a.parquet', parquet(vectors(6, 4)), {}, /a\.parquet: row 1: must have 3 values, .* not 4$/],
    ['a.parquet', 'PAR1', {}, /a\.parquet: must be a parquet file/],
    ['a.npy', npy({ ...tensor, values: nan(good).rows.flat() }), {}, /a\.npy\[4\]: value 2 must be/],
    ['a.npy', npy({ ...tensor, shape: [9, 2] }), {}, /a\.npy: must have 3 values in a row, .* not 2$/],
    ['a.npy', npy({ ...tensor, shape: [18] }), {}, /a\.npy: must be rows of floats, not F32 of 18$/],
    ['a.npy', npy(tensor).subarray(0, 150), {}, /a\.npy: must have 72 bytes of 6 x 3 values, and has 22$/],
    ['a.npy', npy(tensor).subarray(0, 50), {}, /a\.npy: must be an npy file, and ends in its header$/],
    ['a.npy', 'nothing of the kind', {}, /a\.npy: must be an npy file, and does not begin as one$/],
    [
      'a.npy',
      npy(tensor, "{'descr': '>f4', 'fortran_order': False, 'shape': (6, 3), }"),
      {},
      /a\.npy: must have little-endian floats or integers, not ">f4" of numpy$/,
    ],
    [
      'a.npy',
      npy(tensor, "{'descr': '<f4', 'fortran_order': True, 'shape': (6, 3), }"),
      {},
      /a\.npy: must have rows one after the other, not columns/,
    ],
    ['a.npy', npy(tensor), { keys: 'ids.csv' }, /must be in another npy file, not "ids\.csv"$/],
    ['a.npy', npy(tensor), { values: 'w' }, /has one array: leave --values out$/],
    ['a.safetensors', safetensors([tensor, ids]), { keys: 'ids' }, /"w"\[2\]: the key must be .*, not -1$/],
    ['a.safetensors', safetensors([tensor, ids]), { keys: 'id' }, /must have a tensor "id", and has w, ids$/],
    ['a.safetensors', safetensors([tensor, { ...tensor, name: 'v' }]), {}, /it has w \(F32 of 6 x 3\), v/],
    [
      'a.safetensors',
      safetensors([tensor, { ...ids, shape: [5], values: [1, 2, 3, 4, 5] }]),
      { keys: 'ids' },
      /tensor "ids": must have 6 keys, one for each row, not 5$/,
    ],
    [
      'a.safetensors',
      safetensors([tensor]).subarray(0, -1),
      {},
      /a\.safetensors: must be a safetensors file/,
    ],
    ['a.safetensors', 'x'.repeat(40), {}, /a\.safetensors: must be a safetensors file/],
    ['a.safetensors.gz', 'x', {}, /safetensors files must not be compressed$/],
    ['a.bin', 'x', {}, /a\.bin: the name must end in \.safetensors, /],
  ])('%s', async (name, content, own, message) => {
    await expect(reading(name, content, own)).rejects.toMatchObject({
      code: expect.stringMatching(/^BAD_(DATA|ARGUMENT)$/),
      message: expect.stringMatching(message),
    });
  });

  test('a file that is not there', async () => {
    await expect(read(join(directory, 'none.npy'))).rejects.toMatchObject({ code: 'BAD_DATA' });
  });
});

test('a header that was damaged is refused or is one of the same bytes', async () => {
  const { rows } = vectors(6, DIM);
  const whole = npy({ dtype: 'F32', shape: [6, DIM], values: rows.flat() });
  for (let at = 0; at < 128; at++) {
    for (const byte of [0, 0x31]) {
      const damaged = Buffer.from(whole);
      damaged[at] = byte;
      const outcome = await reading('damaged.npy', damaged).catch((error: { code: string }) => error);
      if ('code' in outcome) expect(outcome.code).toBe('BAD_DATA');
      else expect(outcome.rows).toEqual(rows);
    }
  }
});
