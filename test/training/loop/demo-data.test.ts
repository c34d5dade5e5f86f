import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { criteo, missingKey } from '../../../src/data/criteo.js';
import { writeDemoData } from '../../../src/training/loop/demo-data.js';
import { readBatches } from '../../data/read.js';
import { temporaryDirectory } from '../models/rows.js';

const { countRows } = criteo;

test('the same options give the same bytes, another seed gives others, test rows differ', async () => {
  const directory = temporaryDirectory();
  const write = async (name: string, seed: number) => {
    const [train, other] = [join(directory, `${name}.tsv`), join(directory, `${name}.test.tsv.gz`)];
    const result = await writeDemoData({ train, test: other, rows: 3000, testRows: 500, keys: 1000, seed });
    return {
      result,
      train: readFileSync(train, 'latin1'),
      test: gunzipSync(readFileSync(other)).toString('latin1'),
    };
  };
  const [first, again, other] = [await write('a', 1), await write('b', 1), await write('c', 2)];
  expect(again).toEqual(first);
  expect(other.train).not.toBe(first.train);
  expect(first.train.startsWith(first.test.slice(0, 200))).toBe(false);
});

test('the rows can be read, with missing values, hot keys and at most the asked number of keys', async () => {
  const train = join(temporaryDirectory(), 'train.tsv');
  const result = await writeDemoData({ train, rows: 20_000, keys: 5000, seed: 9 });
  expect(await countRows([train])).toBe(20_000);
  const counts = new Map<bigint, number>();
  let positives = 0;
  for await (const { keys, labels } of readBatches(criteo, { files: [train], batch: 500 })) {
    for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
    positives += labels.reduce((sum, label) => sum + label, 0);
  }
  expect(result.positives).toBe(positives / 20_000);
  expect(result.positives).toBeGreaterThan(0.1);
  expect(result.positives).toBeLessThan(0.6);
  expect(result.bestAuc).toBeNaN();
  const real = [...counts.keys()].filter((key) => key >> 63n === 0n);
  expect(real.length).toBeGreaterThan(2500);
  expect(real.length).toBeLessThanOrEqual(5000 + 26);
  expect(counts.get(missingKey(25))! / 20_000).toBeCloseTo(1 / 16, 1);
  // Zipf with exponent 1: in the largest column (about 1460 values) the first rank has ln 2 / ln 1461 of the
  // rows.
  const hottest = Math.max(...real.filter((key) => key >> 32n === 1n).map((key) => counts.get(key)!));
  expect(hottest / 20_000).toBeCloseTo(Math.LN2 / Math.log(1461), 2);
});

test('the truth separates the classes', async () => {
  const directory = temporaryDirectory();
  const [train, other] = [join(directory, 'a.tsv'), join(directory, 'b.tsv')];
  const { bestAuc } = await writeDemoData({
    train,
    test: other,
    rows: 100,
    testRows: 5000,
    keys: 500,
    seed: 4,
  });
  expect(bestAuc).toBeGreaterThan(0.8);
  expect(bestAuc).toBeLessThan(0.95);
});

test('options out of range and a directory that is not there', async () => {
  const train = join(temporaryDirectory(), 'a.tsv');
  for (const wrong of [{ rows: 0 }, { keys: 3 }, { seed: -1 }, { seed: 0.5 }]) {
    const writing = writeDemoData({ train, rows: 10, keys: 100, seed: 1, ...wrong });
    await expect(writing).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
  }
  const nowhere = join(train, 'nowhere', 'a.tsv');
  const writing = writeDemoData({ train: nowhere, rows: 10, keys: 100, seed: 1 });
  await expect(writing).rejects.toMatchObject({
    code: 'BAD_DATA',
    message: expect.stringContaining(nowhere),
  });
});
