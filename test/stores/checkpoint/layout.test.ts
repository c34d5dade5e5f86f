import { expect, test } from 'vitest';
import { OPTIMIZER_KINDS, optimizerOf } from '../../../src/engine/optimizers.js';
import { initialState, joinRows, rowParts, splitRows } from '../../../src/stores/checkpoint/layout.js';

test.each(OPTIMIZER_KINDS)('taking rows of %s apart and putting them together changes no bit', (kind) => {
  const [dim, count] = [3, 50];
  const width = rowParts(dim, optimizerOf(kind, 0.1)).reduce((sum, part) => sum + part.floats, 0);
  const words = Uint32Array.from({ length: width * count }, (_, i) => Math.imul(i, 0x9e3779b1));
  words[3] = 0x7fa00001; // a signalling NaN
  const rows = new Float32Array(words.buffer);
  const { values, state } = splitRows(rows, width, dim);
  expect([values.length, state.length]).toEqual([count * dim, count * (width - dim)]);
  expect(new Uint32Array(values.buffer)[dim + 1]).toBe(words[width + 1]);
  const copy = joinRows({ values, state }, width, dim);
  expect(new Uint32Array(copy.buffer)).toEqual(words);
});

test('accumulators of new rows begin where the optimizer says', () => {
  const adagrad = { ...optimizerOf('adagrad', 0.1), initialAccumulator: 0.5 };
  expect([...initialState(3, adagrad)]).toEqual([0.5, 0.5, 0.5]);
  expect([...initialState(2, optimizerOf('adam', 0.1))]).toEqual([0, 0, 0, 0, 0]);
  expect([...initialState(2, optimizerOf('sgd', 0.1))]).toEqual([]);
});
