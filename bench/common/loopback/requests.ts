/** Keys and gradients of the requests: made before anything is measured, the same for every contender. */
import { randomU32 } from '../random.js';
import { DIM } from './options.js';

/** So many different requests take turns, so that no cache holds the rows of all of them. */
const DIFFERENT = 64;

/** Keys from .. from + count - 1, without a bigint for each. */
export function consecutive(from: number, count: number): BigUint64Array {
  const words = new Uint32Array(2 * count);
  for (let i = 0; i < count; i++) {
    words[2 * i] = from + i;
    words[2 * i + 1] = 0;
  }
  return new BigUint64Array(words.buffer);
}

/** Sets of `count` distinct keys below `rows`. */
export function keySets(count: number, rows: number, seed = 1): BigUint64Array[] {
  const next = randomU32(seed);
  return Array.from({ length: DIFFERENT }, () => {
    const keys = new Set<number>();
    while (keys.size < count) keys.add(next() % rows);
    return BigUint64Array.from(keys, BigInt);
  });
}

export function gradients(count: number, seed = 1): Float32Array {
  const next = randomU32(seed);
  return Float32Array.from({ length: count * DIM }, () => next() / 2 ** 32 - 0.5);
}
