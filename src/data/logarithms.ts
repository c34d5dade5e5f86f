/**
 * log1p for the parser of the addon. It is JavaScript's, so that a number gives the same bits in every
 * format: of small integers, which are most, from a table, and of others after each call.
 */
import type { Logarithms } from '../engine/native-data.js';

const TABLE_SIZE = 16_384;
/** More than the dense columns of a few thousand rows */
const LATE_NUMBERS = 65_536;

const table = Float32Array.from({ length: TABLE_SIZE }, (_, value) => Math.log1p(value));
let places = new Uint32Array(0);
let numbers = new Float64Array(0);

/** Room for the late numbers of at least one row, and of all `rows` where these are not many. */
export function logarithms(perRow: number, rows: number): Logarithms {
  const wanted = Math.max(perRow, Math.min(perRow * rows, LATE_NUMBERS));
  if (wanted > places.length) {
    places = new Uint32Array(wanted);
    numbers = new Float64Array(wanted);
  }
  return [table, places, numbers];
}

/** Writes the logarithms that a call of the addon left to JavaScript. */
export function finishLogarithms(dense: Float32Array, count: number): void {
  for (let index = 0; index < count; index++) dense[places[index]!] = Math.log1p(numbers[index]!);
}
