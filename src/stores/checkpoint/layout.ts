/**
 * The parts of a whole row. The engine has rows one after the other; files have values and state apart.
 * Copies move 32-bit words, so that all bits are kept (those of NaNs too) without a call per row.
 */
import { type OptimizerSpec, stateParts } from '../../engine/optimizers.js';
import type { TablePolicy } from '../../engine/policies.js';

/** A part of every row. */
export interface RowPart {
  name: string;
  /** Start in a row and length, in floats. */
  offset: number;
  floats: number;
  /**
   * Value of each float of a part of the state in a row that had no push. The initializer of the table
   * decides the values.
   */
  initial: number;
}

/** Parts of a row in order, named as torch.optim names its state. */
export function rowParts(dim: number, optimizer: OptimizerSpec, policy?: TablePolicy): RowPart[] {
  const parts: RowPart[] = [];
  let offset = 0;
  const add = (name: string, floats: number, initial = 0) => {
    parts.push({ name, offset, floats, initial });
    offset += floats;
  };
  add('values', dim);
  const initial = 'initialAccumulator' in optimizer ? optimizer.initialAccumulator : 0;
  for (const { name, shape, start } of stateParts(optimizer, policy))
    add(name, shape === 'scalar' ? 1 : dim, start && initial);
  return parts;
}

/** The state of a row that nothing was pushed to. */
export function initialState(dim: number, optimizer: OptimizerSpec, policy?: TablePolicy): Float32Array {
  return Float32Array.from(
    rowParts(dim, optimizer, policy)
      .slice(1)
      .flatMap(({ floats, initial }) => new Array<number>(floats).fill(initial)),
  );
}

/** Words keep all bits of floats, those of NaNs too. */
export function wordsOf(floats: Float32Array): Uint32Array {
  return new Uint32Array(floats.buffer, floats.byteOffset, floats.length);
}

/** Copies `floats` of every row: from column `at` of rows of `from.width` to column `at` of those of `to`. */
function copyColumns(
  from: { rows: Float32Array; width: number; at: number },
  to: { rows: Float32Array; width: number; at: number },
  floats: number,
): void {
  const [source, target] = [wordsOf(from.rows), wordsOf(to.rows)];
  const count = floats === 0 ? 0 : to.rows.length / to.width;
  for (let row = 0; row < count; row++) {
    const [start, end] = [row * from.width + from.at, row * to.width + to.at];
    for (let x = 0; x < floats; x++) target[end + x] = source[start + x]!;
  }
}

/** Whole rows of `width` floats as their values (`dim` of each) and their state. */
export function splitRows(
  rows: Float32Array,
  width: number,
  dim: number,
): { values: Float32Array; state: Float32Array } {
  const count = rows.length / width;
  const rest = width - dim;
  if (rest === 0) return { values: rows, state: new Float32Array(0) };
  const [values, state] = [new Float32Array(count * dim), new Float32Array(count * rest)];
  copyColumns({ rows, width, at: 0 }, { rows: values, width: dim, at: 0 }, dim);
  copyColumns({ rows, width, at: dim }, { rows: state, width: rest, at: 0 }, rest);
  return { values, state };
}

/** The inverse of `splitRows`. */
export function joinRows(
  { values, state }: { values: Float32Array; state: Float32Array },
  width: number,
  dim: number,
): Float32Array {
  const rest = width - dim;
  if (rest === 0) return values;
  const rows = new Float32Array((values.length / dim) * width);
  copyColumns({ rows: values, width: dim, at: 0 }, { rows, width, at: 0 }, dim);
  copyColumns({ rows: state, width: rest, at: 0 }, { rows, width, at: dim }, rest);
  return rows;
}
