/**
 * Rows of a schema. Every format hands over the cells of a sample as values; here they become numbers and
 * keys, so the same data in two formats are the same batches. A cell is text, bytes, a number, a boolean, a
 * bigint or a list of them. Nothing, null and the empty text are a missing value. NaN is none: it is wrong
 * in every format.
 */
import { valueText } from '../common/errors.js';
import { loadNative } from '../engine/native.js';
import {
  type BatchArrays,
  LINE_STATE,
  type LineState,
  LineStop,
  type Logarithms,
  type NativeColumns,
  type NativeLineParser,
  NO_COLUMN,
} from '../engine/native-data.js';
import type { Batch, SparseRows, SparseValues } from './batch.js';
import { expectedOf, isList, KeyMaker, textOfBytes } from './keys.js';
import type { TakenLines } from './lines.js';
import { finishLogarithms, logarithms } from './logarithms.js';
import type { BatchMemory } from './reader.js';
import { columnsOf, type DenseColumn, denseWidth, type Schema, type SparseColumn } from './schema.js';

/** A cell that is not what its column must be. */
export interface RowProblem {
  column: string;
  expected: string;
  found: unknown;
}

/** A problem in one line, without its place. */
export function problemText({ column, expected, found }: RowProblem): string {
  return `column "${column}" must be ${expected}, not ${valueText(found)}`;
}

const isMissing = (cell: unknown) =>
  cell === undefined || cell === null || cell === '' || (cell instanceof Uint8Array && cell.length === 0);

/** Largest number that a row takes: a larger one does not fit a float32. */
const MAX_FLOAT = 3.4e38;
/** Decimal notation; what else `Number` takes (0x10, Infinity, blanks) is a mistake in a data file. */
const DECIMAL = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;

/** Labels as words: `True` is how pandas writes it. */
const TRUTH = new Map([
  ['true', 1],
  ['True', 1],
  ['false', 0],
  ['False', 0],
]);

/** A cell as a number; NaN for anything but a finite number. */
export function numberOf(cell: unknown): number {
  if (typeof cell === 'number') return Number.isFinite(cell) ? cell : Number.NaN;
  if (typeof cell === 'string') return DECIMAL.test(cell) ? numberOf(Number(cell)) : Number.NaN;
  if (typeof cell === 'bigint' || typeof cell === 'boolean') return Number(cell);
  return cell instanceof Uint8Array ? numberOf(textOfBytes(cell)) : Number.NaN;
}

const NO_WEIGHTS = new Float32Array(0);
const NO_TIMES = new Float64Array(0);
const NO_KEYS = new BigUint64Array(0);
const NO_WORDS = new Uint32Array(0);

/** Arrays of a batch begin at multiples of these bytes. */
export const ARRAY_ALIGNMENT = 8;

/** Arrays one after the other in the bytes of a place. Without a place they are new. */
class ArrayPlaces {
  private at: number;

  constructor(private readonly place: Uint8Array | undefined) {
    this.at = place?.byteOffset ?? 0;
  }

  take<A>(kind: ArrayKind<A>, count: number): A {
    if (!this.place) return new kind(count);
    const array = new kind(this.place.buffer as ArrayBuffer, this.at, count);
    this.at += bytesOf(kind, count);
    return array;
  }
}

interface ArrayKind<A> {
  readonly BYTES_PER_ELEMENT: number;
  new (count: number): A;
  new (buffer: ArrayBuffer, from: number, count: number): A;
}

/** Bytes of an array, with what follows it up to the next one. */
function bytesOf({ BYTES_PER_ELEMENT }: ArrayKind<unknown>, count: number): number {
  return Math.ceil((BYTES_PER_ELEMENT * count) / ARRAY_ALIGNMENT) * ARRAY_ALIGNMENT;
}

/** Keys of one column, and their weights. */
class Bag {
  readonly maker: KeyMaker;
  private keys: BigUint64Array = NO_KEYS;
  private words: Uint32Array = NO_WORDS;
  private weights: Float32Array | undefined;
  private readonly offsets: Uint32Array;
  /** Number of keys so far */
  count = 0;

  constructor(
    readonly column: SparseColumn,
    capacity: number,
  ) {
    this.maker = new KeyMaker(column);
    if (column.multi) this.hold(new BigUint64Array(capacity));
    this.weights = column.weights === undefined ? undefined : new Float32Array(capacity);
    this.offsets = new Uint32Array(capacity + 1);
  }

  /** Keys go there. */
  hold(keys: BigUint64Array): void {
    this.keys = keys;
    this.words = new Uint32Array(keys.buffer, keys.byteOffset, 2 * keys.length);
  }

  /** The key that `maker` has made. */
  push(weight: number): void {
    if (2 * this.count === this.words.length) this.grow();
    this.words[2 * this.count] = this.maker.low;
    this.words[2 * this.count + 1] = this.maker.high;
    if (this.weights) this.weights[this.count] = weight;
    this.count += 1;
  }

  grow(): void {
    const keys = new BigUint64Array(2 * this.keys.length);
    keys.set(this.keys);
    this.hold(keys);
    if (!this.weights) return;
    const weights = new Float32Array(keys.length);
    weights.set(this.weights);
    this.weights = weights;
  }

  end(row: number): void {
    this.offsets[row + 1] = this.count;
  }

  /** Where the parser of the addon writes. */
  get arrays(): readonly [BigUint64Array, Uint32Array, Float32Array | undefined] {
    return [this.keys, this.offsets, this.weights];
  }

  finish(size: number): SparseValues {
    const keys = upTo(this.keys, this.count);
    const offsets = upTo(this.offsets, size + 1);
    return this.weights ? { keys, offsets, weights: upTo(this.weights, this.count) } : { keys, offsets };
  }
}

/** The first `count` floats. Most batches are full, and then nothing is copied. */
function upTo<A extends { length: number; slice(from: number, to: number): A }>(array: A, count: number): A {
  return array.length === count ? array : array.slice(0, count);
}

/** The places of the columns of a schema in a sample's cells (`columnsOf`); -1: the schema has none. */
class RowPlan {
  readonly width: number;
  readonly labels: readonly number[];
  readonly dense: readonly number[];
  readonly sparse: readonly number[];
  /** ArrayPlaces of the weights of the sparse columns */
  readonly weights: readonly number[];
  readonly weight: number;
  readonly time: number;
  /** Sparse columns with one value */
  readonly singles: number;

  constructor(schema: Schema) {
    const columns = columnsOf(schema);
    const at = (column: string | undefined) => (column === undefined ? -1 : columns.indexOf(column));
    this.width = denseWidth(schema);
    this.labels = schema.labels.map(({ column }) => at(column));
    this.dense = schema.dense.map(({ column }) => at(column));
    this.sparse = schema.sparse.map(({ column }) => at(column));
    this.weights = schema.sparse.map(({ weights }) => at(weights));
    this.weight = at(schema.weight);
    this.time = at(schema.time);
    this.singles = schema.sparse.filter(({ multi }) => !multi).length;
  }
}

const plans = new WeakMap<Schema, RowPlan>();

function planOf(schema: Schema): RowPlan {
  const plan = plans.get(schema) ?? new RowPlan(schema);
  plans.set(schema, plan);
  return plan;
}

export class SchemaRows implements SparseRows {
  size = 0;
  private readonly plan: RowPlan;
  private readonly bags: Bag[];
  private targets: Float32Array = NO_WEIGHTS;
  private dense: Float32Array = NO_WEIGHTS;
  private weights: Float32Array | undefined;
  private times: Float64Array | undefined;
  /** Arrays are in given memory. */
  private isPlaced = false;

  constructor(
    private readonly schema: Schema,
    readonly capacity: number,
    memory?: BatchMemory,
  ) {
    this.plan = planOf(schema);
    this.bags = schema.sparse.map((column) => new Bag(column, capacity));
    this.hold(memory?.take(this.placeBytes));
  }

  /** The same, as an empty batch. */
  begun(memory: BatchMemory): this {
    const place = memory.take(this.placeBytes);
    if (place || this.isPlaced) this.hold(place);
    else this.dense.fill(0);
    this.size = 0;
    for (const bag of this.bags) bag.count = 0;
    return this;
  }

  /** Bytes of all arrays whose size depends on nothing but the capacity. */
  private get placeBytes(): number {
    const { schema, plan, capacity } = this;
    return (
      plan.singles * bytesOf(BigUint64Array, capacity) +
      (schema.time === undefined ? 0 : bytesOf(Float64Array, capacity)) +
      bytesOf(Float32Array, capacity * plan.labels.length) +
      bytesOf(Float32Array, capacity * plan.width) +
      (schema.weight === undefined ? 0 : bytesOf(Float32Array, capacity))
    );
  }

  /** In this order they are sent, too: src/training/reading/shape.ts. */
  private hold(place: Uint8Array | undefined): void {
    const { schema, plan, capacity } = this;
    const places = new ArrayPlaces(place);
    for (const bag of this.bags) if (!bag.column.multi) bag.hold(places.take(BigUint64Array, capacity));
    this.times = schema.time === undefined ? undefined : places.take(Float64Array, capacity);
    this.targets = places.take(Float32Array, capacity * plan.labels.length);
    this.dense = places.take(Float32Array, capacity * plan.width);
    this.weights = schema.weight === undefined ? undefined : places.take(Float32Array, capacity);
    // Values that are missing are not written.
    if (place) this.dense.fill(0);
    this.isPlaced = place !== undefined;
  }

  /**
   * Adds a sample. `cells` are those of `columnsOf(schema)`, in this order. After a problem nothing more may
   * be added.
   */
  add(cells: readonly unknown[]): RowProblem | undefined {
    const { schema, plan, size, bags } = this;
    for (let index = 0; index < plan.labels.length; index++) {
      const { column, atLeast, any } = schema.labels[index]!;
      const isNumber = any === true || atLeast !== undefined;
      const cell = cells[plan.labels[index]!];
      const value = isMissing(cell)
        ? Number.NaN
        : numberOf(typeof cell === 'string' ? (TRUTH.get(cell) ?? cell) : cell);
      if (Number.isNaN(value) || (any && Math.abs(value) > MAX_FLOAT))
        return { column, expected: isNumber ? 'a number' : '0 or 1', found: cell };
      if (!isNumber && value !== 0 && value !== 1) return { column, expected: '0 or 1', found: cell };
      const label = atLeast === undefined ? value : Number(value >= atLeast);
      this.targets[size * plan.labels.length + index] = label;
    }
    let at = size * plan.width;
    for (let index = 0; index < plan.dense.length; index++) {
      const column = schema.dense[index]!;
      const cell = cells[plan.dense[index]!];
      const value = isMissing(cell) ? undefined : numberOf(cell);
      if (Number.isNaN(value) || Math.abs(value ?? 0) > MAX_FLOAT)
        return { column: column.column, expected: 'a number or empty', found: cell };
      if (value !== undefined) writeDense(this.dense, at, column, value);
      at += column.width;
    }
    for (let index = 0; index < bags.length; index++) {
      const bag = bags[index]!;
      const weights = plan.weights[index]!;
      const problem = addValues(bag, cells[plan.sparse[index]!], weights < 0 ? undefined : cells[weights]);
      if (problem) return problem;
      bag.end(size);
    }
    const problem = this.addExtras(cells);
    if (!problem) this.size += 1;
    return problem;
  }

  /**
   * Parses lines of data[from..) that begin before `until`, up to a full batch or a line that the parser does
   * not take.
   */
  addAll(parser: NativeLineParser, data: Uint8Array, from: number, until: number): TakenLines {
    const native = loadNative();
    let [at, lines] = [from, 0];
    this.fill((state, ...arrays) => {
      native.parseLines(parser, data, at, until, state, ...arrays);
      at = state[LINE_STATE.at]!;
      lines += state[LINE_STATE.lines]!;
    });
    return { at, lines };
  }

  /**
   * Takes at most `most` rows of a query, up to a full batch or a row that the addon does not take. Returns
   * how many were taken.
   */
  addColumns(columns: NativeColumns, most: number): number {
    const before = this.size;
    this.fill((state, ...room) => {
      const left = most - (state[LINE_STATE.rows]! - before);
      loadNative().takeColumns(columns, left, state, ...room);
    });
    return this.size - before;
  }

  /** Lets a parser fill the batch, and gives it more room for keys when it asks for it. */
  private fill(parse: (state: LineState, ...arrays: [...BatchArrays, ...Logarithms]) => void): void {
    const { bags, dense, targets, weights = NO_WEIGHTS, times = NO_TIMES } = this;
    const state = new Uint32Array(LINE_STATE.counts + bags.length);
    state[LINE_STATE.rows] = this.size;
    state[LINE_STATE.capacity] = this.capacity;
    for (const [index, { count }] of bags.entries()) state[LINE_STATE.counts + index] = count;
    for (;;) {
      const lists = bags.map(({ arrays }) => arrays);
      const late = logarithms(this.plan.width, this.capacity);
      parse(state, targets, dense, weights, times, lists, ...late);
      finishLogarithms(dense, state[LINE_STATE.late]!);
      if (state[LINE_STATE.why] !== LineStop.ROOM) break;
      if (state[LINE_STATE.column] !== NO_COLUMN) bags[state[LINE_STATE.column]!]!.grow();
    }
    this.size = state[LINE_STATE.rows]!;
    for (const [index, bag] of bags.entries()) bag.count = state[LINE_STATE.counts + index]!;
  }

  private addExtras(cells: readonly unknown[]): RowProblem | undefined {
    const { schema, plan, size, weights, times } = this;
    if (weights) {
      const cell = cells[plan.weight];
      const value = numberOf(cell);
      if (!(value >= 0)) return { column: schema.weight!, expected: 'a number of at least 0', found: cell };
      weights[size] = value;
    }
    if (times) {
      const cell = cells[plan.time];
      const value = numberOf(cell);
      if (Number.isNaN(value)) return { column: schema.time!, expected: 'a number', found: cell };
      times[size] = value;
    }
    return undefined;
  }

  finish(): Batch {
    const { size, schema, weights, times } = this;
    const count = schema.labels.length;
    const targets = upTo(this.targets, size * count);
    return {
      size,
      labels: count === 1 ? targets : targets.filter((_, index) => index % count === 0),
      dense: upTo(this.dense, size * this.plan.width),
      keys: new BigUint64Array(0),
      columns: this.bags.map((bag) => bag.finish(size)),
      ...(count > 1 && { targets }),
      ...(weights && { weights: upTo(weights, size) }),
      ...(times && { times: upTo(times, size) }),
    };
  }
}

function writeDense(into: Float32Array, at: number, { transform }: DenseColumn, value: number): void {
  if (transform.kind === 'none') into[at] = value;
  else if (transform.kind === 'log1p') into[at] = Math.log1p(Math.max(0, value));
  else if (transform.kind === 'normalise') into[at] = (value - transform.mean) / transform.std;
  else into[at + transform.boundaries.filter((boundary) => value >= boundary).length] = 1;
}

/** The values of a cell: text is cut at the separator, and so are bytes. */
function listOf(cell: unknown, separator: string): ArrayLike<unknown> {
  if (isMissing(cell)) return [];
  if (isList(cell)) return cell;
  if (cell instanceof Uint8Array) return bytesCut(cell, Buffer.from(separator));
  return typeof cell === 'string' ? cell.split(separator) : [cell];
}

function bytesCut(cell: Uint8Array, separator: Uint8Array): Uint8Array[] {
  const whole = Buffer.from(cell.buffer, cell.byteOffset, cell.length);
  const parts: Uint8Array[] = [];
  let from = 0;
  for (let at = whole.indexOf(separator); at >= 0; at = whole.indexOf(separator, from)) {
    parts.push(whole.subarray(from, at));
    from = at + separator.length;
  }
  parts.push(whole.subarray(from));
  return parts;
}

function addValues(bag: Bag, cell: unknown, weights: unknown): RowProblem | undefined {
  const { column, maker } = bag;
  const { multi, limit, separator } = column;
  if (!multi) {
    if (isMissing(cell)) maker.missing();
    else if (!maker.make(cell))
      return { column: column.column, expected: `${expectedOf(column, cell)} or empty`, found: cell };
    bag.push(1);
    return undefined;
  }
  const values = listOf(cell, separator);
  const weightList = column.weights === undefined ? undefined : listOf(weights, separator);
  if (weightList && weightList.length !== values.length) {
    const expected = `${values.length} weights, as many as "${column.column}" has values`;
    return { column: column.weights!, expected, found: weights };
  }
  for (let index = Math.max(0, values.length - limit); index < values.length; index++) {
    if (isMissing(values[index]) || !maker.make(values[index])) {
      const expected = `a list of values, each ${expectedOf(column, values[index])}`;
      return { column: column.column, expected, found: values[index] };
    }
    const weight = weightList ? numberOf(weightList[index]) : 1;
    if (Number.isNaN(weight))
      return { column: column.weights!, expected: 'a list of numbers', found: weightList![index] };
    bag.push(weight);
  }
  return undefined;
}
