import { expect, test } from 'vitest';
import { auc, logLoss } from '../../../src/training/loop/metrics.js';
import { numbers } from '../models/rows.js';

const floats = (...values: number[]) => Float32Array.from(values);

/** The definition: over all pairs of a positive and a negative. */
function aucByPairs(labels: Float32Array, predictions: Float32Array): number {
  let wins = 0;
  let pairs = 0;
  for (let i = 0; i < labels.length; i++) {
    for (let j = 0; j < labels.length; j++) {
      if (labels[i] !== 1 || labels[j] !== 0) continue;
      pairs += 1;
      const [p, n] = [predictions[i]!, predictions[j]!];
      if (p > n) wins += 1;
      else if (p === n) wins += 0.5;
    }
  }
  return wins / pairs;
}

test('auc of perfect, inverted and constant predictions', () => {
  const labels = floats(0, 0, 1, 1);
  expect(auc(labels, floats(0.1, 0.2, 0.8, 0.9))).toBe(1);
  expect(auc(labels, floats(0.9, 0.8, 0.2, 0.1))).toBe(0);
  expect(auc(labels, floats(0.5, 0.5, 0.5, 0.5))).toBe(0.5);
  expect(auc(labels, floats(0, -0, 0, -0))).toBe(0.5);
});

test('auc is the share of ordered pairs, with many ties', () => {
  const labels = numbers(400, 1).map((value) => (value > 0.3 ? 1 : 0));
  const predictions = numbers(400, 2).map((value, i) => Math.round(8 * (value + labels[i]!)) / 8);
  expect(auc(labels, predictions)).toBeCloseTo(aucByPairs(labels, predictions), 12);
});

test('auc is undefined for one class, for nothing and for NaN', () => {
  expect(auc(floats(1, 1), floats(0.1, 0.2))).toBeNaN();
  expect(auc(floats(), floats())).toBeNaN();
  expect(auc(floats(0, 1), floats(0.1, Number.NaN))).toBeNaN();
});

test('log loss, with predictions of 0 and 1 kept finite', () => {
  const expected = -(Math.log(0.75) + Math.log(1 - 0.25)) / 2;
  expect(logLoss(floats(1, 0), floats(0.75, 0.25))).toBeCloseTo(expected, 7);
  expect(logLoss(floats(1), floats(0))).toBeCloseTo(-Math.log(1e-7), 6);
  expect(logLoss(floats(), floats())).toBeNaN();
});

test('lengths must fit', () => {
  for (const metric of [auc, logLoss]) {
    expect(() => metric(floats(1), floats(1, 0))).toThrow(
      expect.objectContaining({ code: 'LENGTH_MISMATCH' }),
    );
  }
});
