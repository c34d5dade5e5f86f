/**
 * Readers of data files against files that were damaged: whatever the bytes are, there are batches that fit
 * the schema, or an error of one line that names the file. Nothing else is thrown, and nothing hangs.
 * KINTSUGI_DATA_FILES says how many files; the seed of each is in the message of a failure.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { KintsugiError } from '../../src/common/errors.js';
import { openReader } from '../../src/data/open.js';
import { readBatches } from '../data/read.js';
import { FORMAT_NAMES, parquet, samples, schema, writeSamples } from '../data/samples.js';
import { temporaryDirectory } from '../training/models/rows.js';
import { damaged, randomOf } from './damage.js';

/** Files of each kind: the formats, and parquet of three encodings */
const FILES = Number(process.env.KINTSUGI_DATA_FILES ?? 450) / (FORMAT_NAMES.length + 3);

async function readAll(file: string): Promise<number> {
  const reader = openReader(schema);
  let rows = 0;
  for await (const { size, dense, columns } of readBatches(reader, { files: [file], batch: 16 })) {
    rows += size;
    expect(dense.every(Number.isFinite)).toBe(true);
    for (const { keys, offsets, weights } of columns!) {
      expect([offsets[0], offsets[size], offsets.length]).toEqual([0, keys.length, size + 1]);
      expect(offsets.every((offset, index) => index === 0 || offset >= offsets[index - 1]!)).toBe(true);
      expect(weights?.length ?? keys.length).toBe(keys.length);
      expect(keys.includes(2n ** 64n - 1n)).toBe(false);
    }
  }
  expect(await reader.countRows([file])).toBe(rows);
  return rows;
}

/** Files that are not what a reader expects: refused in one line, or read as what they say. */
async function readDamaged(file: string, content: Buffer): Promise<void> {
  let refused = 0;
  for (let seed = 0; seed < FILES; seed++) {
    writeFileSync(file, damaged(content, randomOf(seed)));
    try {
      await readAll(file);
    } catch (error) {
      refused += 1;
      if (!(error instanceof KintsugiError) || error.code !== 'BAD_DATA')
        throw new Error(`seed ${seed}`, { cause: error });
      expect(error.message.startsWith(file), `seed ${seed}: ${error.message}`).toBe(true);
      expect(error.message, `seed ${seed}`).not.toContain('\n');
    }
  }
  expect(refused).toBeGreaterThan(0);
}

test.each(FORMAT_NAMES)(
  'damaged files: %s',
  async (name) => {
    const directory = temporaryDirectory();
    const content = readFileSync(writeSamples(directory, name, samples(40)));
    await readDamaged(join(directory, `b${name.slice(1)}`), content);
  },
  60_000 + 100 * FILES,
);

const PLAIN = ['rating', 'age', 'count', 'user', 'city', 'hash', 'weight', 'time'] as const;
const plain = Object.fromEntries(PLAIN.map((name) => [name, 'PLAIN']));
const delta = { rating: 'DELTA_BINARY_PACKED', count: 'DELTA_BINARY_PACKED', user: 'DELTA_BINARY_PACKED' };

/** Without compression there is no check between the damage and the decoder. */
test.each([
  ['as the writer likes', {}],
  ['plain', plain],
  ['differences', { ...delta, city: 'DELTA_LENGTH_BYTE_ARRAY', hash: 'DELTA_BYTE_ARRAY' }],
])(
  'damaged parquet without compression: %s',
  async (_name, encodings) => {
    const file = join(temporaryDirectory(), 'a.parquet');
    const content = Buffer.from(parquet(samples(40), 25, { codec: 'UNCOMPRESSED', encodings }));
    writeFileSync(file, content);
    expect(await readAll(file)).toBe(40);
    await readDamaged(file, content);
  },
  60_000 + 100 * FILES,
);
