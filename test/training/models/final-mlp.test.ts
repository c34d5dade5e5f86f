/** FinalMLP: what it computes, from the definition of the paper and not from the graph. */
import { afterAll, describe, expect, test } from 'vitest';
import { parseSchema } from '../../../src/data/parse-schema.js';
import { Exchanger } from '../../../src/training/loop/exchange.js';
import type { Batch, Model } from '../../../src/training/models/trainer.js';
import { FakeStore, plainHelpers } from '../loop/fake-store.js';
import { dlrm, numbers } from './rows.js';

const DIM = 3;
const NUMBERS = 2;
const COLUMNS = ['user', 'item', 'hour', 'genre'];
const schema = parseSchema(
  {
    label: 'y',
    dense: ['age', 'count'],
    sparse: COLUMNS.map((column) => ({ column, table: column })),
    weight: 'w',
  },
  's',
);
const own = { dim: DIM, batch: 5, modelName: 'finalmlp', top: '8-6-1', schema };

/** One value in each column, one table for each, so that a row is an embedding. */
function batchOf(size: number): Batch {
  const offsets = Uint32Array.from({ length: size + 1 }, (_, sample) => sample);
  const column = (from: number) => ({
    keys: BigUint64Array.from({ length: size }, (_, sample) => BigInt(from + sample)),
    offsets,
  });
  return {
    size,
    labels: numbers(size, 3).map((value) => (value > 0 ? 1 : 0)),
    weights: numbers(size, 7).map((value) => Math.abs(value) + 0.1),
    dense: numbers(size * NUMBERS, 8),
    keys: new BigUint64Array(0),
    columns: COLUMNS.map((_, index) => column(10 * (index + 1))),
  };
}

type Vector = ArrayLike<number>;
type Named = Record<string, Vector>;

function layer(input: readonly number[], { weight, bias }: { weight: Vector; bias: Vector }): number[] {
  return Array.from(bias, (start, out) =>
    input.reduce((total, value, i) => total + value * weight[i * bias.length + out]!, start),
  );
}

function mlp(name: string, input: readonly number[], tensors: Named, reluAtEnd: boolean): number[] {
  let values = [...input];
  for (const index of [0, 1]) {
    const of = (kind: string) => tensors[`${name}.${index}.${kind}`]!;
    values = layer(values, { weight: of('weight'), bias: of('bias') });
    if (reluAtEnd || index === 0) values = values.map((value) => Math.max(0, value));
  }
  return values;
}

interface Form {
  name: string;
  /** Columns of the context of each stream's gates */
  contexts: [string[], string[]];
  heads: number;
}

const FORMS: Form[] = [
  { name: 'gates without a context', contexts: [[], []], heads: 1 },
  { name: 'gates of a user and of an item, two heads', contexts: [['user', 'hour'], ['item']], heads: 2 },
  {
    name: 'one gate with a context that both streams could have, three heads',
    contexts: [[], ['user']],
    heads: 3,
  },
];

describe.each(FORMS)('$name', async ({ contexts, heads }) => {
  const gates = Object.fromEntries(
    contexts.flatMap((of, k) => (of.length > 0 ? [[`gate${k + 1}`, of.join()]] : [])),
  );
  const model: Model = await dlrm({ ...own, ...gates, heads });
  afterAll(() => model.close?.());
  const tableOf = (column: string) => model.tables.findIndex(({ name }) => name === column);

  /** The logit of sample b in double precision. `rows`: of each table. */
  function logitOf(batch: Batch, b: number, rows: readonly Vector[], dense: readonly Vector[]): number {
    const tensors: Named = Object.fromEntries(model.tensors.map(({ name }, i) => [name, dense[i]!]));
    const vector = (column: string) =>
      Array.from({ length: DIM }, (_, i) => rows[tableOf(column)]![b * DIM + i]!);
    const x = [
      ...Array.from(batch.dense.subarray(b * NUMBERS, (b + 1) * NUMBERS)),
      ...COLUMNS.flatMap(vector),
    ];
    const streams = contexts.map((context, k) => {
      const name = `stream${k + 1}`;
      const opened =
        context.length === 0
          ? Array.from(tensors[`${name}.gate.bias`]!)
          : mlp(`${name}.gate`, context.flatMap(vector), tensors, false);
      return mlp(
        name,
        x.map((value, i) => (2 * value) / (1 + Math.exp(-opened[i]!))),
        tensors,
        true,
      );
    });
    let logit = tensors['fusion.bias']![0]!;
    for (const [k, stream] of streams.entries())
      for (const [i, value] of stream.entries())
        logit += value * tensors[`stream${k + 1}.fusion.weight`]![i]!;
    const [one, two] = streams as [number[], number[]];
    const part = one.length / heads;
    for (let h = 0; h < heads; h++)
      for (let i = 0; i < part; i++)
        for (let j = 0; j < part; j++)
          logit +=
            one[h * part + i]! *
            tensors['fusion.product.weight']![(h * part + i) * part + j]! *
            two[h * part + j]!;
    return logit;
  }

  function lossOf(batch: Batch, rows: readonly Vector[], dense: readonly Vector[]): number {
    let sum = 0;
    for (let b = 0; b < batch.size; b++) {
      const logit = logitOf(batch, b, rows, dense);
      const loss = Math.log1p(Math.exp(-Math.abs(logit))) + Math.max(logit, 0) - batch.labels[b]! * logit;
      sum += batch.weights![b]! * loss;
    }
    return sum / batch.size;
  }

  function inputs(size: number) {
    const rows = model.tables.map((_, table) => numbers(size * DIM, 50 + table));
    const dense = model.tensors.map(({ shape }, i) =>
      numbers(
        shape.reduce((a, b) => a * b, 1),
        80 + i,
      ),
    );
    return { batch: batchOf(size), rows, dense };
  }

  test('loss and all gradients agree with finite differences', async () => {
    for (const size of [5, 3]) {
      const { batch, rows, dense } = inputs(size);
      const result = await model.step(batch, rows, dense);
      const rows64 = rows.map((each) => Float64Array.from(each));
      const dense64 = dense.map((each) => Float64Array.from(each));
      const loss = () => lossOf(batch, rows64, dense64);
      expect(result.loss).toBeCloseTo(loss(), 4);
      const check = (what: string, values: Float64Array, gradient: Vector, every: number) => {
        expect(gradient.length, what).toBe(values.length);
        let largest = 0;
        for (let i = 0; i < values.length; i += every) {
          const before = values[i]!;
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
        // A gradient that vanishes everywhere would prove nothing.
        expect(largest, what).toBeGreaterThan(1e-4);
      };
      for (const [i, { name }] of model.tables.entries()) check(name, rows64[i]!, result.rowGrads[i]!, 1);
      for (const [i, { name }] of model.tensors.entries())
        check(name, dense64[i]!, result.denseGrads[i]!, dense64[i]!.length > 400 ? 13 : 1);
    }
  });

  test('predictions are the sigmoid of the logits', async () => {
    const { batch, rows, dense } = inputs(5);
    const predicted = await model.predict(batch, rows, dense);
    for (let b = 0; b < 5; b++)
      expect(predicted[b]).toBeCloseTo(1 / (1 + Math.exp(-logitOf(batch, b, rows, dense))), 4);
  });
});

test('gates open half-way, to 1, where a job begins', async () => {
  const model = await dlrm({ ...own });
  const constant = model.tensors.filter(({ name }) => name.endsWith('.gate.bias'));
  expect(constant.map(({ shape, initializer }) => [shape, initializer])).toEqual(
    Array(2).fill([[NUMBERS + COLUMNS.length * DIM], { kind: 'zeros' }]),
  );
  await model.close?.();
});

test('the streams begin with different values', async () => {
  const model = await dlrm({ ...own, heads: 2, gate1: 'user', gate2: 'item' });
  const specs = new Exchanger(model, new FakeStore(), plainHelpers).tableSpecs(7);
  const drawn = specs.filter(({ initializer }) => initializer.kind !== 'zeros');
  expect(drawn.length).toBeGreaterThan(10);
  // A row that was never pushed depends on its key, on the table's seed, and on nothing else of the table.
  const tensors = drawn.filter(({ name }) => name.startsWith('dense/')).map(({ seed }) => seed);
  expect(new Set(tensors).size).toBe(tensors.length);
  expect(tensors.every((seed) => Number.isSafeInteger(seed) && seed >= 0)).toBe(true);
  await model.close?.();
});

test('the Criteo layout has gates, but no columns to make them of', async () => {
  const model = await dlrm({ dim: 2, batch: 4, modelName: 'finalmlp', top: '4-1' });
  expect(model.tensors.map(({ name, shape }) => [name, ...shape])).toEqual([
    ['stream1.gate.bias', 65],
    ['stream1.0.weight', 65, 4],
    ['stream1.0.bias', 4],
    ['stream1.fusion.weight', 4, 1],
    ['stream2.gate.bias', 65],
    ['stream2.0.weight', 65, 4],
    ['stream2.0.bias', 4],
    ['stream2.fusion.weight', 4, 1],
    ['fusion.product.weight', 16, 1],
    ['fusion.bias', 1],
  ]);
  await model.close?.();
});

test('what it cannot be made of is refused', async () => {
  for (const [options, message] of [
    [{ gate1: 'user,year' }, /gate1=COLUMN.*no sparse column "year"/],
    [{ gate2: 'user', schema: undefined }, /gate2=COLUMN.* names sparse columns of a schema/],
    [{ gate2: 7 }, /gate2=COLUMN.* names sparse columns of a schema/],
    [{ heads: 4 }, /heads must divide the last layer of the streams: 6 \/ 4/],
    [{ heads: 'many' }, /heads must divide/],
    [{ heads: 0 }, /heads must divide/],
    [{ top: '1' }, /--top must be the layers of both streams and then 1: 1/],
    [{ top: '8-2' }, /--top must be the layers of both streams and then 1: 8-2/],
    [{ bottom: '8-2' }, /--bottom is for dlrm and two-towers: finalmlp has top layers only/],
  ] as const)
    await expect(dlrm({ ...own, ...options })).rejects.toMatchObject({ code: 'BAD_ARGUMENT', message });
});
