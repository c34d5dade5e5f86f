/**
 * The filter of a table in a segment: slots with counters of keys that wait for a row. Its shape is text in
 * the metadata of the segment, and stands there also where nothing was counted.
 */
import type { FilterCounters, FilterState } from '../../engine/snapshots.js';

/** Slots of a filter to be written; the arrays of a list follow each other. */
export interface FilterToWrite {
  state: FilterState;
  /** Bytes of the counters of a slot. */
  width: number;
  /** n numbers of slots */
  slots: readonly BigUint64Array[];
  /** n x `width` bytes */
  counters: readonly Uint8Array[];
}

/** Slots of a filter that were read: views of the segment's bytes. */
export interface FilterRead extends FilterCounters {
  state: FilterState;
  width: number;
}

/** Fields of a filter in the order in which they are written, and the most that each may be. */
const FIELDS = [
  ['line', Number.MAX_SAFE_INTEGER],
  ['first', Number.MAX_SAFE_INTEGER],
  ['slots', 2 ** 32 - 1],
  ['hashes', 32],
  ['capacity', 2 ** 32 - 1],
  ['waiting', 2 ** 32 - 1],
] as const satisfies readonly (readonly [keyof FilterState, number])[];

/** "line:100,first:0,...": the content of a filter without its counters. */
export function filterText(state: FilterState): string {
  return FIELDS.map(([name]) => `${name}:${state[name]}`).join();
}

/** The inverse of `filterText`; undefined: this is none. */
export function parsedFilter(text: string): FilterState | undefined {
  const parts = text.split(',');
  if (parts.length !== FIELDS.length) return undefined;
  const state: Partial<FilterState> = {};
  for (const [i, [name, most]] of FIELDS.entries()) {
    const [, found, digits] = /^([a-z]{1,16}):(\d{1,16})$/.exec(parts[i]!) ?? [];
    if (found !== name || Number(digits) > most) return undefined;
    state[name] = Number(digits);
  }
  const { line, slots, hashes, capacity } = state as FilterState;
  return line > 0 && slots > 0 && hashes > 0 && capacity > 0 ? (state as FilterState) : undefined;
}

/** True: all of these slots are among those of the filter. */
export function areOfFilter(slots: BigUint64Array, { first, slots: count }: FilterState): boolean {
  const words = new Uint32Array(slots.buffer, slots.byteOffset, 2 * slots.length);
  for (let i = 0; i < slots.length; i++) {
    const slot = words[2 * i + 1]! * 2 ** 32 + words[2 * i]!;
    if (slot < first || slot >= first + count) return false;
  }
  return true;
}
