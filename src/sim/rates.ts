/**
 * Learning rates that are set while a schedule runs. A table of its own adds: with rate -(1 + v), where v is
 * the number of rates that were set, a push adds 1 + v to its digit of base 4. So a row tells for each push
 * whether it was applied, and with which rate.
 *
 * A push that began when a rate was set has this rate or a later one, and no push has an earlier rate than
 * one of the same process before it. What another process sent before it died may come later.
 */
import type { SavedTable } from '../protocol/checkpoints.js';
import { Violation } from './violation.js';

/** Rates that a schedule sets, after the first one: a digit has no room for more. */
export const MOST_SETS = 2;

/** The learning rate when `count` rates were set. */
export const rateAfter = (count: number): number => -(1 + count);

/** Place of the digit of push number `number` in a row. */
function digitOf(number: number, dim: number): { column: number; unit: number } {
  return { column: (number - 1) % dim, unit: 4 ** Math.floor((number - 1) / dim) };
}

/** Gradient of push number `number`. */
export function digitRow(number: number, dim: number): Float32Array {
  const { column, unit } = digitOf(number, dim);
  const row = new Float32Array(dim);
  row[column] = unit;
  return row;
}

/** `since`: rates that were set when it began. */
type RatedPush = { since: number; process: number };

export class SetRates {
  /** Rates that were set, as somebody was told. */
  told = 0;
  /** Rates that somebody has asked to set. */
  asked = 0;

  /** Checks a row after these pushes; `mask` as in the oracle. */
  check(where: string, row: Float32Array, mask: number, pushes: readonly RatedPush[]): void {
    const newest = new Map<number, number>();
    for (const [i, { since: least, process }] of pushes.entries()) {
      const before = newest.get(process) ?? 0;
      const number = i + 1;
      const { column, unit } = digitOf(number, row.length);
      const digit = Math.floor(row[column]! / unit) % 4;
      const isApplied = Math.floor(mask / 2 ** number) % 2 === 1;
      if (digit > 0 !== isApplied) throw new Violation(`${where}: push ${number} was applied in part`);
      if (!isApplied) continue;
      const sets = digit - 1;
      if (sets < least)
        throw new Violation(`${where}: push ${number} has rate ${sets}, and ${least} was set`);
      if (sets > this.asked)
        throw new Violation(`${where}: push ${number} has rate ${sets}, which nobody set`);
      if (sets < before)
        throw new Violation(`${where}: push ${number} has rate ${sets} after rate ${before}`);
      newest.set(process, sets);
    }
  }

  /** The job is restored from this checkpoint. Returns the number of rates that are set in it. */
  rewind(tables: readonly SavedTable[], name: string): number {
    const lr = tables.find((table) => table.name === name)?.optimizer.lr ?? rateAfter(0);
    this.told = this.asked = -1 - lr;
    return this.told;
  }
}
