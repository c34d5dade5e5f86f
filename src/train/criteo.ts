/**
 * Streaming reader of the Criteo layout: one row per line, 40 tab-separated columns without a header: the
 * label (0 or 1), I1..I13 (integers, may be empty), C1..C26 (up to 8 hexadecimal digits, may be empty). Plain
 * files or .gz.
 *
 * The bytes of a chunk are parsed where they are: splitting into strings costs several times the parse. What
 * is wrong with a line is worked out only once a line has failed.
 */
import { createReadStream } from 'node:fs';
import { access, constants, stat } from 'node:fs/promises';
import { createGunzip } from 'node:zlib';
import { describe, KintsugiError } from '../errors.js';
import { type Batch, CATEGORY_FIELDS, DENSE_FIELDS } from './trainer.js';

const COLUMNS = 1 + DENSE_FIELDS + CATEGORY_FIELDS;
const READ_BYTES = 256 * 1024;
/** A line of the layout has at most about 500 bytes; what is longer is another kind of file. */
export const MAX_LINE_BYTES = 64 * 1024;
const TAB = 9;
const NEWLINE = 10;
const RETURN = 13;
const ZERO = 48;
const MINUS = 45;
/** More digits than this do not fit a double exactly. */
const MAX_DIGITS = 15;

const HEX = new Int8Array(256).fill(-1);
for (const [index, digit] of [...'0123456789abcdef'].entries()) {
  HEX[digit.charCodeAt(0)] = index;
  HEX[digit.toUpperCase().charCodeAt(0)] = index;
}

/** log1p of small integers, computed once: most integers of real files are small. */
const LOG1P = Float32Array.from({ length: 4096 }, (_, value) => Math.log1p(value));

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

export interface ReadOptions {
  /** Read one after the other, as if they were one file */
  files: readonly string[];
  /** Rows per batch; the last one may have fewer */
  batch: number;
}

function bad(message: string, cause?: unknown): KintsugiError {
  return new KintsugiError('BAD_DATA', message, cause === undefined ? undefined : { cause });
}

/**
 * Bytes of a file from `from` on, decompressed. Every failure of the file system or of gzip becomes BAD_DATA
 * with the file's name. What is compressed can only be read from its start: what comes before `from` is
 * thrown away.
 */
async function* chunks(file: string, from = 0, onRead = () => {}): AsyncGenerator<Buffer> {
  const packed = isPacked(file);
  const raw = createReadStream(file, { highWaterMark: READ_BYTES, start: packed ? 0 : from });
  const unzip = packed ? createGunzip({ chunkSize: READ_BYTES }) : undefined;
  if (unzip) {
    raw.on('error', (error) => unzip.destroy(error));
    raw.pipe(unzip);
  }
  try {
    let skip = packed ? from : 0;
    for await (const chunk of unzip ?? raw) {
      const bytes = chunk as Buffer;
      onRead();
      if (skip < bytes.length) yield skip > 0 ? bytes.subarray(skip) : bytes;
      skip = Math.max(0, skip - bytes.length);
    }
  } catch (error) {
    throw bad(`${file}: ${describe(error)}`, error);
  } finally {
    raw.destroy();
    unzip?.destroy();
  }
}

/** True for a compressed file: it can only be read from its start. */
export function isPacked(file: string): boolean {
  return file.endsWith('.gz');
}

/** Throws for a missing file at once, and not only when the files before it are done. */
async function checkFiles(files: readonly string[]): Promise<void> {
  if (files.length === 0) throw new KintsugiError('BAD_ARGUMENT', 'no data files were given');
  for (const file of files) {
    try {
      await access(file, constants.R_OK);
    } catch (error) {
      throw bad(`${file}: cannot be read (${describe(error)})`, error);
    }
  }
}

/**
 * Rows in all files. The last line of a file may lack its newline. Throws BAD_DATA for a file that cannot be
 * read.
 */
export async function countRows(files: readonly string[]): Promise<number> {
  await checkFiles(files);
  let rows = 0;
  for (const file of files) {
    let last = NEWLINE;
    for await (const chunk of chunks(file)) {
      for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, at + 1)) rows += 1;
      last = chunk[chunk.length - 1] ?? last;
    }
    if (last !== NEWLINE) rows += 1;
  }
  return rows;
}

/** Bytes of a file (decompressed) and of a line of it, on average of its start. @throws BAD_DATA */
export async function measure(file: string): Promise<{ size: number; lineBytes: number }> {
  await checkFiles([file]);
  let size = 0;
  let lineBytes = 1;
  for await (const chunk of chunks(file)) {
    if (size === 0) lineBytes = lineBytesOf(chunk);
    size += chunk.length;
    if (!isPacked(file)) return { size: (await stat(file)).size, lineBytes };
  }
  return { size, lineBytes };
}

function lineBytesOf(chunk: Buffer): number {
  let lines = 0;
  for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, at + 1)) lines += 1;
  return Math.ceil(chunk.length / Math.max(1, lines));
}

/**
 * A batch under construction. Keys are written as pairs of u32: a BigInt per cell would be most of the work.
 */
class Builder {
  size = 0;
  readonly labels: Float32Array;
  readonly dense: Float32Array;
  readonly keys: BigUint64Array;
  readonly words: Uint32Array;

  constructor(readonly capacity: number) {
    this.labels = new Float32Array(capacity);
    this.dense = new Float32Array(capacity * DENSE_FIELDS);
    this.keys = new BigUint64Array(capacity * CATEGORY_FIELDS);
    this.words = new Uint32Array(this.keys.buffer);
  }

  /** Parses data[start..end) as the next row. Returns -1, or the position where it went wrong. */
  add(data: Uint8Array, start: number, end: number): number {
    const label = data[start]! - ZERO;
    if (start >= end || (label !== 0 && label !== 1)) return start;
    this.labels[this.size] = label;
    const at = this.addIntegers(data, start + 1, end);
    if (at < 0) return -1 - at;
    const wrong = this.addCategories(data, at, end);
    if (wrong < 0) this.size += 1;
    return wrong;
  }

  /** From the tab before I1. Returns the position after I13, or -1 - the position where it went wrong. */
  private addIntegers(data: Uint8Array, start: number, end: number): number {
    let at = start;
    const base = this.size * DENSE_FIELDS;
    for (let field = 0; field < DENSE_FIELDS; field++) {
      if (at >= end || data[at] !== TAB) return -1 - at;
      const begin = ++at;
      const negative = at < end && data[at] === MINUS;
      if (negative) at += 1;
      const first = at;
      let value = 0;
      while (at < end) {
        const digit = data[at]! - ZERO;
        if (digit < 0 || digit > 9) break;
        value = value * 10 + digit;
        at += 1;
      }
      const digits = at - first;
      if (digits > MAX_DIGITS || (negative && digits === 0)) return -1 - begin;
      if (negative) value = 0;
      this.dense[base + field] = value < LOG1P.length ? LOG1P[value]! : Math.log1p(value);
    }
    return at;
  }

  /** From the tab before C1 to the end of the line. Returns -1, or the position where it went wrong. */
  private addCategories(data: Uint8Array, start: number, end: number): number {
    let at = start;
    let word = this.size * CATEGORY_FIELDS * 2;
    for (let field = 1; field <= CATEGORY_FIELDS; field++) {
      if (at >= end || data[at] !== TAB) return at;
      const first = ++at;
      let value = 0;
      while (at < end) {
        const digit = HEX[data[at]!]!;
        if (digit < 0) break;
        value = (value << 4) | digit;
        at += 1;
      }
      if (at - first > 8) return first;
      this.words[word++] = value;
      this.words[word++] = at === first ? (field | 0x8000_0000) >>> 0 : field;
    }
    return at === end ? -1 : at;
  }

  finish(): Batch {
    const { size } = this;
    if (size === this.capacity) return { size, labels: this.labels, dense: this.dense, keys: this.keys };
    return {
      size,
      labels: this.labels.slice(0, size),
      dense: this.dense.slice(0, size * DENSE_FIELDS),
      keys: this.keys.slice(0, size * CATEGORY_FIELDS),
    };
  }
}

/** What is wrong with a line that `Builder.add` refused at `at`, as `file:line:column: ...`. */
function explain(file: string, line: number, data: Buffer, start: number, end: number, at: number) {
  const fields = data.toString('latin1', start, end).split('\t');
  if (fields.length !== COLUMNS) {
    const column = fields.length < COLUMNS ? end - start + 1 : fields.slice(0, COLUMNS).join('\t').length + 1;
    return bad(`${file}:${line}:${column}: ${fields.length} columns instead of ${COLUMNS}`);
  }
  let index = 0;
  let column = 0;
  while (index < COLUMNS - 1 && start + column + fields[index]!.length < at) {
    column += fields[index]!.length + 1;
    index += 1;
  }
  const text = JSON.stringify(fields[index]!.slice(0, 24));
  const place = `${file}:${line}:${column + 1}`;
  if (index === 0) return bad(`${place}: the label must be 0 or 1, not ${text}`);
  if (index <= DENSE_FIELDS) return bad(`${place}: I${index} must be an integer or empty, not ${text}`);
  return bad(`${place}: C${index - DENSE_FIELDS} must be up to 8 hexadecimal digits or empty, not ${text}`);
}

function checkBatch(batch: number): void {
  if (!Number.isSafeInteger(batch) || batch < 1) {
    throw new KintsugiError('BAD_ARGUMENT', `batch must be a positive integer, not ${batch}`);
  }
}

/** Where a reader is: carries the batch under construction from file to file. */
class Cursor {
  private builder: Builder;

  constructor(private readonly batch: number) {
    this.builder = new Builder(batch);
  }

  /** Takes one line; returns a batch when that completes one. */
  line(place: Place, data: Buffer, start: number, newline: number): Batch | undefined {
    const end = newline > start && data[newline - 1] === RETURN ? newline - 1 : newline;
    const wrong = this.builder.add(data, start, end);
    if (wrong >= 0)
      throw new WrongLine(place, (number) => explain(place.file, number, data, start, end, wrong));
    return this.builder.size === this.batch ? this.next() : undefined;
  }

  /** Ends the batch, full or not. */
  next(): Batch | undefined {
    if (this.builder.size === 0) return undefined;
    const batch = this.builder.finish();
    this.builder = new Builder(this.batch);
    return batch;
  }
}

/** A line of a file, counted from `begin`. */
interface Place {
  file: string;
  begin: number;
  line: number;
}

/** A malformed line; its number in the file is found out only now. */
class WrongLine {
  constructor(
    private readonly place: Place,
    private readonly explain: (line: number) => KintsugiError,
  ) {}

  async error(): Promise<KintsugiError> {
    const { file, begin, line } = this.place;
    return this.explain(line + (await linesBefore(file, begin)));
  }
}

/** Lines that start before a position of a file. */
async function linesBefore(file: string, position: number): Promise<number> {
  if (position === 0) return 0;
  let lines = 1;
  let at = 0;
  for await (const chunk of chunks(file)) {
    for (let i = chunk.indexOf(NEWLINE); i >= 0 && at + i + 1 < position; i = chunk.indexOf(NEWLINE, i + 1))
      lines += 1;
    at += chunk.length;
    if (at >= position) break;
  }
  return lines;
}

/** The batches that the lines of a file complete that start in bytes begin..end. */
async function* batchesOf(
  file: string,
  cursor: Cursor,
  begin = 0,
  end = Number.POSITIVE_INFINITY,
  onRead?: () => void,
): AsyncGenerator<Batch, void, undefined> {
  // The line that is under way at `begin` is not ours; one that starts there has its newline just before.
  let foreign = begin > 0;
  let at = foreign ? begin - 1 : 0;
  const place: Place = { file, begin, line: 0 };
  let rest: Buffer = Buffer.alloc(0);
  for await (const chunk of chunks(file, at, onRead)) {
    const data = rest.length > 0 ? Buffer.concat([rest, chunk]) : chunk;
    let start = 0;
    for (let newline = data.indexOf(NEWLINE); newline >= 0; newline = data.indexOf(NEWLINE, start)) {
      if (at + start >= end) return;
      if (!foreign) {
        place.line += 1;
        const batch = cursor.line(place, data, start, newline);
        if (batch) yield batch;
      }
      foreign = false;
      start = newline + 1;
    }
    rest = data.subarray(start);
    at += start;
    if (at >= end) return;
    if (rest.length > MAX_LINE_BYTES) {
      place.line += 1;
      throw new WrongLine(place, (line) =>
        bad(`${file}:${line}:1: a line of more than ${MAX_LINE_BYTES} bytes`),
      );
    }
  }
  if (rest.length === 0 || foreign) return;
  place.line += 1;
  const batch = cursor.line(place, rest, 0, rest.length);
  if (batch) yield batch;
}

async function* explained(
  batches: AsyncGenerator<Batch, void, undefined>,
): AsyncGenerator<Batch, void, undefined> {
  try {
    yield* batches;
  } catch (error) {
    throw error instanceof WrongLine ? await error.error() : error;
  }
}

async function* batchesOfFiles(options: ReadOptions): AsyncGenerator<Batch, void, undefined> {
  checkBatch(options.batch);
  await checkFiles(options.files);
  const cursor = new Cursor(options.batch);
  for (const file of options.files) yield* batchesOf(file, cursor);
  const last = cursor.next();
  if (last) yield last;
}

/**
 * Batches of all files in order. Throws BAD_DATA with `file:line:column` (the column counts bytes from 1) for
 * the first malformed line, and for a file that cannot be read.
 */
export function readBatches(options: ReadOptions): AsyncGenerator<Batch, void, undefined> {
  return explained(batchesOfFiles(options));
}

export interface RangeOptions {
  file: string;
  /** The lines that start in these bytes (of what was compressed, if it was); the last one may end beyond. */
  begin: number;
  end: number;
  /** Rows per batch; the last one of the range may have fewer */
  batch: number;
  /** Called while reading goes on, also when no batch is complete for a long time. */
  onRead?: () => void;
}

async function* batchesOfRange({
  file,
  begin,
  end,
  batch,
  onRead,
}: RangeOptions): AsyncGenerator<Batch, void, undefined> {
  const cursor = new Cursor(batch);
  yield* batchesOf(file, cursor, begin, end, onRead);
  const last = cursor.next();
  if (last) yield last;
}

/**
 * Batches of a range of a file; ranges that follow each other share no line and miss none. @throws BAD_DATA
 */
export function readRange(options: RangeOptions): AsyncGenerator<Batch, void, undefined> {
  return explained(batchesOfRange(options));
}
