/**
 * The tables of a schedule and what their rows must hold. Each pool has a main table, whose rows are bit
 * masks of the pushes that were applied, and further ones that the same pushes write to: other widths, and
 * Adagrad, computed here a second time.
 */
import type { OptimizerSpec } from '../native.js';
import type { TableSpec } from '../protocol/map.js';

/** 512 floats are 2 KiB a row, two rows a block: many blocks with few rows. */
const MAIN_DIM = 512;
const MIRRORED_DIM = 64;

export interface SimTable extends Omit<TableSpec, 'id'> {
  /** SGD with lr -1 on zeros: the row is the sum of its gradients. Otherwise Adagrad. */
  adds: boolean;
}

const ADDING: OptimizerSpec = { kind: 'sgd', lr: -1 };
const ADAGRAD = { kind: 'adagrad', lr: 0.05, eps: 1e-8, initialAccumulator: 0.1 } as const;
/** Of a row with Adagrad that was never pushed. */
const INITIAL = 0.25;

function table(pool: string, name: string, dim: number, adds: boolean): SimTable {
  return {
    ...{ name: `${pool}/${name}`, pool, dim, seed: 0, adds },
    optimizer: adds ? ADDING : { ...ADAGRAD },
    initializer: adds ? { kind: 'zeros' } : { kind: 'constant', value: INITIAL },
  };
}

/** `extra`: further tables such as "i1 a64": i adds integers, a is Adagrad, the number is the width. */
export function tablesOfPool(pool: string, extra: string): SimTable[] {
  const main = table(pool, 'main', pool === 'embedding' ? MAIN_DIM : MIRRORED_DIM, true);
  const more = extra.split(' ').filter((name) => name !== '');
  return [main, ...more.map((name) => table(pool, name, Number(name.slice(1)), name.startsWith('i')))];
}

/** As in a message, which has no other fields. */
export function specOf({ adds: _, ...spec }: SimTable): Omit<TableSpec, 'id'> {
  return spec;
}

/** What push number `number` adds to a row of the main table, and to all tables that add. */
export function bit(number: number): number {
  return 2 ** number;
}

/** Gradient of push number `number` for a row with Adagrad; not exact in binary, so that rounding shows. */
export function gradient(number: number, column: number): number {
  return Math.fround((((number * 7 + column * 13) % 29) - 14) * 0.037);
}

const { fround } = Math;
const LR = fround(ADAGRAD.lr);
const EPS = fround(ADAGRAD.eps);
const START = fround(ADAGRAD.initialAccumulator);

/**
 * A row with Adagrad after these pushes, in order: values, then accumulators. Every operation rounds to
 * float32, in the order of the engine: s += g*g; w -= (lr*g) / (sqrt(s) + eps).
 */
export function adagradRow(dim: number, numbers: readonly number[]): Float32Array {
  const row = new Float32Array(2 * dim).fill(INITIAL, 0, dim).fill(START, dim);
  for (const number of numbers) {
    for (let i = 0; i < dim; i++) {
      const g = gradient(number, i);
      const s = fround(row[dim + i]! + fround(g * g));
      row[dim + i] = s;
      row[i] = fround(row[i]! - fround(fround(LR * g) / fround(fround(Math.sqrt(s)) + EPS)));
    }
  }
  return row;
}
