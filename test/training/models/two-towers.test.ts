/** Two towers with in-batch softmax: what they compute, from the definition and not from the graph. */
import { afterAll, expect, test } from 'vitest';
import { parseSchema } from '../../../src/data/parse-schema.js';
import type { Batch, Model } from '../../../src/training/models/trainer.js';
import { dlrm, numbers } from './rows.js';

const DIM = 3;
/** The columns of the item are not the last ones. */
const schema = parseSchema(
  {
    label: 'y',
    dense: ['age', 'count'],
    sparse: ['user', 'item', 'recent', 'genre'].map((column) => ({
      column,
      table: column,
      multi: column === 'recent',
    })),
    weight: 'w',
  },
  's',
);
const own = { dim: DIM, batch: 5, modelName: 'two-towers', bottom: '6-4', schema };
const model: Model = await dlrm({ ...own, items: 'item,genre' });
afterAll(() => model.close?.());

/** One value in each column (one table each), so that a row is an embedding. */
function batchOf(size: number, labels: number[]): Batch {
  const offsets = Uint32Array.from({ length: size + 1 }, (_, sample) => sample);
  const column = (from: number) => ({
    keys: BigUint64Array.from({ length: size }, (_, sample) => BigInt(from + sample)),
    offsets,
  });
  return {
    size,
    labels: Float32Array.from(labels),
    weights: numbers(size, 7).map((value) => Math.abs(value) + 0.1),
    dense: numbers(size * 2, 8),
    keys: new BigUint64Array(0),
    columns: [column(10), column(20), column(30), column(40)],
  };
}

type Vector = ArrayLike<number>;

function tower(input: number[], [w1, b1, w2, b2]: readonly Vector[]): number[] {
  const layer = (x: number[], weight: Vector, bias: Vector) =>
    Array.from(bias, (start, out) =>
      x.reduce((sum, each, i) => sum + each * weight[i * bias.length + out]!, start),
    );
  const hidden = layer(input, w1!, b1!).map((value) => Math.max(0, value));
  return layer(hidden, w2!, b2!);
}

/** S[i][j] in double precision. `rows`: of each table, in the order of the schema. */
function productsOf(batch: Batch, rows: readonly Vector[], dense: readonly Vector[]): number[][] {
  const vector = (table: number, sample: number) =>
    Array.from({ length: DIM }, (_, i) => rows[table]![sample * DIM + i]!);
  const each = Array.from({ length: batch.size }, (_, sample) => sample);
  const table = (name: string) => model.tables.findIndex((one) => one.name === name);
  const [user, item, recent, genre] = ['user', 'item', 'recent', 'genre'].map(table) as [
    number,
    number,
    number,
    number,
  ];
  const queries = each.map((b) =>
    tower(
      [batch.dense[b * 2]!, batch.dense[b * 2 + 1]!, ...vector(user, b), ...vector(recent, b)],
      dense.slice(0, 4),
    ),
  );
  const items = each.map((b) => tower([...vector(item, b), ...vector(genre, b)], dense.slice(4)));
  return queries.map((query) =>
    items.map((one) => query.reduce((sum, value, i) => sum + value * one[i]!, 0)),
  );
}

function lossOf(batch: Batch, rows: readonly Vector[], dense: readonly Vector[]): number {
  let [sum, weights] = [0, 0];
  for (const [b, products] of productsOf(batch, rows, dense).entries()) {
    const weight = batch.labels[b]! * batch.weights![b]!;
    const most = Math.max(...products);
    const logSum = most + Math.log(products.reduce((total, value) => total + Math.exp(value - most), 0));
    sum += weight * (logSum - products[b]!);
    weights += weight;
  }
  return weights > 0 ? sum / weights : 0;
}

function inputs(size: number, labels: number[]) {
  const batch = batchOf(size, labels);
  const rows = model.tables.map((_, table) => numbers(size * DIM, 50 + table));
  const dense = model.tensors.map(({ shape }, i) =>
    numbers(
      shape.reduce((a, b) => a * b, 1),
      60 + i,
    ),
  );
  return { batch, rows, dense };
}

test('loss and all gradients agree with finite differences', async () => {
  for (const labels of [
    [1, 0, 1, 1, 0],
    [0, 1, 0],
  ]) {
    const { batch, rows, dense } = inputs(labels.length, labels);
    const result = await model.step(batch, rows, dense);
    const rows64 = rows.map((each) => Float64Array.from(each));
    const dense64 = dense.map((each) => Float64Array.from(each));
    const loss = () => lossOf(batch, rows64, dense64);
    expect(result.loss).toBeCloseTo(loss(), 4);
    const check = (what: string, values: Float64Array, gradient: Vector) => {
      expect(gradient.length, what).toBe(values.length);
      let largest = 0;
      for (const [i, before] of values.entries()) {
        values[i] = before + 1e-6;
        const above = loss();
        values[i] = before - 1e-6;
        const expected = (above - loss()) / 2e-6;
        values[i] = before;
        largest = Math.max(largest, Math.abs(expected));
        expect(Math.abs(gradient[i]! - expected), `${what}[${i}]`).toBeLessThan(
          5e-5 + 2e-4 * Math.abs(expected),
        );
      }
      return largest;
    };
    // A gradient that vanishes everywhere would prove nothing. (The last bias of the items moves all products
    // of a sample alike.)
    for (const [i, { name }] of model.tables.entries())
      expect(check(name, rows64[i]!, result.rowGrads[i]!), name).toBeGreaterThan(1e-4);
    for (const [i, { name }] of model.tensors.entries()) check(name, dense64[i]!, result.denseGrads[i]!);
  }
});

test('a batch without a positive sample changes nothing', async () => {
  const { batch, rows, dense } = inputs(4, [0, 0, 0, 0]);
  const result = await model.step(batch, rows, dense);
  expect(result.loss).toBe(0);
  for (const values of [...result.rowGrads, ...result.denseGrads])
    expect(values.every((value) => value === 0)).toBe(true);
});

test('predictions are the sigmoid of the product of the two vectors', async () => {
  const { batch, rows, dense } = inputs(5, [1, 1, 0, 0, 1]);
  const predicted = await model.predict(batch, rows, dense);
  for (const [b, products] of productsOf(batch, rows, dense).entries())
    expect(predicted[b]).toBeCloseTo(1 / (1 + Math.exp(-products[b]!)), 4);
});

test('what the towers cannot be made of is refused', async () => {
  for (const [options, message] of [
    [{}, /needs a schema and --model-option items=COLUMN/],
    [{ items: 'item', schema: undefined }, /needs a schema/],
    [{ items: 'item,year' }, /no sparse column "year"/],
    [{ items: 'item,genre,user,recent' }, /the query tower has no sparse column/],
    [{ items: 'item', top: '8-1' }, /--top is for the other models/],
  ] as const)
    await expect(dlrm({ ...own, ...options })).rejects.toMatchObject({ code: 'BAD_ARGUMENT', message });
});
