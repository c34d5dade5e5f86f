/**
 * The Criteo layout, which is read without a schema: one row per line, 40 tab-separated columns without a
 * header: the label (0 or 1), I1..I13 (integers, may be empty), C1..C26 (up to 8 hexadecimal digits, may be
 * empty).
 */
import { invariant } from '../common/errors.js';
import { loadNative } from '../engine/native.js';
import { LINE_STATE } from '../engine/native-data.js';
import type { Batch, SparseRows } from './batch.js';
import { bad } from './bytes.js';
import { lineFormat } from './line-format.js';
import type { TakenLines } from './lines.js';
import { finishLogarithms, logarithms } from './logarithms.js';
import { type DataReader, readerOf } from './reader.js';

/** Number of integer fields and of category fields of a row. */
export const DENSE_FIELDS = 13;
export const CATEGORY_FIELDS = 26;

const COLUMNS = 1 + DENSE_FIELDS + CATEGORY_FIELDS;

/** Key of a value of category column 0..25. */
export function categoryKey(column: number, value: number): bigint {
  return (BigInt(column + 1) << 32n) | BigInt(value);
}

/**
 * Key of "no value" in category column 0..25: bit 63 set and the value bits zero. No real value has bit 63,
 * so missing is learned as a value of its own and never meets the value 00000000.
 */
export function missingKey(column: number): bigint {
  return (1n << 63n) | (BigInt(column + 1) << 32n);
}

/** Every value of a row is written, so nothing has to be zero before. */
const unzeroed = (bytes: number) => Buffer.allocUnsafeSlow(bytes).buffer as ArrayBuffer;

/** A batch under construction. */
export class CriteoRows implements SparseRows {
  private readonly labels: Float32Array;
  private readonly dense: Float32Array;
  private readonly keys: BigUint64Array;
  private readonly state = new Uint32Array(LINE_STATE.counts);

  constructor(readonly capacity: number) {
    this.labels = new Float32Array(capacity);
    this.dense = new Float32Array(unzeroed(4 * capacity * DENSE_FIELDS));
    this.keys = new BigUint64Array(unzeroed(8 * capacity * CATEGORY_FIELDS));
    this.state[LINE_STATE.capacity] = capacity;
  }

  get size(): number {
    return this.state[LINE_STATE.rows]!;
  }

  /** Parses lines of data[from..) that begin before `until`, up to one that is wrong or a full batch. */
  addAll(data: Uint8Array, from: number, until: number): TakenLines {
    const { state, labels, dense, keys } = this;
    loadNative().parseCriteo(
      data,
      from,
      until,
      state,
      labels,
      dense,
      keys,
      ...logarithms(DENSE_FIELDS, this.capacity),
    );
    finishLogarithms(dense, state[LINE_STATE.late]!);
    return { at: state[LINE_STATE.at]!, lines: state[LINE_STATE.lines]! };
  }

  finish(): Batch {
    const { size, labels, dense, keys } = this;
    if (size === this.capacity) return { size, labels, dense, keys };
    return {
      size,
      labels: labels.slice(0, size),
      dense: dense.slice(0, size * DENSE_FIELDS),
      keys: keys.slice(0, size * CATEGORY_FIELDS),
    };
  }
}

const FORMAT = lineFormat((file) => ({
  header: false,
  addAll: (rows: CriteoRows, data, from, until) => rows.addAll(data, from, until),
  // The addon takes every line that is right.
  add: () => false,
  explain: (...where) => explain(file, ...where),
}));

const LABEL = /^[01]$/;
/** More digits do not fit a double exactly. */
const INTEGER = /^(-?\d{1,15})?$/;
const CATEGORY = /^[\da-fA-F]{0,8}$/;

const patternOf = (index: number) => (index === 0 ? LABEL : index <= DENSE_FIELDS ? INTEGER : CATEGORY);

/** The error of a line that the addon refused. */
function explain(file: string, line: number, data: Buffer, start: number, end: number) {
  const fields = data.toString('latin1', start, end).split('\t');
  if (fields.length !== COLUMNS) {
    const column = fields.length < COLUMNS ? end - start + 1 : fields.slice(0, COLUMNS).join('\t').length + 1;
    return bad(`${file}:${line}:${column}: ${fields.length} columns instead of ${COLUMNS}`);
  }
  const index = fields.findIndex((field, each) => !patternOf(each).test(field));
  invariant(index >= 0, 'a line that is refused has a wrong column', { file, line });
  const column = fields.slice(0, index).reduce((sum, { length }) => sum + length + 1, 1);
  const text = JSON.stringify(fields[index]!.slice(0, 24));
  const place = `${file}:${line}:${column}`;
  if (index === 0) return bad(`${place}: the label must be 0 or 1, not ${text}`);
  if (index <= DENSE_FIELDS) return bad(`${place}: I${index} must be an integer or empty, not ${text}`);
  return bad(`${place}: C${index - DENSE_FIELDS} must be up to 8 hexadecimal digits or empty, not ${text}`);
}

/** Reads every file, whatever its name, as lines of the layout. Places are `file:line:column`, in bytes. */
export const criteo: DataReader = readerOf({
  formatOf: () => FORMAT,
  grows: () => true,
  begin: (capacity) => new CriteoRows(capacity),
});
