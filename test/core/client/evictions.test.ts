// A reader of the evictions of a shard knows where it missed some.
import { expect, it } from 'vitest';
import { EvictionReader } from '../../../src/core/client/evictions.js';

const answer = (gen: number, from: number) => {
  return { t: 'evicted', id: 1, g: 0, m: 0, table: 3, gen, from, end: 100 } as const;
};

it('has a gap where an answer does not begin where it is, or is of another ownership', () => {
  const reader = new EvictionReader();
  expect(reader.asked).toEqual({ gen: 0, from: 0 });
  expect(reader.take(answer(2, 40), 0)).toBe(false);
  expect(reader.asked).toEqual({ gen: 2, from: 40 });
  expect(reader.take(answer(2, 40), 3)).toBe(false);
  expect(reader.take(answer(2, 43), 0)).toBe(false);
  expect(reader.take(answer(2, 50), 1)).toBe(true);
  expect(reader.take(answer(3, 51), 0)).toBe(true);
  expect(reader.asked).toEqual({ gen: 3, from: 51 });
  const resumed = new EvictionReader({ gen: 3, number: 51 });
  expect(resumed.misses(answer(3, 51))).toBe(false);
  expect(resumed.misses(answer(3, 0))).toBe(true);
});
