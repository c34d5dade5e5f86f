/** Fits rates to measured steps: three sizes of a step say what a row, its bytes and a section cost. */
import { DELTA_BYTES, VALUE_BYTES } from './load.js';
import type { PlannerRates } from './rates.js';

/** Steps of one size that a job was kept busy with: so many keys are pulled, and then pushed. */
export interface FittedLoad {
  /** Parities of a shard. */
  r: number;
  /** Distinct keys of a step. */
  rows: number;
  dim: number;
  /** Shards that a pull, or a push, has a section for. */
  sections: number;
  steps: number;
  /** Processor seconds of all PS, without what they take when nothing happens. */
  psSeconds: number;
  /** Processor seconds of the workers. */
  clientSeconds: number;
}

/** Steps that are measured: the first and second differ in rows, the first and third in bytes of a row. */
const FEW_ROWS = 256;
export const MANY_ROWS = 4096;
export const DIM = 64;
const NARROW_DIM = 8;
export const SIZES = [
  { rows: MANY_ROWS, dim: DIM },
  { rows: FEW_ROWS, dim: DIM },
  { rows: MANY_ROWS, dim: NARROW_DIM },
] as const;

/** Bytes of a narrow row against those of a wide one: values, and deltas with the state of Adagrad. */
const NARROW_VALUES = (NARROW_DIM * 4) / VALUE_BYTES;
const NARROW_DELTA = (NARROW_DIM * 8 + 4) / DELTA_BYTES;

/** Least seconds, and least share, of a fit: what drowns in the noise still costs something. */
const LEAST = 1e-9;
const LEAST_SHARE = 0.01;

/** Seconds of a row of {@link DIM}, the share of them that does not grow with its bytes, and of a section. */
interface FittedCost {
  row: number;
  fixed: number;
  section: number;
}

/**
 * A step takes rows x (fixed + growing x bytes) + section x sections: three equations, for a step of each of
 * {@link SIZES}. `narrow`: bytes of a narrow row against those of a wide one.
 */
function solve(
  [many, few, thin]: readonly number[],
  sections: readonly number[],
  narrow: number,
): FittedCost {
  const growing = Math.max(0, (many! - thin!) / (MANY_ROWS * (1 - narrow)));
  // Both wide steps, without what grows with their bytes.
  const [a, b] = [many! - growing * MANY_ROWS, few! - growing * FEW_ROWS];
  const [inMany, inFew] = sections as [number, number];
  const det = MANY_ROWS * inFew - FEW_ROWS * inMany;
  const fixed = Math.max(0, (a * inFew - b * inMany) / det);
  const section = Math.max(LEAST, (b - fixed * FEW_ROWS) / inFew);
  const row = Math.max(LEAST, fixed + growing);
  return { row, fixed: Math.min(1, Math.max(LEAST_SHARE, fixed / row)), section };
}

/** Rates from loads of all {@link SIZES}, plain and coded. @throws TypeError where one is missing */
export function ratesFrom(loads: readonly FittedLoad[]): Partial<PlannerRates> {
  const find = (coded: boolean): FittedLoad[] =>
    SIZES.map(({ rows, dim }) => {
      const found = loads.find((l) => l.rows === rows && l.dim === dim && l.r > 0 === coded);
      if (found) return found;
      throw new TypeError(`no load of ${coded ? 'coded ' : ''}steps of ${rows} rows of dim ${dim}`);
    });
  const [plain, coded] = [find(false), find(true)];
  const sections = plain.map((load) => load.sections);
  const ps = plain.map(({ psSeconds, steps }) => psSeconds / steps);
  const added = coded.map(({ psSeconds, steps, r }, i) => (psSeconds / steps - ps[i]!) / r);
  const client = plain.map(({ clientSeconds, steps }) => clientSeconds / steps);
  const rows = solve(ps, sections, NARROW_VALUES);
  const parity = solve(added, sections, NARROW_DELTA);
  const own = solve(client, sections, NARROW_VALUES);
  return {
    // A step pulls and pushes the same rows: only both together are known, and needed.
    pullRow: rows.row / 2,
    pushRow: rows.row / 2,
    rowFixed: rows.fixed,
    section: rows.section / 2,
    parityRow: parity.row,
    parityFixed: parity.fixed,
    deltaMessage: parity.section,
    clientRow: own.row,
    clientFixed: own.fixed,
    clientSection: own.section / 2,
  };
}
