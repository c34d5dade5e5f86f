/**
 * From the rows of a batch's values to the embeddings that a model sees, and back. A sample has one embedding
 * for each column that is pooled or has one value, and `limit` of them for a sequence (pooling `none`).
 * Embeddings behind the end of a sequence are zero, and so are all of a sample without values.
 */

import { invariant } from '../../common/errors.js';
import type { Batch, SparseValues } from '../../data/batch.js';
import type { Schema, SparseColumn } from '../../data/schema.js';

/** Embeddings that a column gives a sample. */
function placesIn({ pooling, limit, multi }: SparseColumn): number {
  return multi && pooling === 'none' ? limit : 1;
}

/** A part of the rows of one table: those of one column. */
interface PooledPart {
  column: SparseColumn;
  values: SparseValues;
  table: number;
  /** Place of the first row of the column among the batch's rows of the table */
  from: number;
  /** Index of the first embedding of the column in a sample */
  place: number;
}

export class BagPooling {
  /** Embeddings of a sample */
  readonly embeddings: number;
  private readonly places: number[] = [];
  private readonly tables: number[];

  constructor(
    private readonly schema: Schema,
    private readonly dim: number,
  ) {
    let next = 0;
    for (const column of schema.sparse) {
      this.places.push(next);
      next += placesIn(column);
    }
    this.embeddings = next;
    this.tables = schema.sparse.map(({ table }) => schema.tables.findIndex(({ name }) => name === table));
  }

  /** Which embeddings of a sample are those of columns, ascending. */
  placesOf(columns: readonly string[]): number[] {
    return this.schema.sparse.flatMap((column, index) =>
      columns.includes(column.column)
        ? Array.from({ length: placesIn(column) }, (_, at) => this.places[index]! + at)
        : [],
    );
  }

  /** The keys of each table: those of its columns, one column after the other. */
  keys({ columns }: Batch): BigUint64Array[] {
    invariant(columns?.length === this.schema.sparse.length, 'a batch has other columns than the schema');
    return this.schema.tables.map((_, table) => {
      const own = columns.filter((_, index) => this.tables[index] === table);
      const all = new BigUint64Array(own.reduce((sum, { keys }) => sum + keys.length, 0));
      let at = 0;
      for (const { keys } of own) {
        all.set(keys, at);
        at += keys.length;
      }
      return all;
    });
  }

  private parts({ columns }: Batch): PooledPart[] {
    const ends = this.schema.tables.map(() => 0);
    return columns!.map((values, index) => {
      const table = this.tables[index]!;
      const from = ends[table]!;
      ends[table] = from + values.keys.length;
      return { column: this.schema.sparse[index]!, values, table, from, place: this.places[index]! };
    });
  }

  /** `rows[t]`: a row for each key of table t. Writes B x embeddings x dim values into `target`. */
  forward(batch: Batch, rows: readonly Float32Array[], target: Float32Array): void {
    target.fill(0);
    this.each(batch, (table, row, at, weight) => {
      const source = rows[table]!;
      for (let i = 0; i < this.dim; i++) target[at + i]! += weight * source[row + i]!;
    });
  }

  /** The gradient of each row that `forward` was given, from that of the embeddings. */
  backward(batch: Batch, gradient: Float32Array, rows: readonly Float32Array[]): Float32Array[] {
    const results = rows.map(({ length }) => new Float32Array(length));
    this.each(batch, (table, row, at, weight) => {
      const result = results[table]!;
      for (let i = 0; i < this.dim; i++) result[row + i] = weight * gradient[at + i]!;
    });
    return results;
  }

  /** Each value once: where its row is in the rows of its table, its embedding, and its weight there. */
  private each(batch: Batch, visit: (table: number, row: number, at: number, weight: number) => void): void {
    const { dim, embeddings } = this;
    for (const { column, values, table, from, place } of this.parts(batch)) {
      const { offsets, weights } = values;
      const sequence = placesIn(column) > 1;
      for (let sample = 0; sample < batch.size; sample++) {
        const [begin, end] = [offsets[sample]!, offsets[sample + 1]!];
        const share = column.multi && column.pooling === 'mean' ? shareOf(begin, end, weights) : 1;
        for (let index = begin; index < end; index++) {
          const at = (sample * embeddings + place + (sequence ? index - begin : 0)) * dim;
          visit(table, (from + index) * dim, at, share * (weights ? weights[index]! : 1));
        }
      }
    }
  }
}

/** Factor that makes a mean of a weighted sum; 0 if the weights add up to 0. */
function shareOf(begin: number, end: number, weights: Float32Array | undefined): number {
  if (!weights) return 1 / (end - begin);
  let sum = 0;
  for (let index = begin; index < end; index++) sum += weights[index]!;
  return sum > 0 ? 1 / sum : 0;
}
