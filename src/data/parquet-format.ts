/**
 * Parquet for training, by hyparquet (parquet.ts); DuckDB (duckdb.ts) reads most rows faster where it is
 * installed. A range is a range of rows. A row group is the least that can be found without reading what
 * comes before it, so it is cut in few ranges.
 */
import { valueText } from '../common/errors.js';
import type { Batch } from './batch.js';
import { bad } from './bytes.js';
import { ColumnReader } from './duckdb.js';
import { type OpenedParquet, openSamples, slices } from './parquet.js';
import { type Format, type RowSink, type SharedBatch, shareOf } from './reader.js';
import { problemText, type SchemaRows } from './rows.js';
import { columnsOf, type Schema } from './schema.js';

/** A range in the middle of a row group looks through the pages before it. */
const GROUP_RANGES = 8;

/** Columns with several values whose cells are bytes of a fixed length. Such a cell is one value. */
function singleBytes({ tree }: OpenedParquet, { sparse }: Schema): Set<string> {
  const fixed = tree.children.filter(({ element }) => element.type === 'FIXED_LEN_BYTE_ARRAY');
  const names = fixed.map(({ element }) => element.name);
  return new Set(names.filter((name) => sparse.some(({ column, multi }) => multi && column === name)));
}

/** Values that a column of 8 or 16 bits may have: they are stored in 32, and damage makes larger ones. */
interface Width {
  name: string;
  least: number;
  most: number;
}

function widthOf({ tree }: OpenedParquet, column: string): Width | undefined {
  let node = tree.children.find(({ element }) => element.name === column)!;
  while (node.children.length === 1) node = node.children[0]!;
  const { converted_type: name = '' } = node.element;
  const [, unsigned, digits] = /^(U?)INT_(8|16)$/.exec(name) ?? [];
  if (digits === undefined) return undefined;
  const count = 2 ** Number(digits);
  return unsigned ? { name, least: 0, most: count - 1 } : { name, least: -count / 2, most: count / 2 - 1 };
}

function fits(width: Width, cell: unknown): boolean {
  if (Array.isArray(cell)) return cell.every((value) => fits(width, value));
  return typeof cell !== 'number' || (cell >= width.least && cell <= width.most);
}

/** Choice among rows, and the batches that they end. */
interface SlowRows<T> {
  /** Default: all are. Others are passed over. */
  isWanted?: (row: number) => boolean;
  /** The batch that ends with a row */
  after: (row: number) => T | undefined;
  onRead?: (() => void) | undefined;
}

/** @param decoder `hyparquet`: DuckDB is not used, where it is installed, too */
export function parquetFormat(schema: Schema, decoder?: 'hyparquet'): Format<SchemaRows> {
  const columns = columnsOf(schema);
  const decoded = decoder === undefined ? new ColumnReader(schema) : undefined;
  const files = new Map<string, Promise<OpenedParquet>>();
  const opened = (file: string) => {
    const known = files.get(file) ?? openSamples(file, columns);
    files.set(file, known);
    return known;
  };
  const columnsFor = (whole: OpenedParquet) => ({ ...whole, single: singleBytes(whole, schema) });

  /** Rows by hyparquet; what `after` each one makes of the batch. */
  async function* slow<T>(
    { whole, begin, end }: { whole: OpenedParquet; begin: number; end: number },
    sink: RowSink<SchemaRows>,
    { isWanted = () => true, after, onRead }: SlowRows<T>,
  ): AsyncGenerator<T, void, undefined> {
    const { file } = whole;
    const cells: unknown[] = [];
    const single = singleBytes(whole, schema);
    const isSingle = columns.map((column) => single.has(column));
    const widths = columns.map((column) => widthOf(whole, column));
    for await (const slice of slices(whole, { begin, end }, onRead)) {
      for (let index = 0; index < slice.rows; index++) {
        const row = slice.first + index;
        const isTaken = isWanted(row);
        for (let at = 0; at < columns.length; at++) {
          const cell = slice.columns[at]!.next();
          const width = widths[at];
          if (isTaken && width && !fits(width, cell)) {
            const found = `column "${columns[at]}" must be ${width.name}, not ${valueText(cell)}`;
            throw bad(`${file}: row ${row + 1}: ${found}`);
          }
          cells[at] = isSingle[at] && cell instanceof Uint8Array ? [cell] : cell;
        }
        const problem = isTaken ? sink.rows.add(cells) : undefined;
        if (problem) throw bad(`${file}: row ${row + 1}: ${problemText(problem)}`);
        const made = after(row);
        if (made !== undefined) yield made;
      }
    }
  }

  return {
    async measure(file) {
      const { rows, groups } = await opened(file);
      return {
        size: rows,
        perSample: 1,
        least: Math.max(1, ...groups.map((group) => Math.ceil(group.rows / GROUP_RANGES))),
      };
    },
    async count(file) {
      return (await opened(file)).rows;
    },
    async *read(range, sink, onRead) {
      const whole = await opened(range.file);
      const end = Math.min(range.end, whole.rows);
      const begin = decoded
        ? yield* decoded.read(columnsFor(whole), { ...range, end }, sink, onRead)
        : range.begin;
      if (begin < end) yield* slow({ whole, begin, end }, sink, { after: () => sink.added(), onRead });
    },
    async *readShares(range, sink) {
      const whole = await opened(range.file);
      const end = Math.min(range.end, whole.rows);
      const endOf = (first: number) => Math.min(end, first + range.batch);
      /** First row of the batch */
      let first = range.begin;
      const part = () => {
        const { first: from, end: until } = shareOf(endOf(first) - first, range.share);
        return { begin: first + from, end: first + until };
      };
      const ended = (full = sink.end()): SharedBatch => {
        const samples = endOf(first) - first;
        first += samples;
        return { batch: full!, samples };
      };
      let begin = first;
      for (; decoded && first < end; begin = first) {
        const mine = part();
        const reading = decoded.read(columnsFor(whole), { file: range.file, ...mine }, sink);
        let full: Batch | undefined;
        let step = await reading.next();
        for (; !step.done; step = await reading.next()) full = step.value;
        begin = step.value;
        if (begin < mine.end) break;
        yield ended(full);
      }
      if (first >= end) return;
      yield* slow({ whole, begin, end }, sink, {
        isWanted: (row) => row >= part().begin && row < part().end,
        after: (row) => (row + 1 === endOf(first) ? ended() : undefined),
      });
    },
  };
}
