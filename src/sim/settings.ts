/**
 * Settings of a table that change while a schedule runs: its learning rate, and the largest norm of a
 * gradient. A table of its own adds: where v settings were set, a push adds 1 + v to its digit of base 4. So
 * a row tells for each push whether it was applied, and with which settings.
 *
 * A push that began when a setting was set has this one or a later one, once it is durable: an owner that was
 * cut off may apply it with earlier ones, for nothing. No push has earlier settings than one of the same
 * process before it. What another process sent before it died may come later.
 */
import type { OptimizerChanges, OptimizerSpec } from '../engine/optimizers.js';
import type { SavedTable } from '../protocol/checkpoints.js';
import { differingSettings, onlyChanges } from '../protocol/settings.js';
import { Violation } from './violation.js';

/** The norm of each gradient: a power of two, beside which the squares of digits are nothing. */
const NORM = 2 ** 40;

/** The optimizer when 0, 1, ... settings were set: a push adds its gradient once, twice, three times. */
const OPTIMIZERS: readonly OptimizerSpec[] = [
  { kind: 'sgd', lr: -4, clipNorm: NORM / 4 },
  { kind: 'sgd', lr: -4, clipNorm: NORM / 2 },
  { kind: 'sgd', lr: -6, clipNorm: NORM / 2 },
];

/** Settings that a schedule sets: a digit has no room for more. */
export const MOST_SETS = OPTIMIZERS.length - 1;

/** The optimizer when `count` settings were set. */
export const optimizerAfter = (count: number): OptimizerSpec => OPTIMIZERS[count]!;

/** A change to the settings with number `count`. A late copy of it would bring earlier ones back. */
export const changeTo = (count: number): OptimizerChanges => onlyChanges(optimizerAfter(count));

/** Place of the digit of push number `number` in a row. The last column has the norm. */
function digitOf(number: number, dim: number): { column: number; unit: number } {
  const digits = dim - 1;
  return { column: (number - 1) % digits, unit: 4 ** Math.floor((number - 1) / digits) };
}

/** Gradient of push number `number`. */
export function digitRow(number: number, dim: number): Float32Array {
  const { column, unit } = digitOf(number, dim);
  const row = new Float32Array(dim);
  row[column] = unit;
  row[dim - 1] = NORM;
  return row;
}

/** `since`: settings that were set when it began. */
type SetPush = { since: number; process: number };

export class SetSettings {
  /** Settings that were set, as somebody was told. */
  told = 0;
  /** Settings that somebody has asked to set. */
  asked = 0;

  /** Checks a row after these pushes, of which so many are `durable`; `mask` as in the oracle. */
  check(
    where: string,
    row: Float32Array,
    mask: number,
    pushes: readonly SetPush[],
    durable = pushes.length,
  ): void {
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
      if (sets < least && number <= durable)
        throw new Violation(`${where}: push ${number} has settings ${sets}, and ${least} were set`);
      if (sets > this.asked)
        throw new Violation(`${where}: push ${number} has settings ${sets}, which nobody set`);
      if (sets < before) throw new Violation(`${where}: push ${number} has settings ${sets} after ${before}`);
      newest.set(process, sets);
    }
  }

  /** The job is restored from this checkpoint. Returns the number of settings that are set in it. */
  rewind(tables: readonly SavedTable[], name: string): number {
    const saved = tables.find((table) => table.name === name)?.optimizer ?? optimizerAfter(0);
    const count = OPTIMIZERS.findIndex((each) => differingSettings(each, saved).length === 0);
    if (count < 0) throw new Violation(`table ${name} is saved with settings that nobody set`);
    this.told = this.asked = count;
    return count;
  }
}
