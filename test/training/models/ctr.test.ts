/** Wide & deep, DeepFM and DCN v2: what they compute, from their definitions and not from their graphs. */
import { afterAll, describe, expect, test } from 'vitest';
import {
  CTR_MODELS,
  type CtrModel,
  ctrParameters,
  extraValues,
} from '../../../src/training/models/ctr-graphs.js';
import type { Batch, Model } from '../../../src/training/models/trainer.js';
import { dlrm, numbers, randomBatch } from './rows.js';

const SHAPE = { dense: 13, embeddings: 26, weighted: false, dim: 2, bottom: [], top: [5, 3, 1] };
const SMALL = { dim: 2, batch: 3, top: '5-3-1' };
const WIDTH = 13 + 26 * 2;

type Vector = ArrayLike<number>;

function layer(input: number[], weight: Vector, bias: Vector): number[] {
  return Array.from(bias, (start, out) =>
    input.reduce((total, value, i) => total + value * weight[i * bias.length + out]!, start),
  );
}

/** The logit of row b in double precision. */
function logitOf(model: CtrModel, batch: Batch, b: number, rows: Vector, dense: readonly Vector[]): number {
  const row = SHAPE.dim + extraValues(model);
  const numbers = Array.from(batch.dense.subarray(b * 13, b * 13 + 13));
  const values = Array.from({ length: 26 }, (_, f) =>
    Array.from({ length: row }, (_, i) => rows[(b * 26 + f) * row + i]!),
  );
  const vectors = values.map((each) => each.slice(extraValues(model)));
  const x = [...numbers, ...vectors.flat()];
  const tensors = [...dense];
  let logit = 0;
  if (model !== 'dcnv2') {
    const wide = tensors.shift()!;
    logit += numbers.reduce((sum, value, i) => sum + value * wide[i]!, 0);
    logit += values.reduce((sum, [weight]) => sum + weight!, 0);
  }
  if (model === 'deepfm')
    for (let i = 0; i < 26; i++)
      for (let j = 0; j < i; j++)
        for (let d = 0; d < SHAPE.dim; d++) logit += vectors[i]![d]! * vectors[j]![d]!;
  let top = x;
  if (model === 'dcnv2') {
    for (let index = 0; index < 3; index++) {
      const sum = layer(top, tensors.shift()!, tensors.shift()!);
      top = top.map((value, i) => x[i]! * sum[i]! + value);
    }
  }
  for (let index = 0; index < 3; index++) {
    top = layer(top, tensors.shift()!, tensors.shift()!);
    if (index < 2) top = top.map((value) => Math.max(0, value));
  }
  return logit + top[0]!;
}

function lossOf(model: CtrModel, batch: Batch, rows: Vector, dense: readonly Vector[]): number {
  let sum = 0;
  for (let b = 0; b < batch.size; b++) {
    const logit = logitOf(model, batch, b, rows, dense);
    sum += Math.log1p(Math.exp(-Math.abs(logit))) + Math.max(logit, 0) - batch.labels[b]! * logit;
  }
  return sum / batch.size;
}

describe.each(CTR_MODELS)('%s', async (name) => {
  const parameters = ctrParameters(name, SHAPE);
  const row = SHAPE.dim + extraValues(name);
  const model: Model = await dlrm({ ...SMALL, modelName: name });
  afterAll(() => model.close?.());

  function inputs(size: number) {
    const batch = randomBatch(size, 3);
    const rows = numbers(size * 26 * row, 11).map((value) => value / 2);
    const dense = parameters.map(({ shape }, i) =>
      numbers(
        shape.reduce((a, b) => a * b, 1),
        // With these no layer is dead.
        (name === 'dcnv2' ? 20 : 34) + i,
      ).map((value) => (shape[0] === WIDTH ? value / 8 : value / 2)),
    );
    return { batch, rows, dense };
  }

  test('loss and all gradients agree with finite differences', async () => {
    for (const size of [3, 2]) {
      const { batch, rows, dense } = inputs(size);
      const result = await model.step(batch, [rows], dense);
      const [rows64, dense64] = [Float64Array.from(rows), dense.map((each) => Float64Array.from(each))];
      const loss = () => lossOf(name, batch, rows64, dense64);
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
      check('rows', rows64, result.rowGrads[0]!, 7);
      for (const [i, { name: tensor }] of parameters.entries())
        check(tensor, dense64[i]!, result.denseGrads[i]!, dense64[i]!.length > 1000 ? 331 : 1);
    }
  });

  test('predictions are the sigmoid of the logits', async () => {
    const { batch, rows, dense } = inputs(5);
    const predicted = await model.predict(batch, [rows], dense);
    for (let b = 0; b < 5; b++)
      expect(predicted[b]).toBeCloseTo(1 / (1 + Math.exp(-logitOf(name, batch, b, rows, dense))), 4);
  });
});

test('names and layers that do not exist are refused', async () => {
  for (const [own, message] of [
    [{ modelName: 'fm' }, /one of dlrm, wide-and-deep, deepfm, dcnv2, finalmlp, two-towers, not fm/],
    [{ modelName: 'dcnv2', bottom: '8-2' }, /--bottom is for dlrm and two-towers/],
    [{ modelName: 'deepfm', top: '8-2' }, /last top layer must have width 1/],
    [{ tpo: '8-1' }, /--model-option tpo: the options of dlrm are bottom, top$/],
    [{ modelName: 'dcnv2', gate1: 'user' }, /--model-option gate1: the options of dcnv2 are top$/],
    [{ modelName: 'finalmlp', items: 'a' }, /items: the options of finalmlp are top, gate1, gate2, heads$/],
    [{ modelName: 'two-towers', heads: 2 }, /heads: the options of two-towers are bottom, items$/],
  ] as const)
    await expect(dlrm({ ...SMALL, ...own })).rejects.toMatchObject({ code: 'BAD_ARGUMENT', message });
});
