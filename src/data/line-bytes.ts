/** Whole lines as they are, without a look into them. */
import type { Batch, SparseRows } from './batch.js';
import { bad } from './bytes.js';
import { endOfLine, type LineParser, MAX_LINE_BYTES, type TakenLines } from './lines.js';

const NEWLINE = 10;
const RETURN = 13;
const FIRST_BYTES = 64 * 1024;

/** A batch of lines. Its other arrays are empty. */
export interface LineBatch extends Batch {
  /** `size` lines, each with its newline */
  lines: Uint8Array;
}

/** Lines of a batch under construction. */
export class LineBytes implements SparseRows {
  size = 0;
  private bytes = Buffer.allocUnsafe(FIRST_BYTES);
  private length = 0;

  constructor(readonly capacity: number) {}

  /** Takes data[start..end), which is `lines` lines. */
  add(data: Buffer, start: number, end: number, lines: number): void {
    const needed = this.length + end - start;
    if (needed + 1 > this.bytes.length) {
      const bytes = Buffer.allocUnsafe(2 * (needed + 1));
      bytes.set(this.bytes.subarray(0, this.length));
      this.bytes = bytes;
    }
    data.copy(this.bytes, this.length, start, end);
    this.length = needed;
    this.size += lines;
  }

  /** Ends a line that was taken without its newline. */
  endLine(): void {
    this.bytes[this.length++] = NEWLINE;
  }

  finish(): LineBatch {
    const { size } = this;
    const nothing = new Float32Array(0);
    const arrays = { labels: nothing, dense: nothing, keys: new BigUint64Array(0) };
    return { size, ...arrays, lines: this.bytes.subarray(0, this.length) };
  }
}

/** Takes many lines with one copy. Blank and too long ones are left. */
function addAll(rows: LineBytes, data: Buffer, from: number, until: number): TakenLines {
  let at = from;
  let lines = 0;
  for (const room = rows.capacity - rows.size; lines < room && at < until; lines += 1) {
    const newline = data.indexOf(NEWLINE, at);
    if (newline < 0 || endOfLine(data, at, newline) === at || newline - at > MAX_LINE_BYTES) break;
    at = newline + 1;
  }
  rows.add(data, from, at, lines);
  return { at, lines };
}

/** @param header the first line of the file is no sample */
export function rawParser(file: string, header: boolean): LineParser<LineBytes> {
  return {
    header,
    addAll,
    add(rows, data, start, end) {
      rows.add(data, start, data[end] === RETURN ? end + 1 : end, 1);
      rows.endLine();
      return true;
    },
    explain: (line) => bad(`${file}:${line}: is no line`),
  };
}
