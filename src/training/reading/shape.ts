/**
 * Batches as bytes: their arrays one after the other, each at a multiple of 8 bytes. Those whose size is that
 * of the batch come first, in the order in which SchemaRows makes them, so that they may be made where they
 * go. A program is told the shape once, and of each batch the numbers that vary.
 */
import { invariant } from '../../common/errors.js';
import type { Batch } from '../../data/batch.js';
import type { LineBatch } from '../../data/line-bytes.js';
import { ARRAY_ALIGNMENT } from '../../data/rows.js';
import { denseWidth, type Schema } from '../../data/schema.js';

/** A sparse column. Of one with a single value the keys of all rows are there, and nothing else. */
interface ColumnShape {
  name: string;
  multi: boolean;
  weighted: boolean;
}

/** The part that the arrays of all batches have in common; the Python package reads it. */
export interface BatchShape {
  labels: number;
  width: number;
  sparse: readonly ColumnShape[];
  weight: boolean;
  time: boolean;
}

export function shapeOf(schema: Schema): BatchShape {
  const { labels, sparse, weight, time } = schema;
  return {
    labels: labels.length,
    width: denseWidth(schema),
    sparse: sparse.map(({ name, multi, weights }) => ({ name, multi, weighted: weights !== undefined })),
    weight: weight !== undefined,
    time: time !== undefined,
  };
}

/** Numbers that are sent as integers of 8 bytes. */
class WideNumbers {
  constructor(readonly numbers: Uint32Array) {}

  get byteLength(): number {
    return 8 * this.numbers.length;
  }
}

type PackedArray = BigUint64Array | Float64Array | Float32Array | Uint8Array | WideNumbers;

/** Arrays of a batch in their order, and its rows with the values of each column that has several. */
export interface PackedBatch {
  counts: readonly number[];
  arrays: readonly PackedArray[];
}

/** @param shape undefined: batches of lines */
export function packed(batch: Batch, shape: BatchShape | undefined): PackedBatch {
  if (!shape) {
    const { size, lines } = batch as LineBatch;
    return { counts: [size, lines.length], arrays: [lines] };
  }
  const { size, labels, targets, dense, weights, times, columns = [] } = batch;
  const several = columns.filter((_, index) => shape.sparse[index]!.multi);
  const arrays: PackedArray[] = [];
  for (const [index, { keys }] of columns.entries()) if (!shape.sparse[index]!.multi) arrays.push(keys);
  if (times) arrays.push(times);
  arrays.push(targets ?? labels, dense);
  if (weights) arrays.push(weights);
  for (const column of several) {
    arrays.push(column.keys, new WideNumbers(column.offsets));
    if (column.weights) arrays.push(column.weights);
  }
  return { counts: [size, ...several.map(({ keys }) => keys.length)], arrays };
}

const padded = (bytes: number) => Math.ceil(bytes / ARRAY_ALIGNMENT) * ARRAY_ALIGNMENT;

/** Bytes of a batch. */
export function packedBytes({ arrays }: PackedBatch): number {
  return arrays.reduce((sum, { byteLength }) => sum + padded(byteLength), 0);
}

/** Writes the arrays of a batch from a byte of a room on, but for those that are there already. */
export function write({ arrays }: PackedBatch, room: Uint8Array, from: number): void {
  let at = from;
  for (const array of arrays) {
    if (array instanceof WideNumbers) widen(array.numbers, room, at);
    else if (array.buffer !== room.buffer)
      room.set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength), at);
    else {
      const isThere = array.length === 0 || array.byteOffset === room.byteOffset + at;
      invariant(isThere, 'an array lies where another one goes');
    }
    at += padded(array.byteLength);
  }
}

function widen(numbers: Uint32Array, room: Uint8Array, at: number): void {
  const words = new Uint32Array(room.buffer, room.byteOffset + at, 2 * numbers.length);
  for (let index = 0; index < numbers.length; index++) {
    words[2 * index] = numbers[index]!;
    words[2 * index + 1] = 0;
  }
}

/** The same batch without memory that is a room's. */
export function apart({ counts, arrays }: PackedBatch, room: Uint8Array): PackedBatch {
  const isThere = (array: PackedArray) => !(array instanceof WideNumbers) && array.buffer === room.buffer;
  return { counts, arrays: arrays.map((array) => (isThere(array) ? (array as Uint8Array).slice() : array)) };
}
