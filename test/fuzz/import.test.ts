/**
 * Readers of `kintsugi import` against files that were damaged: whatever the bytes are, there are rows of the
 * table's width, or an error of one line that names the file. Nothing else is thrown, nothing hangs, and no
 * header makes a reader ask for memory that the file does not have.
 * KINTSUGI_IMPORTS says how many files; the seed of each is in the message of a failure.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { KintsugiError } from '../../src/common/errors.js';
import type { SparseColumn } from '../../src/data/schema.js';
import { readVectors } from '../../src/data/vectors/open.js';
import { npy, safetensors, VECTOR_FORMATS, vectors, writeVectors } from '../data/vectors.js';
import { temporaryDirectory } from '../training/models/rows.js';
import { damaged, randomOf } from './damage.js';

/** Files of each kind: the formats, the keys of npy, and two headers alone */
const FILES = Math.ceil(Number(process.env.KINTSUGI_IMPORTS ?? 900) / (VECTOR_FORMATS.length + 3));
const LIMIT_MS = 60_000 + 100 * FILES;
const DIM = 3;
const ROWS = 40;
/** Far above what files of a kilobyte need, in KiB as the system counts. */
const MEMORY = 512 * 1024;

const column: SparseColumn = {
  ...{ name: 'item', column: 'item', key: 'integer', table: 'items', shared: true, multi: false },
  ...{ pooling: 'mean', limit: 1, separator: '|' },
};

interface Source {
  file: string;
  keys?: string | undefined;
}

async function readAll({ file, keys }: Source): Promise<number> {
  let rows = 0;
  for await (const batch of readVectors(file, { dim: DIM, column, keys, batch: 16 })) {
    expect(batch.keys.length).toBeLessThanOrEqual(16);
    expect(batch.values.length).toBe(batch.keys.length * DIM);
    expect(batch.values.every(Number.isFinite)).toBe(true);
    expect(batch.keys.includes(2n ** 64n - 1n)).toBe(false);
    rows += batch.keys.length;
  }
  return rows;
}

/** Damages `changed`, which is the file or that of its keys. Bytes before `from` and after `to` stay. */
async function readDamaged(source: Source, changed: string, from = 0, to?: number): Promise<void> {
  const content = readFileSync(changed);
  expect(await readAll(source)).toBe(ROWS);
  const before = process.resourceUsage().maxRSS;
  let refused = 0;
  for (let seed = 0; seed < FILES; seed++) {
    const middle = damaged(content.subarray(from, to), randomOf(seed));
    const after = to === undefined ? [] : [content.subarray(to)];
    writeFileSync(changed, Buffer.concat([content.subarray(0, from), middle, ...after]));
    try {
      await readAll(source);
    } catch (error) {
      refused += 1;
      if (!(error instanceof KintsugiError) || error.code !== 'BAD_DATA')
        throw new Error(`seed ${seed}`, { cause: error });
      const named = [source.file, changed].some((name) => error.message.startsWith(name));
      expect(named, `seed ${seed}: ${error.message}`).toBe(true);
      expect(error.message, `seed ${seed}`).not.toContain('\n');
    }
  }
  expect(refused).toBeGreaterThan(0);
  expect(process.resourceUsage().maxRSS - before).toBeLessThan(MEMORY);
}

test.each(VECTOR_FORMATS)(
  'damaged files for an import: %s',
  async (name) => {
    const source = writeVectors(temporaryDirectory(), name, vectors(ROWS, DIM));
    await readDamaged(source, source.file);
  },
  LIMIT_MS,
);

test(
  'damaged keys beside an npy file',
  async () => {
    const source = writeVectors(temporaryDirectory(), 'a.npy', vectors(ROWS, DIM));
    await readDamaged(source, source.keys!);
  },
  LIMIT_MS,
);

/** Every change is in what says shapes, types and places, and the values stay. */
test.each(['a.safetensors', 'a.npy'])(
  'damaged headers for an import: %s',
  async (name) => {
    const file = `${temporaryDirectory()}/${name}`;
    const { rows } = vectors(ROWS, DIM);
    const array = { name: 'w', dtype: 'F32' as const, shape: [ROWS, DIM], values: rows.flat() };
    writeFileSync(file, name === 'a.npy' ? npy(array) : safetensors([array]));
    const size = readFileSync(file).length;
    const begin = name === 'a.npy' ? 6 : 0;
    await readDamaged({ file }, file, begin, size - ROWS * DIM * 4);
  },
  LIMIT_MS,
);
