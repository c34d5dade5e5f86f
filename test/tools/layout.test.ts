import { expect, test } from 'vitest';
import { loadNative } from '../../src/native.js';
import { putPart, rowParts, shapeOf, takePart } from '../../src/tools/layout.js';
import { OPTIMIZERS } from './support.js';

test.each(OPTIMIZERS)('parts make up the whole row of $kind', (optimizer) => {
  const dim = 5;
  const parts = rowParts(dim, optimizer);
  let offset = 0;
  for (const part of parts) {
    expect(part.offset).toBe(offset);
    offset += part.floats;
  }
  expect(offset).toBe(loadNative().rowWidth(dim, optimizer));
});

test('names and shapes are those of torch', () => {
  const shapes = OPTIMIZERS.map((optimizer) =>
    rowParts(4, optimizer).map((part) => `${part.name} ${shapeOf(part, 9).join('x')}`),
  );
  expect(shapes).toEqual([
    ['values 9x4'],
    ['values 9x4', 'momentum 9x4'],
    ['values 9x4', 'sum 9x4'],
    ['values 9x4', 'sum 9'],
    ['values 9x4', 'exp_avg 9x4', 'exp_avg_sq 9x4', 'step 9'],
  ]);
});

test('taking rows apart and putting them together changes no bit', () => {
  const [width, count] = [7, 50];
  const words = Uint32Array.from({ length: width * count }, (_, i) => Math.imul(i, 0x9e3779b1));
  words[3] = 0x7fa00001; // a signalling NaN
  const rows = new Float32Array(words.buffer);
  const copy = new Float32Array(rows.length);
  for (const part of rowParts(2, OPTIMIZERS[4]!)) putPart(copy, width, part, takePart(rows, width, part));
  expect(new Uint32Array(copy.buffer)).toEqual(words);
});
