/** Parts of a push whose other tables are gone: rows, rates, counts and scores go with their tables. */
import { expect, it } from 'vitest';
import { selectedPush } from '../../../src/core/shared/sections.js';
import { native } from '../../engine/native.support.js';

const order = Uint32Array.of(0, 1, 2);
const keys = BigUint64Array.of(5n, 6n, 7n);
const part = (
  table: number,
  width: number,
  extras: { lr?: number; counts?: Uint32Array; scores?: Float32Array } = {},
) => ({
  ...{ table, width, keys, rows: new Float32Array(3 * width).fill(table), order, start: 0, end: 3 },
  ...extras,
});
const counts = Uint32Array.of(1, 2, 3);
const scores = Float32Array.of(0.5, -1, 7);
const ALL = [
  part(1, 3, { counts }),
  part(2, 0),
  part(3, 1, { counts, lr: 0.5, scores }),
  part(4, 2, { scores }),
  part(5, 4, { counts }),
];

it('keeps each table of a push as it is, whatever others have', () => {
  const section = native.encodeRequest(0, ALL);
  for (let mask = 0; mask < 32; mask++) {
    const kept = ALL.filter((_, i) => (mask >> i) & 1);
    const isKept = (table: number) => kept.some((each) => each.table === table);
    expect(selectedPush(section, isKept)).toEqual(native.encodeRequest(0, kept));
  }
  expect(() => selectedPush(section.subarray(0, section.length - 8), () => true)).toThrow(
    expect.objectContaining({ code: 'BAD_FRAME' }),
  );
});
