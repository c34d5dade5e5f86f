/**
 * Batches as bytes: their arrays one after the other, those of 8 bytes before those of 4, so that each begins
 * where its numbers may lie. A program is told the shape once, and of each batch the numbers that vary.
 */
import type { Batch } from '../../data/batch.js';
import type { LineBatch } from '../../data/line-bytes.js';
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

/** Arrays of a batch in their order, and its rows with the values of each column that has several. */
export interface PackedBatch {
  counts: readonly number[];
  arrays: readonly ArrayBufferView[];
}

/** @param shape undefined: batches of lines */
export function packed(batch: Batch, shape: BatchShape | undefined): PackedBatch {
  if (!shape) {
    const { size, lines } = batch as LineBatch;
    return { counts: [size, lines.length], arrays: [lines] };
  }
  const { size, labels, targets, dense, weights, times, columns = [] } = batch;
  const single = columns.filter((_, index) => !shape.sparse[index]!.multi);
  const several = columns.filter((_, index) => shape.sparse[index]!.multi);
  const arrays: ArrayBufferView[] = [...single, ...several].map(({ keys }) => keys);
  if (times) arrays.push(times);
  arrays.push(targets ?? labels, dense);
  if (weights) arrays.push(weights);
  for (const column of several) {
    arrays.push(column.offsets);
    if (column.weights) arrays.push(column.weights);
  }
  return { counts: [size, ...several.map(({ keys }) => keys.length)], arrays };
}
