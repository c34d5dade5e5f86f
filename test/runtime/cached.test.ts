// What is asked for often and costs much is computed once in a while.
import { expect, it, vi } from 'vitest';
import { Cached } from '../../src/runtime/cached.js';

it('is computed when it is asked for and too old, and not before', () => {
  let now = 5000;
  const compute = vi.fn(() => ({ at: now }));
  const cached = new Cached(compute, 100, () => now);
  expect(compute).not.toHaveBeenCalled();
  expect(cached.value).toEqual({ at: 5000 });
  now = 5099;
  expect(cached.value).toEqual({ at: 5000 });
  now = 5100;
  expect(cached.value).toEqual({ at: 5100 });
  expect(compute).toHaveBeenCalledTimes(2);
});

it('is computed again after an error', () => {
  let fails = true;
  const cached = new Cached(
    () => {
      if (fails) throw new Error('not now');
      return 1;
    },
    100,
    () => 0,
  );
  expect(() => cached.value).toThrow('not now');
  fails = false;
  expect(cached.value).toBe(1);
});
