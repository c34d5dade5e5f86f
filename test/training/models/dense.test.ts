import { expect, test } from 'vitest';
import {
  CHUNK_DIM,
  denseLayout,
  densePull,
  densePush,
  denseTableSpec,
  denseValues,
} from '../../../src/training/models/dense.js';
import type { DenseTensor } from '../../../src/training/models/trainer.js';
import { numbers } from './rows.js';

const tensor = (shape: number[]): DenseTensor => ({
  name: 'w',
  shape,
  optimizer: { kind: 'sgd', lr: 1 },
  initializer: { kind: 'uniform', low: -1, high: 1 },
});

test.each([
  [[1], 1, 1],
  [[16], 16, 1],
  [[256], 256, 1],
  [[257], 256, 2],
  [[367, 256], 256, 367],
])('shape %j: rows of %i values, %i of them', (shape, chunkDim, count) => {
  const layout = denseLayout(tensor(shape));
  expect(layout.chunkDim).toBe(chunkDim);
  expect(layout.table).toBe('dense/w');
  expect([...layout.keys]).toEqual(Array.from({ length: count }, (_, i) => BigInt(i)));
  expect(densePull(layout)).toEqual({ table: 'dense/w', keys: layout.keys });
});

test('a row with the state of Adam is less than 4 KiB', () => {
  expect(CHUNK_DIM * 3 * 4 + 8).toBeLessThan(4096);
});

test('gradients are padded with zeros and copied; values are the head of the rows', () => {
  const layout = denseLayout(tensor([3, 100]));
  const gradient = numbers(300, 5);
  const { gradients } = densePush(layout, gradient);
  expect(gradients.length).toBe(512);
  expect(gradients.subarray(0, 300)).toEqual(gradient);
  expect(gradients.subarray(300).every((value) => value === 0)).toBe(true);
  expect(gradients.buffer).not.toBe(gradient.buffer);
  expect(denseValues(layout, gradients)).toEqual(gradient);
});

test('the table takes optimizer and initializer of the tensor', () => {
  const { optimizer, initializer } = tensor([300]);
  const spec = denseTableSpec(tensor([300]), denseLayout(tensor([300])), 9);
  expect(spec).toEqual({ name: 'dense/w', dim: 256, optimizer, initializer, seed: 9 });
});

test('tensors with different draws have seeds of their own, and those without have that of the job', () => {
  const layout = denseLayout(tensor([3]));
  const most = Number.MAX_SAFE_INTEGER;
  const seeds = [0, 1, 9, most].flatMap((seed) =>
    [0, 1, 2, most].map((draw) => denseTableSpec({ ...tensor([3]), draw }, layout, seed).seed),
  );
  expect(seeds.filter((_, index) => index % 4 === 0)).toEqual([0, 1, 9, most]);
  expect(new Set(seeds).size).toBe(seeds.length);
  expect(seeds.every((seed) => Number.isSafeInteger(seed) && seed >= 0)).toBe(true);
  for (const draw of [-1, 0.5, Number.NaN])
    expect(() => denseTableSpec({ ...tensor([3]), draw }, layout, 1)).toThrow(/draw must be 0 or more/);
});

test('a shape must be positive integers', () => {
  for (const shape of [[0], [-1], [1.5]]) {
    expect(() => denseLayout(tensor(shape))).toThrow(expect.objectContaining({ code: 'BAD_ARGUMENT' }));
  }
});
