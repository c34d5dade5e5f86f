/** NUL bytes in text, null in lists and lists that are null mean the same in every format. */
import { readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { parquetWriteBuffer } from 'hyparquet-writer';
import { expect, test } from 'vitest';
import type { Batch } from '../../src/data/batch.js';
import { criteo } from '../../src/data/criteo.js';
import { keyOf } from '../../src/data/keys.js';
import { openReader } from '../../src/data/open.js';
import type { DataReader } from '../../src/data/reader.js';
import { temporaryDirectory } from '../training/models/rows.js';
import { keepOdd, schemaOf } from './odd/kept.js';
import { readBatches } from './read.js';

const written = {
  label: 'y',
  dense: ['x'],
  sparse: ['t', { column: 'l', multi: true }, { column: 'n', key: 'integer', multi: true, weights: 'w' }],
};
const schema = schemaOf(written);
const reader = openReader(schema);

const INTEGER = 'an integer from -2^63 + 1 to 2^64 - 2, and neither -1 nor 2^63';

interface Row {
  t?: string | null;
  l?: readonly (string | null)[] | null;
  n?: readonly (number | null)[] | null;
  w?: readonly (number | null)[] | null;
}
const COLUMNS = ['y', 'x', 't', 'l', 'n', 'w'] as const;
const full = (row: Row) => ({ y: 1, x: 0.5, t: 'a', l: ['b'], n: [1], w: [1], ...row });

const delimited = (delimiter: string) => (rows: readonly Row[]) => {
  const cell = (value: unknown) => (Array.isArray(value) ? value.join('|') : String(value ?? ''));
  const lines = rows.map((row) => COLUMNS.map((column) => cell(full(row)[column])).join(delimiter));
  return [COLUMNS.join(delimiter), ...lines, ''].join('\n');
};

function parquet(rows: readonly Row[]): Uint8Array {
  const text = { type: 'BYTE_ARRAY', converted_type: 'UTF8' } as const;
  const flat = (name: string, element: object) => ({ name, repetition_type: 'OPTIONAL', ...element });
  const list = (name: string, element: object) => [
    { name, repetition_type: 'OPTIONAL', converted_type: 'LIST', num_children: 1 },
    { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
    flat('element', element),
  ];
  const elements = [
    { name: 'root', num_children: COLUMNS.length },
    flat('y', { type: 'INT32' }),
    flat('x', { type: 'DOUBLE' }),
    flat('t', text),
    ...list('l', text),
    ...list('n', { type: 'INT32' }),
    ...list('w', { type: 'DOUBLE' }),
  ];
  const columnData = COLUMNS.map((name) => ({ name, data: rows.map((row) => full(row)[name]) }));
  const all = { columnData, schema: elements };
  return new Uint8Array(parquetWriteBuffer(all as unknown as Parameters<typeof parquetWriteBuffer>[0]));
}

const FORMATS = {
  'a.csv': delimited(','),
  'a.tsv': delimited('\t'),
  'a.jsonl': (rows: readonly Row[]) => rows.map((row) => `${JSON.stringify(full(row))}\n`).join(''),
  'a.parquet': parquet,
};

function save(name: string, content: string | Uint8Array): string {
  const file = join(temporaryDirectory(), name);
  writeFileSync(file, content);
  return file;
}

async function batchOf(file: string, of: DataReader = reader): Promise<Batch> {
  const batches: Batch[] = [];
  const keep = (answer: object) => {
    if (of === reader) keepOdd(schema, basename(file), readFileSync(file), answer);
  };
  try {
    for await (const batch of readBatches(of, { files: [file], batch: 100 })) batches.push(batch);
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    keep({ code, error: message.replace(file, '') });
    throw error;
  }
  expect(batches).toHaveLength(1);
  const { columns = [], dense, labels } = batches[0]!;
  keep({ keys: columns.flatMap(({ keys }) => [...keys]), dense: [...dense], labels: [...labels] });
  return batches[0]!;
}

/** The place of the second sample. */
const secondIn = (file: string) => {
  if (file.endsWith('.parquet')) return `${file}: row 2`;
  return `${file}:${file.endsWith('.jsonl') ? 2 : 3}`;
};

const EVERY = Object.entries(FORMATS);
const WITH_LISTS = EVERY.filter(([name]) => name === 'a.jsonl' || name === 'a.parquet');

test.each(EVERY)('%s: NUL in a text is refused', async (name, of) => {
  for (const text of ['\0', 'a\0', '\0a', `${'a'.repeat(100)}\0b`]) {
    const file = save(name, of([{}, { t: text }, {}]));
    await expect(batchOf(file)).rejects.toMatchObject({
      code: 'BAD_DATA',
      message: expect.stringContaining(
        `${secondIn(file)}: column "t" must be text without NUL or empty, not`,
      ),
    });
  }
  const file = save(name, of([{}, { l: ['b', 'c\0', 'd'] }, {}]));
  await expect(batchOf(file)).rejects.toMatchObject({
    code: 'BAD_DATA',
    message: `${secondIn(file)}: column "l" must be a list of values, each text without NUL, not "c\\u0000"`,
  });
});

test('a text with NUL has no key', () => {
  expect(() => keyOf(schema.sparse[0]!, 'a\0')).toThrow(
    expect.objectContaining({
      code: 'BAD_ARGUMENT',
      message: 'column "t" must be text without NUL, not "a\\u0000"',
    }),
  );
});

test.each(['.csv', '.tsv', '.jsonl'])('a%s that a hole of zeros ends is refused', async (ending) => {
  const text = FORMATS[`a${ending}` as keyof typeof FORMATS]([{}, {}]);
  const file = save(`a${ending}`, Buffer.concat([Buffer.from(text), Buffer.alloc(4096)]));
  const line = ending === '.jsonl' ? 3 : 4;
  await expect(batchOf(file)).rejects.toMatchObject({
    code: 'BAD_DATA',
    message: expect.stringMatching(`^${file}:${line}: `),
  });
});

test('the Criteo layout: NUL in any column is refused at its place', async () => {
  const line = ['1', ...Array(13).fill('4'), ...Array(26).fill('ab')].join('\t');
  for (const at of [0, 2, 40, line.length - 1]) {
    const bytes = Buffer.from(`${line}\n`);
    bytes[at] = 0;
    const file = save('a.tsv', bytes);
    await expect(batchOf(file, criteo)).rejects.toMatchObject({
      code: 'BAD_DATA',
      message: expect.stringMatching(`^${file}:1:\\d+: `),
    });
  }
});

test.each(EVERY)('%s: a list that is null is empty, a text that is null is missing', async (name, of) => {
  const { columns } = await batchOf(
    save(
      name,
      of([
        { l: null, n: null, w: null },
        { t: null, l: [] },
      ]),
    ),
  );
  const [t, l, n] = columns!;
  expect(t!.keys).toEqual(BigUint64Array.of(keyOf(schema.sparse[0]!, 'a'), keyOf(schema.sparse[0]!, null)));
  expect([...l!.offsets, ...n!.offsets]).toEqual([0, 0, 0, 0, 0, 1]);
});

test.each(WITH_LISTS)('%s: null in a list is refused', async (name, of) => {
  for (const [row, message] of [
    [{ l: ['b', null] }, 'column "l" must be a list of values, each text, not null'],
    [{ l: [null] }, 'column "l" must be a list of values, each text, not null'],
    [{ n: [1, null], w: [1, 1] }, `column "n" must be a list of values, each ${INTEGER}, not null`],
    [{ n: [1, 2], w: [1, null] }, 'column "w" must be a list of numbers, not null'],
    [{ n: [1, 2], w: null }, 'column "w" must be 2 weights, as many as "n" has values, not null'],
  ] as readonly (readonly [Row, string])[]) {
    const file = save(name, of([{}, row, {}]));
    const error = await batchOf(file).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'BAD_DATA' });
    expect((error as Error).message.replace(/undefined$/, 'null')).toBe(`${secondIn(file)}: ${message}`);
  }
});
