/**
 * Formats in which a line is a sample. A range is a range of bytes (of what was compressed, if it was): the
 * lines that start in it.
 *
 * The bytes of a chunk are parsed where they are: splitting into strings costs several times the parse. What
 * is wrong with a line is worked out only once a line has failed.
 */
import type { KintsugiError } from '../errors.js';
import type { Batch, Rows } from './batch.js';
import { bad, chunks, isPacked, sizeOf } from './bytes.js';
import type { Format, Measure, Range, Sink } from './reader.js';

/** What is longer is another kind of file. */
export const MAX_LINE_BYTES = 64 * 1024;
/** Reading a range of a compressed file means decompressing what comes before it. */
const PACKED_RANGES = 8;
/** Bytes of a line in a file that has none yet: about what lines of the Criteo layout have. */
const USUAL_LINE_BYTES = 200;
const NEWLINE = 10;
const RETURN = 13;

/** How far a parser got: the start of the line where it stopped, and the lines that it took. */
export interface Taken {
  at: number;
  lines: number;
}

/** The samples of a file. */
export interface LineParser<R extends Rows> {
  /** The first line of the file is no sample. */
  readonly header: boolean;
  /**
   * Parses whole lines of data[from..) that begin before `until`, as the next rows, up to a full batch or a
   * line that it does not take, which is left to `add`.
   */
  addAll?(rows: R, data: Buffer, from: number, until: number): Taken;
  /** Parses data[start..end), a line without its end, as the next row. False: it is wrong. */
  add(rows: R, data: Buffer, start: number, end: number): boolean;
  /** What is wrong with a line that `add` refused just now. */
  explain(line: number, data: Buffer, start: number, end: number): KintsugiError;
}

/** A malformed line; its number in the file is found out only now. */
class WrongLine {
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

async function countLines(file: string): Promise<number> {
  let lines = 0;
  let last = NEWLINE;
  for await (const chunk of chunks(file)) {
    for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, at + 1)) lines += 1;
    last = chunk[chunk.length - 1] ?? last;
  }
  // The last line may lack its newline.
  return last === NEWLINE ? lines : lines + 1;
}

/** Bytes of a file (decompressed) and of a line of it, on average of its start. */
async function measure(file: string): Promise<Measure> {
  const packed = isPacked(file);
  let size = 0;
  let perSample = USUAL_LINE_BYTES;
  for await (const chunk of chunks(file)) {
    if (size === 0) perSample = lineBytesOf(chunk);
    size += chunk.length;
    if (!packed) return { size: await sizeOf(file), perSample, least: 1 };
  }
  return { size, perSample, least: packed ? Math.ceil(size / PACKED_RANGES) : 1 };
}

function lineBytesOf(chunk: Buffer): number {
  let lines = 0;
  for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, at + 1)) lines += 1;
  return Math.ceil(chunk.length / Math.max(1, lines));
}

/** After a line that `addAll` does not take, so many go to `add`, and twice as many after the next one. */
const MOST_SINGLE_LINES = 64;

/** The lines of a range, as rows. */
class Lines<R extends Rows> {
  private line = 0;
  /** Place of the bytes at hand in the file */
  private at: number;
  /** The line under way at the beginning is not ours; one that starts there has its newline before. */
  private foreign: boolean;
  /** Lines that go to `add` before `addAll` is asked again. */
  private single = 0;
  private singles = 1;

  constructor(
    private readonly range: Range,
    private readonly parser: LineParser<R>,
    private readonly sink: Sink<R>,
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
    if (this.foreign) {
      this.foreign = false;
      return undefined;
    }
    this.line += 1;
    if (parser.header && range.begin === 0 && this.line === 1) return undefined;
    const end = newline > start && data[newline - 1] === RETURN ? newline - 1 : newline;
    if (!parser.add(sink.rows, data, start, end))
      throw this.wrong((line) => parser.explain(line, data, start, end));
    return sink.added();
  }

  private wrong(explain: (line: number) => KintsugiError): WrongLine {
    return new WrongLine(this.range.file, this.range.begin, this.line, explain);
  }

  /** Takes many lines, if the parser can and the line at `from` is nothing special. Returns the end. */
  private takeAll(data: Buffer, from: number): number {
    const { range, parser, sink } = this;
    const first = this.foreign || (parser.header && range.begin === 0 && this.line === 0);
    if (!parser.addAll || first) return from;
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

  /** The whole lines of `data` that begin in the range; returns where what is left begins. */
  private *whole(data: Buffer): Generator<Batch, number, undefined> {
    let start = 0;
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
      if (rest.length > MAX_LINE_BYTES) {
        this.line += 1;
        throw this.wrong((line) => bad(`${file}:${line}:1: a line of more than ${MAX_LINE_BYTES} bytes`));
      }
    }
    if (rest.length > 0 && !this.foreign) yield* this.whole(Buffer.concat([rest, Buffer.from('\n')]));
  }
}

/** @param parserOf the parser of a file; it may look into the file */
export function lineFormat<R extends Rows>(
  parserOf: (file: string) => LineParser<R> | Promise<LineParser<R>>,
): Format<R> {
  return {
    grows: true,
    measure,
    async count(file) {
      const lines = await countLines(file);
      return lines > 0 && (await parserOf(file)).header ? lines - 1 : lines;
    },
    async *read(range, sink, onRead) {
      try {
        yield* new Lines(range, await parserOf(range.file), sink).batches(onRead);
      } catch (error) {
        throw error instanceof WrongLine ? await error.error() : error;
      }
    },
  };
}
