import { afterAll, describe, expect, test } from 'vitest';
import { parseWidths } from '../../../src/training/models/dlrm.js';
import { dlrmParameters } from '../../../src/training/models/dlrm-graph.js';
import type { Batch, Model } from '../../../src/training/models/trainer.js';
import { dlrm, numbers, options, randomBatch } from './rows.js';

const SHAPE = { dense: 13, embeddings: 26, weighted: false, dim: 4, bottom: [5, 4], top: [6, 3, 1] };
const SMALL = { dim: 4, batch: 3, bottom: '5-4', top: '6-3-1' };
const parameters = dlrmParameters(SHAPE);

type Vector = ArrayLike<number>;

function layer(input: number[], weight: Vector, bias: Vector, relu: boolean): number[] {
  return Array.from(bias, (start, out) => {
    const sum = input.reduce((total, value, i) => total + value * weight[i * bias.length + out]!, start);
    return relu ? Math.max(0, sum) : sum;
  });
}

/** The logit of row b in double precision, written from the definition and not from the graph. */
function logitOf(batch: Batch, b: number, embeddings: Vector, dense: Vector[]): number {
  const { dim } = SHAPE;
  let x = Array.from(batch.dense.subarray(b * 13, b * 13 + 13));
  for (const i of [0, 2]) x = layer(x, dense[i]!, dense[i + 1]!, true);
  const vectors = [x];
  for (let f = 0; f < 26; f++) {
    vectors.push(Array.from({ length: dim }, (_, i) => embeddings[(b * 26 + f) * dim + i]!));
  }
  const features = [...x];
  for (let i = 1; i < 27; i++) {
    for (let j = 0; j < i; j++)
      features.push(vectors[i]!.reduce((dot, v, d) => dot + v * vectors[j]![d]!, 0));
  }
  let top = features;
  for (const i of [4, 6, 8]) top = layer(top, dense[i]!, dense[i + 1]!, i < 8);
  return top[0]!;
}

function lossOf(batch: Batch, embeddings: Vector, dense: Vector[]): number {
  let sum = 0;
  for (let b = 0; b < batch.size; b++) {
    const probability = 1 / (1 + Math.exp(-logitOf(batch, b, embeddings, dense)));
    sum -= Math.log(batch.labels[b] === 1 ? probability : 1 - probability);
  }
  return sum / batch.size;
}

/** Central differences of the loss for all values of one array. */
function numericGradient(values: Float64Array, loss: () => number): number[] {
  const step = 1e-6;
  return Array.from(values, (value, i) => {
    values[i] = value + step;
    const above = loss();
    values[i] = value - step;
    const below = loss();
    values[i] = value;
    return (above - below) / (2 * step);
  });
}

function inputs(size: number) {
  const batch = randomBatch(size, 3);
  const rows = numbers(size * 26 * SHAPE.dim, 11);
  const dense = parameters.map(({ shape }, i) =>
    numbers(
      shape.reduce((a, b) => a * b, 1),
      20 + i,
    ),
  );
  return { batch, rows, dense };
}

function expectClose(actual: Vector, expected: Vector, name: string): void {
  expect(actual.length, name).toBe(expected.length);
  for (let i = 0; i < expected.length; i++) {
    const error = Math.abs(actual[i]! - expected[i]!);
    if (!(error <= 2e-5 + 1e-4 * Math.abs(expected[i]!))) {
      expect.fail(`${name}[${i}] is ${actual[i]}, expected ${expected[i]}`);
    }
  }
}

describe('DLRM', async () => {
  const model: Model = await dlrm(SMALL);
  afterAll(() => model.close?.());

  test.each([3, 2])('loss and all gradients agree with finite differences, %i rows', async (size) => {
    const { batch, rows, dense } = inputs(size);
    const result = await model.step(batch, [rows], dense);
    const rows64 = Float64Array.from(rows);
    const dense64 = dense.map((values) => Float64Array.from(values));
    const loss = () => lossOf(batch, rows64, dense64);
    expect(result.loss).toBeCloseTo(loss(), 4);
    expectClose(result.rowGrads[0]!, numericGradient(rows64, loss), 'rows');
    expect(result.denseGrads.length).toBe(parameters.length);
    for (const [i, { name }] of parameters.entries()) {
      const expected = numericGradient(dense64[i]!, loss);
      // A gradient that vanishes everywhere would prove nothing.
      expect(expected.some((value) => Math.abs(value) > 1e-4)).toBe(true);
      expectClose(result.denseGrads[i]!, expected, name);
    }
  });

  test('predictions are the sigmoid of the logits, for any number of rows', async () => {
    for (const size of [1, 3, 7]) {
      const { batch, rows, dense } = inputs(size);
      const expected = Array.from(
        { length: size },
        (_, b) => 1 / (1 + Math.exp(-logitOf(batch, b, rows, dense))),
      );
      expectClose(await model.predict(batch, [rows], dense), expected, 'probabilities');
    }
  });

  test('the loss stays finite for logits that saturate the sigmoid', async () => {
    const { batch, rows, dense } = inputs(3);
    const large = dense.map((values) => values.map((value) => value * 100));
    const { loss, rowGrads } = await model.step(batch, [rows], large);
    expect(Number.isFinite(loss)).toBe(true);
    expect(rowGrads[0]!.every(Number.isFinite)).toBe(true);
  });

  test('steps of one size use memory again', async () => {
    const { batch, rows, dense } = inputs(3);
    const first = await model.step(batch, [rows], dense);
    const expected = first.rowGrads[0]!.slice();
    const second = await model.step(batch, [rows], dense);
    expect(second.rowGrads[0]).toEqual(expected);
    // The second step has taken the memory of the first one's result.
    expect(first.rowGrads[0]!.length).toBe(0);
  });

  test.each(['of another size', 'that fails', 'that predicts'])('a step %s changes nothing', async (what) => {
    const { batch, rows, dense } = inputs(3);
    const { loss } = await model.step(batch, [rows], dense);
    const other = inputs(2);
    if (what === 'of another size') await model.step(other.batch, [other.rows], other.dense);
    else if (what === 'that predicts') await model.predict(batch, [rows], dense);
    else {
      const short = model.step(batch, [rows.subarray(1)], dense);
      await expect(short).rejects.toMatchObject({ code: 'MODEL' });
    }
    for (let again = 0; again < 2; again++) expect((await model.step(batch, [rows], dense)).loss).toBe(loss);
  });

  test('inputs that are windows of larger memory are read from where they are', async () => {
    const { batch, rows, dense } = inputs(2);
    const moved = dense.map((values) => {
      const larger = new Float32Array(values.length + 40).fill(9);
      larger.set(values, 17);
      return larger.subarray(17, 17 + values.length);
    });
    const expected = await model.predict(batch, [rows], dense);
    expect(await model.predict(batch, [rows], moved)).toEqual(expected);
  });
});

test('declares one table and the layers, with biases that start at zero', async () => {
  const model = await dlrm();
  const { optimizer, denseOptimizer } = options;
  expect(model.tables).toMatchObject([{ name: 'embedding', dim: 16, optimizer }]);
  expect(model.tensors.map(({ name, shape }) => `${name} ${shape.join('x')}`)).toEqual([
    ...['bottom.0.weight 13x64', 'bottom.0.bias 64', 'bottom.1.weight 64x16', 'bottom.1.bias 16'],
    ...['top.0.weight 367x256', 'top.0.bias 256', 'top.1.weight 256x64', 'top.1.bias 64'],
    ...['top.2.weight 64x1', 'top.2.bias 1'],
  ]);
  for (const tensor of model.tensors) {
    expect(tensor.optimizer).toEqual(denseOptimizer);
    expect(tensor.initializer.kind).toBe(tensor.name.endsWith('bias') ? 'zeros' : 'uniform');
  }
  await model.close?.();
});

test('another dim changes the default bottom layers', async () => {
  const model = await dlrm({ dim: 8 });
  expect(model.tensors.find(({ name }) => name === 'bottom.1.weight')?.shape).toEqual([64, 8]);
  await model.close?.();
});

test('layers that do not fit are refused', async () => {
  for (const wrong of [{ bottom: '64-8' }, { top: '64-2' }, { top: '64-x-1' }, { bottom: '' }, { top: 64 }]) {
    await expect(dlrm(wrong)).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
  }
  expect(parseWidths('top', '256-64-1')).toEqual([256, 64, 1]);
});

test('without onnxruntime-node the error says what to install', async () => {
  await expect(dlrm({}, 'onnxruntime-missing')).rejects.toMatchObject({
    code: 'DEPENDENCY_MISSING',
    message: expect.stringContaining('npm install onnxruntime-missing'),
  });
});
