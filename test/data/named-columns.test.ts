// Columns by position or name: the same keys by the addon and without it, in every format that has names.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parquetWriteBuffer } from 'hyparquet-writer';
import { expect, test } from 'vitest';
import { criteo } from '../../src/data/criteo.js';
import { type NamedColumns, schemaOfColumns } from '../../src/data/named-columns.js';
import { openReader } from '../../src/data/open.js';
import type { DataReader } from '../../src/data/reader.js';
import { temporaryDirectory } from '../training/models/rows.js';
import { readBatches } from './read.js';

function save(name: string, content: string | Uint8Array): string {
  const file = join(temporaryDirectory(), name);
  writeFileSync(file, content);
  return file;
}

async function read(reader: DataReader, file: string) {
  const found = { labels: [] as number[], dense: [] as number[], keys: [] as bigint[][] };
  for await (const { labels, dense, columns = [] } of readBatches(reader, { files: [file], batch: 100 })) {
    found.labels.push(...labels);
    found.dense.push(...dense);
    for (const [index, { keys }] of columns.entries())
      found.keys[index] = [...(found.keys[index] ?? []), ...keys];
  }
  return found;
}

const named = (keys: NamedColumns['keys']) =>
  openReader(schemaOfColumns({ dense: ['x'], sparse: ['a', 'b'], label: 'y', keys }));

const CELLS = {
  hex: ['0', 'ff', '', '0000000A', 'fFfFfFfF'],
  integer: ['0', '7', '', '000000001', '999999999'],
  text: ['a', 'São Paulo', '', 'x'.repeat(100), '0'],
} as const;

test.each(['hex', 'integer', 'text'] as const)('%s: every format gives the same', async (kind) => {
  const rows = CELLS[kind].map((a, i) => ({ y: i - 1.5, x: i * 3, a, b: CELLS[kind].at(-1 - i)! }));
  const lines = (of: (row: (typeof rows)[number]) => unknown[]) =>
    ['y,x,a,b', ...rows.map((row) => of(row).join(',')), ''].join('\n');
  const plain = await read(
    named(kind),
    save(
      'a.csv',
      lines(({ y, x, a, b }) => [y, x, a, b]),
    ),
  );
  expect(plain.labels).toEqual([-1.5, -0.5, 0.5, 1.5, 2.5]);
  expect(plain.keys).toHaveLength(2);
  const columnData = (['y', 'x', 'a', 'b'] as const).map((name) => {
    return { name, data: rows.map((row) => row[name]) };
  });
  const same = {
    'a.csv': lines(({ y, x, a, b }) => [y, x, `"${a}"`, `"${b}"`]),
    'a.jsonl': rows.map((row) => `${JSON.stringify(row)}\n`).join(''),
    'a.parquet': new Uint8Array(parquetWriteBuffer({ columnData })),
  };
  for (const [name, content] of Object.entries(same))
    expect([name, await read(named(kind), save(name, content))]).toEqual([name, plain]);
});

test('in the Criteo layout the keys are those of its reader', async () => {
  const line = (seed: number) => [
    1,
    ...Array(13).fill(seed),
    ...Array.from({ length: 26 }, (_, i) => (i % 5 ? (seed * i).toString(16) : '')),
  ];
  const file = save('a.tsv', [1, 77, 99_999].map((seed) => `${line(seed).join('\t')}\n`).join(''));
  const sparse = Array.from({ length: 26 }, (_, index) => 14 + index);
  const reader = openReader(schemaOfColumns({ dense: [1], sparse, label: 0, keys: 'hex' }));
  const { keys } = await read(reader, file);
  const theirs: bigint[] = [];
  for await (const batch of readBatches(criteo, { files: [file], batch: 100 })) theirs.push(...batch.keys);
  expect(theirs).toEqual(Array.from({ length: 78 }, (_, i) => keys[i % 26]![Math.floor(i / 26)]));
});

test.each([
  ['hex', '123456789', 'up to 8 hexadecimal digits or empty, not "123456789"'],
  ['hex', '-1', 'up to 8 hexadecimal digits or empty, not "-1"'],
  ['integer', '1234567890', 'up to 9 digits or empty, not "1234567890"'],
  ['integer', '-1', 'up to 9 digits or empty, not "-1"'],
  ['text', 'a\0', 'text without NUL or empty, not "a\\u0000"'],
] as const)('%s: %s is refused', async (keys, cell, text) => {
  for (const written of [cell, `"${cell}"`]) {
    const file = save('a.csv', `1,${written}\n`);
    const reader = openReader(schemaOfColumns({ dense: [], sparse: [1], label: 0, keys }));
    await expect(read(reader, file)).rejects.toMatchObject({
      code: 'BAD_DATA',
      message: `${file}:1: column "1" must be ${text}`,
    });
  }
});

test.each(['', 'nan', '1e39', '-', ' 1'])('the label %j is refused', async (cell) => {
  for (const [at, written] of [cell, `"${cell}"`].entries()) {
    const file = save(`${at}.csv`, `1,2\n${written},2\n`);
    const reader = openReader(schemaOfColumns({ dense: [1], sparse: [], label: 0, keys: 'hex' }));
    await expect(read(reader, file)).rejects.toMatchObject({
      code: 'BAD_DATA',
      message: `${file}:2: column "0" must be a number, not ${JSON.stringify(cell)}`,
    });
  }
});
