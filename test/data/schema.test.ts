/** Schemas: what they may say, their defaults, and one line for each thing that they may not say. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { keyOf } from '../../src/data/keys.js';
import { meaningOf } from '../../src/data/meaning.js';
import { parseSchema, readSchema } from '../../src/data/parse-schema.js';
import { columnsOf, denseWidth } from '../../src/data/schema.js';
import { temporaryDirectory } from '../training/models/rows.js';
import { schema, WRITTEN } from './samples.js';

const GOOD = { label: 'y', sparse: ['c'] };

test('what is not said has its default', () => {
  expect(parseSchema({ ...GOOD, dense: ['x'] }, 's')).toEqual({
    labels: [{ column: 'y' }],
    dense: [{ name: 'x', column: 'x', transform: { kind: 'none' }, width: 1 }],
    sparse: [
      {
        ...{ name: 'c', column: 'c', key: 'string', table: 'embedding', shared: false, multi: false },
        ...{ pooling: 'mean', limit: 1, separator: '|' },
      },
    ],
    tables: [{ name: 'embedding' }],
  });
  expect(parseSchema({ label: 'y', sparse: [{ column: 'c', multi: true }] }, 's').sparse[0]).toMatchObject({
    limit: 100,
  });
});

test('columns, widths and tables', () => {
  expect(columnsOf(schema)).toEqual([
    ...['rating', 'age', 'count', 'time', 'user', 'city', 'hash', 'tags', 'seen', 'shares', 'weight'],
  ]);
  expect(denseWidth(schema)).toBe(7);
  expect(schema.tables).toEqual([
    { name: 'users', optimizer: { kind: 'sgd', lr: 0.1 } },
    { name: 'embedding' },
  ]);
});

test('a file of JSON', async () => {
  const file = join(temporaryDirectory(), 'schema.json');
  writeFileSync(file, JSON.stringify(WRITTEN));
  expect(await readSchema(file)).toEqual(schema);
  writeFileSync(file, '{"label": }');
  await expect(readSchema(file)).rejects.toMatchObject({
    code: 'BAD_ARGUMENT',
    message: expect.stringContaining(`--schema ${file} must be a file of JSON: `),
  });
  await expect(readSchema(`${file}.none`)).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
});

test.each([
  ['no object', [], 's.json must be an object, not []'],
  ['an unknown field', { ...GOOD, sparce: [] }, 's.json has no field "sparce"; it has label, dense, sparse'],
  ['no label', { sparse: ['c'] }, 's.json: label must be a column, or { column, atLeast }, not nothing'],
  ['no sparse column', { label: 'y' }, 's.json: sparse must be a list of at least one column, not nothing'],
  ['a number for a column', { ...GOOD, dense: [7] }, 's.json: dense[0] must be a column, or'],
  [
    'an unknown transform',
    { ...GOOD, dense: [{ column: 'x', transform: 'log' }] },
    's.json: dense[0].transform must be "log1p"',
  ],
  [
    'no deviation',
    { ...GOOD, dense: [{ column: 'x', transform: { normalise: { mean: 1, std: 0 } } }] },
    's.json: dense[0].transform.normalise.std must be a number above 0, not 0',
  ],
  [
    'falling boundaries',
    { ...GOOD, dense: [{ column: 'x', transform: { bucketise: [2, 1] } }] },
    's.json: dense[0].transform.bucketise must be a list of numbers that grow, not [2,1]',
  ],
  [
    'an unknown key',
    { label: 'y', sparse: [{ column: 'c', key: 'int' }] },
    's.json: sparse[0].key must be one of "integer", "hash", "hash64", "string", not "int"',
  ],
  [
    'pooling of one value',
    { label: 'y', sparse: [{ column: 'c', pooling: 'sum' }] },
    's.json: sparse[0].pooling needs "multi": true',
  ],
  [
    'an unknown pooling',
    { label: 'y', sparse: [{ column: 'c', multi: true, pooling: 'max' }] },
    's.json: sparse[0].pooling must be one of "sum", "mean", "none", not "max"',
  ],
  [
    'a limit of nothing',
    { label: 'y', sparse: [{ column: 'c', multi: true, limit: 0 }] },
    's.json: sparse[0].limit must be an integer from 1 to 10000, not 0',
  ],
  ['a name twice', { label: 'y', sparse: ['c', 'c'] }, 's.json: sparse[1]: the name "c" is that of [0], too'],
  ['a table of nobody', { ...GOOD, tables: { t: {} } }, 's.json: tables.t is used by no sparse column'],
  [
    'an optimizer without rate',
    { ...GOOD, tables: { embedding: { optimizer: { kind: 'sgd' } } } },
    's.json: tables.embedding.optimizer must be { kind, lr, ... } with one of sgd',
  ],
  [
    'a parameter of another',
    { ...GOOD, tables: { embedding: { optimizer: { kind: 'sgd', lr: 1, eps: 1 } } } },
    's.json: tables.embedding.optimizer: sgd has no parameter "eps"',
  ],
  [
    'half an initializer',
    { ...GOOD, tables: { embedding: { initializer: { kind: 'uniform', low: 1 } } } },
    's.json: tables.embedding.initializer.high must be a number, not nothing',
  ],
  ['a header with a name twice', { ...GOOD, header: ['a', 'a'] }, 's.json: header names "a" more than once'],
])('%s', (_name, value, message) => {
  let thrown: unknown;
  try {
    parseSchema(value, 's.json');
  } catch (error) {
    thrown = error;
  }
  expect(thrown).toMatchObject({ code: 'BAD_ARGUMENT', message: expect.stringContaining(message) });
  expect((thrown as Error).message).not.toContain('\n');
});

describe('what a schema means', () => {
  const base = {
    label: { column: 'y', atLeast: 4 },
    dense: ['age', { column: 'n', transform: { normalise: { mean: 1, std: 2 } } }],
    sparse: [{ column: 'item', key: 'integer', table: 'items' }, 'city', { column: 'tags', multi: true }],
    weight: 'w',
  };
  const meaning = (schema: object) => meaningOf(parseSchema(schema, 's'));

  test('is a text for each part', () => {
    expect(meaning(base)).toEqual({
      label: '{"column":"y","atLeast":4}',
      dense: '["age",{"column":"n","transform":{"kind":"normalise","mean":1,"std":2}}]',
      sparse:
        '[{"column":"item","key":"integer","table":"items"},"city",' +
        '{"column":"tags","multi":true,"pooling":"mean","limit":100,"separator":"|"}]',
      weight: '"w"',
      time: 'none',
    });
    const many = Array.from({ length: 60 }, (_, i) => `column ${i}`);
    expect(meaning({ ...base, sparse: many }).sparse).toMatch(/^60 columns with the digest [\da-f]{16}$/);
    expect(meaning({ ...base, sparse: [...many].reverse() }).sparse).not.toBe(
      meaning({ ...base, sparse: many }).sparse,
    );
  });

  test('is the same for files in any format, and however the schema is written', () => {
    for (const other of [
      { ...base, header: ['y', 'age'] },
      { ...base, tables: { items: { dim: 8, optimizer: { kind: 'adagrad', lr: 0.5 } } } },
      { weight: 'w', sparse: base.sparse, dense: base.dense, label: { atLeast: 4, column: 'y' } },
      {
        ...base,
        label: [base.label],
        dense: [
          { column: 'age', name: 'age' },
          { transform: { normalise: { std: 2, mean: 1 } }, column: 'n' },
        ],
        sparse: [
          { table: 'items', key: 'integer', column: 'item' },
          { column: 'city', key: 'string', encoding: 'bytes', multi: false },
          { column: 'tags', multi: true, limit: 100, separator: '|', pooling: 'mean' },
        ],
      },
    ])
      expect(meaning(other)).toEqual(meaning(base));
  });

  test('names the part that differs', () => {
    const [item, city, tags] = base.sparse as [object, string, object];
    const differing = (change: object) => {
      const [one, other] = [meaning(base), meaning({ ...base, ...change })];
      return Object.keys(one).filter((part) => one[part as 'label'] !== other[part as 'label']);
    };
    for (const label of ['y', { column: 'y', atLeast: 3 }, { column: 'z', atLeast: 4 }])
      expect(differing({ label })).toEqual(['label']);
    for (const dense of [['age'], ['age', 'n'], [...base.dense].reverse(), undefined])
      expect(differing({ dense })).toEqual(['dense']);
    for (const sparse of [
      ...[
        [city, item, tags],
        [item, city],
      ],
      [{ ...item, key: 'hash64' }, city, tags],
      [{ ...item, table: 'others' }, city, tags],
      [{ ...item, name: 'other' }, city, tags],
      [item, { column: 'city', table: 'embedding' }, tags],
      [item, { column: 'city', encoding: 'utf8' }, tags],
      ...[{ limit: 3 }, { pooling: 'sum' }, { separator: ';' }, { weights: 'w' }].map((field) => [
        item,
        city,
        { ...tags, ...field },
      ]),
    ])
      expect(differing({ sparse }), JSON.stringify(sparse)).toEqual(['sparse']);
    expect(differing({ weight: undefined, time: 'w' })).toEqual(['weight', 'time']);
  });
});

describe('keys', () => {
  const column = (fields: object) =>
    parseSchema({ label: 'y', sparse: [{ column: 'c', ...fields }] }, 's').sparse[0]!;

  test('integers and hashes are their own keys in a table that is named', () => {
    const integer = column({ key: 'integer', table: 't' });
    for (const value of [0, 7, 2 ** 40, '9223372036854775807', 2n ** 62n])
      expect(keyOf(integer, value)).toBe(BigInt(value));
    expect(keyOf(integer, '0007')).toBe(7n);
    const hash = column({ key: 'hash', table: 't' });
    expect(keyOf(hash, 'FFff')).toBe(0xffffn);
    expect(keyOf(hash, '123456789abcdef0')).toBe(0x123456789abcdef0n);
    expect(keyOf(hash, 'ffffffffffffffff')).toBe(2n ** 63n - 1n);
  });

  test('columns without a table share no key, and values of a column neither', () => {
    const keys = new Set<bigint>();
    for (const name of ['a', 'b'])
      for (const key of ['integer', 'hash', 'string'] as const)
        for (let value = 0; value < 2000; value++)
          keys.add(keyOf(column({ name: `${name}_${key}`, key }), value));
    expect(keys.size).toBe(12_000);
  });

  test('a missing value is no real one; a number is the same value as its text', () => {
    for (const fields of [{}, { table: 't' }, { key: 'integer' }, { key: 'integer', table: 't' }]) {
      const each = column(fields);
      expect(keyOf(each, null) >> 63n).toBe(1n);
      expect(keyOf(each, null)).toBeLessThan(2n ** 64n - 1n);
      expect(keyOf(each, 12)).toBe(keyOf(each, '12'));
      expect(keyOf(each, 12n)).toBe(keyOf(each, '12'));
      expect(keyOf(each, '12') >> 63n).toBe(0n);
    }
  });

  test('keys of text stay what they are: rows of saved tables depend on them', () => {
    expect(keyOf(column({}), 'Paris').toString(16)).toMatchInlineSnapshot(`"189710462473ea27"`);
    expect(keyOf(column({ table: 't' }), '東京').toString(16)).toMatchInlineSnapshot(`"6d28a5b648abfdf8"`);
    expect(keyOf(column({ key: 'integer' }), 42).toString(16)).toMatchInlineSnapshot(`"6f8224cda58c9e5b"`);
  });

  test('what is no value is named', () => {
    expect(() => keyOf(column({ key: 'integer' }), 'x')).toThrow(
      'must be an integer from -2^63 + 1 to 2^64 - 2, and neither -1 nor 2^63, not "x"',
    );
  });
});
