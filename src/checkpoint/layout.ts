/**
 * The parts of a whole row. The engine has rows one after the other; files have a tensor for each part.
 * Copies move 32-bit words, so that all bits are kept (those of NaNs too) without a call per row.
 */
import { type OptimizerSpec, stateParts } from '../optimizers.js';

/** A part of every row that is a tensor of its own in files. */
export interface RowPart {
  name: string;
  /** Where it starts in a row, and its length, in floats. */
  offset: number;
  floats: number;
  /** One number per row: the tensor's shape is [rows], not [rows, floats]. */
  scalar: boolean;
}

/** Parts of a row in order, named as torch.optim names its state. */
export function rowParts(dim: number, optimizer: OptimizerSpec): RowPart[] {
  const parts: RowPart[] = [];
  let offset = 0;
  const add = (name: string, floats: number, scalar = false) => {
    parts.push({ name, offset, floats, scalar });
    offset += floats;
  };
  add('values', dim);
  for (const { name, shape } of stateParts(optimizer.kind)) {
    if (shape === 'scalar') add(name, 1, true);
    else add(name, dim);
  }
  return parts;
}

export function shapeOf(part: RowPart, rows: number): number[] {
  return part.scalar ? [rows] : [rows, part.floats];
}

function words(array: Float32Array): Uint32Array {
  return new Uint32Array(array.buffer, array.byteOffset, array.length);
}

/** One part of all rows. */
export function takePart(rows: Float32Array, width: number, part: RowPart): Float32Array {
  if (part.floats === width) return rows;
  const count = rows.length / width;
  const result = new Float32Array(count * part.floats);
  const from = words(rows);
  const to = words(result);
  let at = 0;
  for (let row = 0; row < count; row++) {
    const start = row * width + part.offset;
    for (let x = 0; x < part.floats; x++) to[at++] = from[start + x]!;
  }
  return result;
}

/** The inverse of `takePart`: puts one part into all rows. */
export function putPart(rows: Float32Array, width: number, part: RowPart, values: Float32Array): void {
  const count = rows.length / width;
  const from = words(values);
  const to = words(rows);
  let at = 0;
  for (let row = 0; row < count; row++) {
    const start = row * width + part.offset;
    for (let x = 0; x < part.floats; x++) to[start + x] = from[at++]!;
  }
}
