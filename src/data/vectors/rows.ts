/** Rows of pretrained embeddings under construction, and errors of a row in the words of a user. */
import { valueText } from '../../common/errors.js';
import { expectedOf, KeyMaker } from '../keys.js';
import { numberOf } from '../rows.js';
import type { SparseColumn } from '../schema.js';

/** Rows that follow each other in a file. */
export interface VectorBatch {
  keys: BigUint64Array;
  /** keys.length x dim */
  values: Float32Array;
}

export class VectorRows {
  count = 0;
  private readonly keys: BigUint64Array<ArrayBuffer>;
  private readonly words: Uint32Array;
  private readonly values: Float32Array;
  private readonly maker: KeyMaker;

  /** @param column whose values the keys are */
  constructor(
    private readonly column: SparseColumn,
    private readonly dim: number,
    readonly capacity: number,
  ) {
    this.keys = new BigUint64Array(capacity);
    this.words = new Uint32Array(this.keys.buffer);
    this.values = new Float32Array(capacity * dim);
    this.maker = new KeyMaker(column);
  }

  get full(): boolean {
    return this.count === this.capacity;
  }

  /** Adds a row; returns what is wrong with it, if something is. */
  add(key: unknown, values: ArrayLike<unknown>): string | undefined {
    const { dim, count } = this;
    if (key === undefined || key === null || key === '' || !this.maker.make(key)) {
      const there = key === undefined || key === null || key === '' ? 'nothing' : valueText(key);
      return `the key must be ${expectedOf(this.column, key)}, not ${there}`;
    }
    if (values.length !== dim) return `must have ${dim} values, as the table has, not ${values.length}`;
    for (let index = 0; index < dim; index++) {
      const value = values[index];
      const number = numberOf(value);
      if (!Number.isFinite(Math.fround(number)))
        return `value ${index + 1} must be a number that single precision can hold, not ${valueText(value)}`;
      this.values[count * dim + index] = number;
    }
    this.words[2 * count] = this.maker.low;
    this.words[2 * count + 1] = this.maker.high;
    this.count += 1;
    return undefined;
  }

  /** The rows that were added. No row is added afterwards. */
  finish(): VectorBatch {
    return {
      keys: this.keys.subarray(0, this.count),
      values: this.values.subarray(0, this.count * this.dim),
    };
  }
}
