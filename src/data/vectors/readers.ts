/**
 * Readers of pretrained embeddings, one per format: a key and the values of its row. Where a file holds an
 * array of rows (safetensors, npy), the keys are another array of integers, or else the numbers of the rows,
 * which go on from file to file.
 * Where it holds columns (CSV, TSV, parquet), one of them has the keys, and the others the values: each a
 * number or a list.
 */
import { KintsugiError } from '../../common/errors.js';
import { bad, chunks } from '../bytes.js';
import { cellsOf, headerNames } from '../delimited.js';
import { isList, textOfBytes } from '../keys.js';
import { blankLine, endOfLine } from '../lines.js';
import { openParquet } from '../parquet.js';
import type { SparseColumn } from '../schema.js';
import {
  type ArrayInFile,
  isFloat,
  isInteger,
  npyArray,
  readFloats,
  readIntegers,
  safetensorsArrays,
} from './arrays.js';
import { type VectorBatch, VectorRows } from './rows.js';

/** Most bytes of a line, without its newline. A line may have 65,536 values of any usual length. */
const MAX_LINE_BYTES = 4 * 1024 * 1024;
const DEFAULT_KEYS = 'key';
/** Separates the values of a cell that is text. */
const SEPARATOR = '|';

export interface VectorOptions {
  /** Values of a row */
  dim: number;
  /** Whose values the keys are */
  column: SparseColumn;
  /** The tensor, the npy file or the column with the keys */
  keys?: string | undefined;
  /** The tensor, or the columns with commas between, with the values */
  values?: string | undefined;
  /** Rows of a batch; the last one of a file may have fewer */
  batch: number;
  /** The place of the file among others that are read one after the other. Undefined: there are none */
  among?: ArrayPlace | undefined;
  /** The first of files that are read one after the other notes its columns here. Undefined: it is alone */
  order?: ValueOrder | undefined;
}

/** Columns of the first of several files whose values nobody has named. */
export interface ValueOrder {
  first?: { file: string; columns: readonly string[] };
}

/** The place of an array among those of several files. */
export interface ArrayPlace {
  /** Rows of the arrays before it */
  first: number;
  /** Rows of all of them */
  all: number;
}

/** The names in files that options choose. */
export type VectorChoice = Pick<VectorOptions, 'keys' | 'values'>;

export type VectorBatches = AsyncGenerator<VectorBatch, void, undefined>;

/**
 * The rows of a file of one format.
 * @param isSameFormat whether the name of another file says the same format
 * @throws BAD_DATA with file, row and what was expected; BAD_ARGUMENT
 */
export type VectorReader = (
  file: string,
  options: VectorOptions,
  isSameFormat: (other: string) => boolean,
) => VectorBatches;

// ---- arrays

/** The array with the rows of a file, and the one with their keys. */
interface VectorArrays {
  values: ArrayInFile;
  /** undefined: the keys are the numbers of the rows */
  keys: ArrayInFile | undefined;
  /** The keys are those of the arrays of all files. */
  isShared?: boolean;
}

const shapeText = ({ dtype, shape }: ArrayInFile) => `${dtype} of ${shape.join(' x ') || 'no dimensions'}`;

async function* readArrays({ values, keys, isShared }: VectorArrays, options: VectorOptions): VectorBatches {
  const { dim, column, batch } = options;
  const [count = 0, width] = values.shape;
  const alone = { first: 0, all: count };
  const { first: begin, all } = keys && !isShared ? alone : (options.among ?? alone);
  if (values.shape.length !== 2 || !isFloat(values))
    throw bad(`${values.where}: must be rows of floats, not ${shapeText(values)}`);
  if (width !== dim)
    throw bad(`${values.where}: must have ${dim} values in a row, as the table has, not ${width}`);
  if (keys && (keys.shape.length !== 1 || !isInteger(keys)))
    throw bad(`${keys.where}: must be a list of integers, not ${shapeText(keys)}`);
  if (keys && keys.shape[0] !== all) {
    const each = all === count ? 'one for each row' : 'one for each row of all files';
    throw bad(`${keys.where}: must have ${all} keys, ${each}, not ${keys.shape[0]}`);
  }
  for (let first = 0; first < count; first += batch) {
    const end = Math.min(count, first + batch);
    const floats = await readFloats(values, first * dim, end * dim);
    const names = keys && (await readIntegers(keys, begin + first, begin + end));
    const rows = new VectorRows(column, dim, end - first);
    for (let row = 0; row < end - first; row++) {
      const key = names ? names[row] : begin + first + row;
      const problem = rows.add(key, floats.subarray(row * dim, (row + 1) * dim));
      if (problem) throw bad(`${values.where}[${first + row}]: ${problem}`);
    }
    yield rows.finish();
  }
}

export async function* readNpyVectors(
  file: string,
  options: VectorOptions,
  isSameFormat: (other: string) => boolean,
): VectorBatches {
  const { keys, values } = options;
  if (values !== undefined)
    throw new KintsugiError('BAD_ARGUMENT', `${file} has one array: leave --values out`);
  if (keys !== undefined && !isSameFormat(keys))
    throw new KintsugiError('BAD_ARGUMENT', `the keys of ${file} must be in another npy file, not "${keys}"`);
  const rows = await npyArray(file);
  const names = keys === undefined ? undefined : await npyArray(keys);
  yield* readArrays({ values: rows, keys: names, isShared: true }, options);
}

/** Rows of the array of a file. @throws BAD_DATA */
export async function npyRows(file: string): Promise<number> {
  return (await npyArray(file)).shape[0] ?? 0;
}

export async function* readSafetensorsVectors(file: string, options: VectorOptions): VectorBatches {
  yield* readArrays(await tensorsOf(file, options), options);
}

/** Rows of the tensor with the values. @throws BAD_DATA */
export async function safetensorsRows(file: string, options: VectorChoice): Promise<number> {
  return (await tensorsOf(file, options)).values.shape[0] ?? 0;
}

async function tensorsOf(file: string, { keys, values }: VectorChoice): Promise<VectorArrays> {
  const tensors = await safetensorsArrays(file);
  const named = (name: string) => {
    const tensor = tensors.get(name);
    if (tensor) return tensor;
    throw bad(`${file}: must have a tensor "${name}", and has ${[...tensors.keys()].join(', ') || 'none'}`);
  };
  if (values !== undefined)
    return { values: named(values), keys: keys === undefined ? undefined : named(keys) };
  const possible = [...tensors].filter(
    ([name, each]) => name !== keys && each.shape.length === 2 && isFloat(each),
  );
  const [only] = possible;
  if (!only || possible.length > 1) {
    const there = [...tensors].map(([name, each]) => `${name} (${shapeText(each)})`).join(', ') || 'none';
    throw bad(`${file}: must have one tensor with rows of floats, or --values must name it; it has ${there}`);
  }
  return { values: only[1], keys: keys === undefined ? undefined : named(keys) };
}

// ---- columns

/** Places of the column with the keys and of those with the values. */
interface VectorPlaces {
  key: string;
  values: readonly string[];
}

function placesOf(
  file: string,
  header: readonly string[],
  { keys = DEFAULT_KEYS, values, order = {} }: VectorOptions,
): VectorPlaces {
  const wanted = values?.split(',') ?? header.filter((name) => name !== keys);
  const missing = [keys, ...wanted].find((name) => !header.includes(name));
  if (missing !== undefined) {
    const all = header.join(', ');
    const there = all.length > 200 ? `${all.slice(0, 200)}...` : all;
    throw bad(`${file}: must have a column "${missing}", and has ${there}`);
  }
  if (wanted.length === 0) throw bad(`${file}: must have columns with values beside "${keys}"`);
  const twice = wanted.find((name, index) => wanted.indexOf(name) !== index);
  if (twice !== undefined) throw bad(`${file}: the column "${twice}" is named more than once`);
  order.first ??= { file, columns: wanted };
  // A value is what its place says, so files with other orders of columns would give other rows.
  const { columns } = order.first;
  const moved = wanted.some((name, index) => columns.includes(name) && columns[index] !== name);
  if (values === undefined && moved)
    throw bad(
      `${file}: has the values ${wanted.join(', ')}, and ${order.first.file} has ${columns.join(', ')}: ` +
        '--values names them in one order',
    );
  return { key: keys, values: wanted };
}

/** The values of some cells: each has one value or a list. */
function valuesOf(cells: readonly unknown[]): readonly unknown[] | ArrayLike<unknown> {
  const [first] = cells;
  if (cells.length === 1 && isList(first)) return first;
  return cells.flatMap((cell) => {
    const text = cell instanceof Uint8Array ? textOfBytes(cell) : cell;
    if (typeof text === 'string') return text.split(SEPARATOR);
    return isList(cell) ? Array.from(cell) : [cell];
  });
}

export async function* readParquetVectors(file: string, options: VectorOptions): VectorBatches {
  const { dim, column, batch } = options;
  const { columns, read } = await openParquet(file);
  const { key, values } = placesOf(file, columns, options);
  let rows = new VectorRows(column, dim, batch);
  for await (const { first, objects } of read([key, ...values])) {
    for (const [index, object] of objects.entries()) {
      const problem = rows.add(object[key], valuesOf(values.map((name) => object[name])));
      if (problem) throw bad(`${file}: row ${first + index + 1}: ${problem}`);
      if (!rows.full) continue;
      yield rows.finish();
      rows = new VectorRows(column, dim, batch);
    }
  }
  if (rows.count > 0) yield rows.finish();
}

/** The lines of a file, without their ends. */
async function* linesOf(file: string): AsyncGenerator<Buffer, void, undefined> {
  let rest: Buffer = Buffer.alloc(0);
  let line = 1;
  const tooLong = () => bad(`${file}:${line}: a line of more than ${MAX_LINE_BYTES} bytes`);
  for await (const chunk of chunks(file)) {
    const data = rest.length > 0 ? Buffer.concat([rest, chunk]) : chunk;
    let start = 0;
    for (let end = data.indexOf(10); end >= 0; end = data.indexOf(10, start)) {
      if (end - start > MAX_LINE_BYTES) throw tooLong();
      yield data.subarray(start, endOfLine(data, start, end));
      start = end + 1;
      line += 1;
    }
    rest = Buffer.from(data.subarray(start));
    if (rest.length > MAX_LINE_BYTES) throw tooLong();
  }
  if (rest.length > 0) yield rest.subarray(0, endOfLine(rest, 0, rest.length));
}

export async function* readDelimitedVectors(
  file: string,
  delimiter: string,
  options: VectorOptions,
): VectorBatches {
  const { dim, column, batch } = options;
  let header: readonly string[] | undefined;
  let key = 0;
  let values: number[] = [];
  let line = 0;
  /** Number of the first blank line after which no other one has come */
  let blank: number | undefined;
  let rows = new VectorRows(column, dim, batch);
  for await (const text of linesOf(file)) {
    line += 1;
    if (!header) {
      const names = headerNames(file, text.toString('utf8'), delimiter);
      header = names;
      const places = placesOf(`${file}:1`, header, options);
      key = header.indexOf(places.key);
      values = places.values.map((name) => names.indexOf(name));
      continue;
    }
    if (text.length === 0) blank ??= line;
    if (text.length === 0) continue;
    if (blank !== undefined) throw blankLine(file, blank);
    const fields = cellsOf(text, delimiter);
    if (typeof fields === 'string') throw bad(`${file}:${line}: ${fields}`);
    if (fields.length !== header.length)
      throw bad(`${file}:${line}: ${fields.length} columns instead of ${header.length}`);
    const problem = rows.add(fields[key], valuesOf(values.map((place) => fields[place])));
    if (problem) throw bad(`${file}:${line}: ${problem}`);
    if (!rows.full) continue;
    yield rows.finish();
    rows = new VectorRows(column, dim, batch);
  }
  if (!header) throw bad(`${file}:1: must be a header with the names of the columns`);
  if (rows.count > 0) yield rows.finish();
}
