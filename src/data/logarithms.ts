/**
 * log1p for the parser of the addon. It is JavaScript's, so that a number gives the same bits in every
 * format: of small integers, which are most, from a table, and of others after each call.
 */
import type { Logarithms } from '../engine/native-data.js';

const TABLE_SIZE = 16_384;
/** More than the dense columns of most schemas */
const LATE_NUMBERS = 4096;

const table = Float32Array.from({ length: TABLE_SIZE }, (_, value) => Math.log1p(value));
let places = new Uint32Array(LATE_NUMBERS);
let numbers = new Float64Array(LATE_NUMBERS);

/** Room for the late numbers of at least `perRow`. */
export function logarithms(perRow: number): Logarithms {
  if (perRow > places.length) {
    places = new Uint32Array(2 * perRow);
    numbers = new Float64Array(2 * perRow);
  }
  return [table, places, numbers];
}

/** Writes the logarithms that a call of the addon left to JavaScript. */
export function finishLogarithms(dense: Float32Array, count: number): void {
  for (let index = 0; index < count; index++) dense[places[index]!] = Math.log1p(numbers[index]!);
}
