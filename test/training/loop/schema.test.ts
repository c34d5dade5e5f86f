/**
 * DLRM over a schema: its gradients are those of its loss, and on real ratings multi-valued columns add to
 * what single-valued ones know.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { openReader } from '../../../src/data/open.js';
import { parseSchema } from '../../../src/data/parse-schema.js';
import type { Schema } from '../../../src/data/schema.js';
import { createTables, evaluate, train } from '../../../src/training/loop/loop.js';
import type { Batch, Model } from '../../../src/training/models/trainer.js';
import { readBatches } from '../../data/read.js';
import { schema as sampleSchema, samples, writeSamples } from '../../data/samples.js';
import { dlrm, numbers, options, temporaryDirectory } from '../models/rows.js';
import { FakeStore, plainHelpers as helpers } from './fake-store.js';

async function batchOf(count: number, schema: Schema): Promise<Batch> {
  const file = writeSamples(temporaryDirectory(), 'a.jsonl', samples(count, 7));
  for await (const batch of readBatches(openReader(schema), { files: [file], batch: count })) return batch;
  throw new Error('no samples');
}

async function lossOf(model: Model, batch: Batch, rows: Float32Array[], dense: Float32Array[]) {
  return (await model.step(batch, rows, dense)).loss;
}

test('gradients of rows and tensors are those of the weighted loss', async () => {
  const batch = await batchOf(6, sampleSchema);
  const model = await dlrm({ dim: 4, batch: 6, bottom: '5-4', top: '6-3-1', schema: sampleSchema });
  try {
    const rows = model
      .keys(batch)
      .map((keys, table) => numbers(keys.length * 4, 10 + table).map((value) => value / 2));
    const dense = model.tensors.map(({ shape }, index) =>
      numbers(
        shape.reduce((product, extent) => product * extent, 1),
        50 + index,
      ).map((value) => value / 2),
    );
    const { rowGrads, denseGrads } = await model.step(batch, rows, dense);
    const [givenRows, givenDense] = [rowGrads, denseGrads].map((each) => each.map((one) => one.slice()));
    const width = 2e-3;
    const check = async (values: Float32Array, gradient: Float32Array, index: number) => {
      const before = values[index]!;
      values[index] = before + width;
      const above = await lossOf(model, batch, rows, dense);
      values[index] = before - width;
      const below = await lossOf(model, batch, rows, dense);
      values[index] = before;
      expect(gradient[index]).toBeCloseTo((above - below) / (2 * width), 3);
    };
    for (const [table, values] of rows.entries())
      for (let index = 0; index < values.length; index += 7) await check(values, givenRows![table]!, index);
    for (const [tensor, values] of dense.entries())
      for (let index = 0; index < values.length; index += 5) await check(values, givenDense![tensor]!, index);
    expect(givenRows!.some((each) => each.some((value) => Math.abs(value) > 1e-3))).toBe(true);
  } finally {
    await model.close?.();
  }
});

test('a schema without numbers trains; one that DLRM cannot train is refused', async () => {
  const plain = parseSchema({ label: { column: 'rating', atLeast: 3 }, sparse: ['user', 'city'] }, 's');
  const batch = await batchOf(5, plain);
  const model = await dlrm({ dim: 4, batch: 5, bottom: '5-4', top: '6-1', schema: plain });
  const rows = model.keys(batch).map((keys) => new Float32Array(keys.length * 4));
  const dense = model.tensors.map(({ shape }) => new Float32Array(shape.reduce((a, b) => a * b, 1)));
  expect((await model.step(batch, rows, dense)).loss).toBeCloseTo(Math.log(2), 6);
  await model.close?.();
  const wide = parseSchema({ label: 'y', sparse: ['a'], tables: { embedding: { dim: 8 } } }, 's');
  await expect(dlrm({ dim: 4, schema: wide })).rejects.toMatchObject({
    code: 'BAD_ARGUMENT',
    message: expect.stringContaining('the table "embedding" has dim 8'),
  });
  const two = parseSchema({ label: ['y', 'z'], sparse: ['a'] }, 's');
  await expect(dlrm({ dim: 4, schema: two })).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
});

const data = fileURLToPath(new URL('../../../../shared/data/', import.meta.url));
const ratings = ['train', 'test'].map((part) => join(data, `movielens-100k-rich.${part}.jsonl.gz`));
const present = ratings.every((file) => existsSync(file));
if (!present) console.warn(`SKIPPED: schemas on MovieLens 100K are not tested, ${ratings[0]} is missing`);

const counts = ['age', 'year', 'userRatings', 'itemRatings'];
const SINGLE = {
  label: 'label',
  dense: counts.map((column) => ({ column, transform: 'log1p' })),
  sparse: ['user', 'item', 'age', 'gender', 'occupation', 'zip3', 'year'],
};
const history = { key: 'integer', table: 'histories', multi: true, pooling: 'mean', limit: 20 };
const MULTI = {
  ...SINGLE,
  sparse: [
    ...SINGLE.sparse,
    { column: 'genres', multi: true, pooling: 'mean' },
    { column: 'liked', ...history },
    { column: 'disliked', ...history },
  ],
};

async function aucOf(schema: Schema, passes: number): Promise<number> {
  const { batch, seed } = options;
  const reader = openReader(schema);
  const store = new FakeStore(0);
  const model = await dlrm({ bottom: '64-16', top: '256-64-1', schema });
  await createTables(model, store, seed, helpers);
  for (let pass = 0; pass < passes; pass++) {
    const batches = readBatches(reader, { files: ratings.slice(0, 1), batch });
    await train({ model, store, helpers, batches, deterministic: true });
  }
  store.settle();
  const batches = readBatches(reader, { files: ratings.slice(1), batch });
  const { auc } = await evaluate({ model, store, helpers, batches });
  await model.close?.();
  return auc;
}

test.skipIf(!present)(
  'MovieLens 100K: genres and histories beat the single-valued columns',
  async () => {
    const single = await aucOf(parseSchema(SINGLE, 's'), 1);
    const multi = await aucOf(parseSchema(MULTI, 's'), 1);
    console.info(
      `test AUC of one pass: ${single.toFixed(4)} single-valued, ${multi.toFixed(4)} multi-valued`,
    );
    expect(multi).toBeGreaterThan(single);
    // An independent framework reaches 0.780 and 0.784.
    expect(single).toBeGreaterThan(0.775);
    expect(multi).toBeGreaterThan(0.779);
    expect(multi).toBeLessThan(0.8);
  },
  300_000,
);
