/** Formats in which a line is a sample (lines.ts), as readers use them. */
import type { SparseRows } from './batch.js';
import { type LineBatch, LineBytes, rawParser } from './line-bytes.js';
import { countLines, endOfLine, type LineParser, Lines, measure, WrongLine } from './lines.js';
import {
  Collector,
  type Format,
  type RowSink,
  type SharedBatch,
  type SharedRange,
  shareOf,
} from './reader.js';

const NEWLINE = 10;

/** Passes on what comes, and finds out the number of a line that is wrong. */
async function* named<T>(batches: AsyncGenerator<T, void, undefined>): AsyncGenerator<T, void, undefined> {
  try {
    yield* batches;
  } catch (error) {
    throw error instanceof WrongLine ? await error.error() : error;
  }
}

/** Cuts batches of whole lines, and parses those of the share. The last batch may be of any size. */
async function* shares<R extends SparseRows>(
  range: SharedRange,
  parser: LineParser<R>,
  sink: RowSink<R>,
): AsyncGenerator<SharedBatch, void, undefined> {
  const { file, begin, batch, share } = range;
  const uncut = new Collector((capacity) => new LineBytes(capacity), batch);
  const lines = new Lines(range, rawParser(file, parser.header), uncut);
  /** Lines of the range before those of the batch */
  let before = parser.header && begin === 0 ? 1 : 0;
  const parsed = ({ size, lines: bytes }: LineBatch): SharedBatch => {
    const { first, end } = shareOf(size, share);
    const data = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const from = after(data, 0, first);
    const until = after(data, from, end - first);
    addLines({ parser, sink, data, from, until }, (line, explain) => {
      return new WrongLine(file, begin, before + first + line, explain);
    });
    before += size;
    return { batch: sink.end()!, samples: size };
  };
  for await (const whole of lines.batches()) yield parsed(whole as LineBatch);
  const last = uncut.end();
  if (last) yield parsed(last as LineBatch);
}

/** Where the line begins that so many are before. */
function after(data: Buffer, from: number, lines: number): number {
  let at = from;
  for (let line = 0; line < lines; line++) at = data.indexOf(NEWLINE, at) + 1;
  return at;
}

interface WholeLines<R extends SparseRows> {
  parser: LineParser<R>;
  sink: RowSink<R>;
  data: Buffer;
  from: number;
  until: number;
}

/** Parses whole lines, which are no more than a batch. `wrong` makes the error of one that is malformed. */
function addLines<R extends SparseRows>(
  { parser, sink, data, from, until }: WholeLines<R>,
  wrong: (line: number, explain: ConstructorParameters<typeof WrongLine>[3]) => WrongLine,
): void {
  let line = 0;
  for (let at = from; at < until; ) {
    const taken = parser.addAll?.(sink.rows, data, at, until) ?? { at, lines: 0 };
    line += taken.lines;
    at = taken.at;
    if (at >= until) return;
    line += 1;
    const newline = data.indexOf(NEWLINE, at);
    const end = endOfLine(data, at, newline);
    const start = at;
    if (!parser.add(sink.rows, data, start, end))
      throw wrong(line, (number) => parser.explain(number, data, start, end));
    at = newline + 1;
  }
}

/**
 * @param parserOf the parser of a file; it may look into the file
 * @param headed the first line of a file is a header
 */
export function lineFormat<R extends SparseRows>(
  parserOf: (file: string) => LineParser<R> | Promise<LineParser<R>>,
  headed = false,
): Format<R> {
  return {
    measure: (file) => measure(file, headed),
    async check(file) {
      await parserOf(file);
    },
    async count(file) {
      const lines = await countLines(file);
      return lines > 0 && (await parserOf(file)).header ? lines - 1 : lines;
    },
    async *read(range, sink, onRead) {
      const parser = await parserOf(range.file);
      yield* named(new Lines(range, parser, sink).batches(onRead));
    },
    async *readShares(range, sink) {
      yield* named(shares(range, await parserOf(range.file), sink));
    },
  };
}
