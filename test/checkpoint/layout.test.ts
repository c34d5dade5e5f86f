import { expect, test } from 'vitest';
import { putPart, rowParts, shapeOf, takePart } from '../../src/checkpoint/layout.js';
import { optimizerOf } from '../../src/optimizers.js';

test('a number for the whole row is a tensor of one dimension', () => {
  const parts = rowParts(4, optimizerOf('adam', 0.1));
  expect(parts.map((part) => shapeOf(part, 9))).toEqual([[9, 4], [9, 4], [9, 4], [9]]);
});

test('taking rows apart and putting them together changes no bit', () => {
  const [width, count] = [7, 50];
  const words = Uint32Array.from({ length: width * count }, (_, i) => Math.imul(i, 0x9e3779b1));
  words[3] = 0x7fa00001; // a signalling NaN
  const rows = new Float32Array(words.buffer);
  const copy = new Float32Array(rows.length);
  for (const part of rowParts(2, optimizerOf('adam', 0.1)))
    putPart(copy, width, part, takePart(rows, width, part));
  expect(new Uint32Array(copy.buffer)).toEqual(words);
});
