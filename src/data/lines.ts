/**
 * Formats in which a line is a sample. A range is a range of bytes (of the decompressed content): the lines
 * that start in it.
 *
 * The bytes of a chunk are parsed where they are: splitting into strings costs several times the parse. The
 * reason why a line is wrong is worked out only once it has failed.
 */
import type { KintsugiError } from '../common/errors.js';
import type { Batch, SparseRows } from './batch.js';
import { bad, chunks, sizeOf } from './bytes.js';
import { isPacked } from './packing.js';
import type { ByteRange, Measure, RowSink } from './reader.js';

/** Most bytes of a line, without its newline; kMostLineBytes in native/data/lines.h is the same. */
export const MAX_LINE_BYTES = 64 * 1024;
/** Most ranges of a compressed file: reading one means decompressing everything before it. */
const PACKED_RANGES = 8;
/** Bytes of a line in a file that has none yet: about what lines of the Criteo layout have. */
const USUAL_LINE_BYTES = 200;
const NEWLINE = 10;
const RETURN = 13;
/** The byte order mark of UTF-8, which some programs write before the first line */
const MARK = Buffer.from('\uFEFF');

/** How far a parser got: the start of the line where it stopped, and the lines that it took. */
export interface TakenLines {
  at: number;
  lines: number;
}

/** The samples of a file. */
export interface LineParser<R extends SparseRows> {
  /** The first line of the file is no sample. */
  readonly header: boolean;
  /**
   * Parses whole lines of data[from..) that begin before `until`, as the next rows, up to a full batch or a
   * line that it does not take, which is left to `add`.
   */
  addAll?(rows: R, data: Buffer, from: number, until: number): TakenLines;
  /** Parses data[start..end), a line without its end, as the next row. False: it is wrong. */
  add(rows: R, data: Buffer, start: number, end: number): boolean;
  /** The error of a line that `add` has just refused. */
  explain(line: number, data: Buffer, start: number, end: number): KintsugiError;
}

/** The error of a line of more than `MAX_LINE_BYTES`. */
export function longLine(file: string, line: number): KintsugiError {
  return bad(`${file}:${line}:1: a line of more than ${MAX_LINE_BYTES} bytes`);
}

/**
 * End of a line, without what Windows has before its newline. A file that was translated twice for Windows
 * has several of these.
 */
export function endOfLine(data: Buffer, start: number, newline: number): number {
  let end = newline;
  while (end > start && data[end - 1] === RETURN) end -= 1;
  return end;
}

/** The error of a blank line that is not at the end of a file. */
export function blankLine(file: string, line: number): KintsugiError {
  return bad(`${file}:${line}: a blank line; only the end of a file may have some`);
}

/** A malformed line; its number in the file is found out only now. */
export class WrongLine {
  constructor(
    private readonly file: string,
    private readonly begin: number,
    private readonly line: number,
    private readonly explain: (line: number) => KintsugiError,
  ) {}

  async error(): Promise<KintsugiError> {
    return this.explain(this.line + (await linesBefore(this.file, this.begin)));
  }
}

/** Newlines in data[from..to). */
function newlines(data: Buffer, from: number, to: number): number {
  let count = 0;
  for (let at = data.indexOf(NEWLINE, from); at >= 0 && at < to; at = data.indexOf(NEWLINE, at + 1))
    count += 1;
  return count;
}

/** Lines that start before a position of a file. */
export async function linesBefore(file: string, position: number): Promise<number> {
  if (position === 0) return 0;
  let lines = 1;
  let at = 0;
  for await (const chunk of chunks(file)) {
    lines += newlines(chunk, 0, position - 1 - at);
    at += chunk.length;
    if (at >= position) break;
  }
  return lines;
}

/** Lines of a file, but for blank ones at its end. The last one may lack its newline. */
export async function countLines(file: string): Promise<number> {
  let lines = 0;
  /** Newlines before the chunk */
  let before = 0;
  for await (const chunk of chunks(file)) {
    let end = chunk.length;
    while (end > 0 && isLineEnd(chunk[end - 1]!)) end -= 1;
    const inside = newlines(chunk, 0, end);
    if (end > 0) lines = before + inside + 1;
    before += inside + newlines(chunk, end, chunk.length);
  }
  return lines;
}

const isLineEnd = (byte: number) => byte === NEWLINE || byte === RETURN;

/** Bytes of a file (decompressed) and of a line of it, on average of its start. */
export async function measure(file: string, headed: boolean): Promise<Measure> {
  const packed = isPacked(file);
  let size = 0;
  let perSample = USUAL_LINE_BYTES;
  /** Bytes of the first line and its newline, as far as the first chunk has them */
  let first = 0;
  for await (const chunk of chunks(file)) {
    if (size === 0) {
      perSample = lineBytesOf(chunk);
      first = chunk.indexOf(NEWLINE) + 1 || chunk.length;
    }
    size += chunk.length;
    if (packed) continue;
    size = await sizeOf(file);
    break;
  }
  const least = packed ? Math.ceil(size / PACKED_RANGES) : 1;
  return { size, perSample, least, ...(headed && size > 0 && size === first && { empty: true }) };
}

function lineBytesOf(chunk: Buffer): number {
  return Math.ceil(chunk.length / Math.max(1, newlines(chunk, 0, chunk.length)));
}

/** After a line that `addAll` does not take, 1 line goes to `add`, then 2, 4, ..., at most so many. */
const MOST_SINGLE_LINES = 64;

/** The lines of a range, as rows. */
export class Lines<R extends SparseRows> {
  private line = 0;
  /** Place of the bytes at hand in the file */
  private at: number;
  /** The next line started before the range, so it belongs to the range before. */
  private foreign: boolean;
  /** Lines that go to `add` before `addAll` is asked again. */
  private single = 0;
  private singles = 1;
  /** Number of the first blank line after which no other one has come */
  private blank: number | undefined;

  constructor(
    private readonly range: ByteRange,
    private readonly parser: LineParser<R>,
    private readonly sink: RowSink<R>,
  ) {
    this.foreign = range.begin > 0;
    this.at = this.foreign ? range.begin - 1 : 0;
  }

  private get over(): boolean {
    return this.at >= this.range.end;
  }

  /** Takes one line; returns a batch when that completes one. */
  private take(data: Buffer, start: number, newline: number): Batch | undefined {
    const { range, parser, sink } = this;
    if (newline - start > MAX_LINE_BYTES) throw this.tooLong();
    if (this.foreign) {
      this.foreign = false;
      return undefined;
    }
    this.line += 1;
    if (parser.header && range.begin === 0 && this.line === 1) return undefined;
    const end = endOfLine(data, start, newline);
    if (end === start) {
      this.blank ??= this.line;
      return undefined;
    }
    this.checkBlank();
    if (!parser.add(sink.rows, data, start, end))
      throw this.wrong((line) => parser.explain(line, data, start, end));
    return sink.added();
  }

  /** Blank lines may be at the end of the file only. */
  private checkBlank(): void {
    const { blank } = this;
    if (blank === undefined) return;
    const { file, begin } = this.range;
    throw new WrongLine(file, begin, blank, (line) => blankLine(file, line));
  }

  /** The error of the next line. One that started before the range is the last of the lines before it. */
  private tooLong(): WrongLine {
    if (!this.foreign) this.line += 1;
    return this.wrong((line) => longLine(this.range.file, line));
  }

  private wrong(explain: (line: number) => KintsugiError): WrongLine {
    return new WrongLine(this.range.file, this.range.begin, this.line, explain);
  }

  /** Takes many lines, if the parser can and the line at `from` is nothing special. Returns the end. */
  private takeAll(data: Buffer, from: number): number {
    const { range, parser, sink } = this;
    const first = this.foreign || (parser.header && range.begin === 0 && this.line === 0);
    if (!parser.addAll || first || this.blank !== undefined) return from;
    if (this.single > 0) {
      this.single -= 1;
      return from;
    }
    const limit = range.end - this.at + from;
    const { at, lines } = parser.addAll(sink.rows, data, from, Math.min(data.length, limit));
    this.line += lines;
    this.at += at - from;
    this.single = lines === 0 ? this.singles - 1 : 0;
    this.singles = lines === 0 ? Math.min(2 * this.singles, MOST_SINGLE_LINES) : 1;
    return at;
  }

  /** Takes the whole lines of `data` that begin in the range; returns where the rest begins. */
  private *whole(data: Buffer): Generator<Batch, number, undefined> {
    let start = 0;
    if (this.at === 0 && data.subarray(0, MARK.length).equals(MARK)) {
      start = MARK.length;
      this.at = start;
    }
    while (!this.over) {
      start = this.takeAll(data, start);
      const many = this.sink.added();
      if (many) {
        yield many;
        continue;
      }
      const newline = this.over ? -1 : data.indexOf(NEWLINE, start);
      if (newline < 0) return start;
      const batch = this.take(data, start, newline);
      this.at += newline + 1 - start;
      start = newline + 1;
      if (batch) yield batch;
    }
    return start;
  }

  async *batches(onRead?: () => void): AsyncGenerator<Batch, void, undefined> {
    yield* this.ofRange(onRead);
    if (this.blank === undefined) return;
    for await (const chunk of chunks(this.range.file, this.at))
      if (!chunk.every(isLineEnd)) this.checkBlank();
  }

  private async *ofRange(onRead?: () => void): AsyncGenerator<Batch, void, undefined> {
    const { file } = this.range;
    let rest: Buffer = Buffer.alloc(0);
    for await (const chunk of chunks(file, this.at, onRead)) {
      // The line that goes on from the chunk before is put together, and nothing else is copied.
      const from = rest.length > 0 ? chunk.indexOf(NEWLINE) + 1 : 0;
      if (rest.length > 0) {
        rest = Buffer.concat([rest, from > 0 ? chunk.subarray(0, from) : chunk]);
        if (from > 0) yield* this.whole(rest);
        if (this.over) return;
      }
      if (rest.length === 0 || from > 0) {
        const data = chunk.subarray(from);
        rest = Buffer.from(data.subarray(yield* this.whole(data)));
      }
      if (this.over) return;
      if (rest.length > MAX_LINE_BYTES) throw this.tooLong();
    }
    const end = this.at + rest.length;
    if (end < this.range.end)
      throw bad(`${file}: ends at byte ${end}, and went on to ${this.range.end}: it was cut meanwhile`);
    if (rest.length > 0 && !this.foreign) yield* this.whole(Buffer.concat([rest, Buffer.from('\n')]));
  }
}
