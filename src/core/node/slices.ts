/**
 * The slices of a pull whose answer is larger than a turn of the event loop: whole rows of one table each,
 * which are read in one turn. So each row is of one moment, and rows of two slices may be of two.
 */
import {
  FLOAT_BYTES,
  KEY_BYTES,
  PREFIX_BYTES,
  padded,
  readSectionHeader,
  ENTRY_BYTES as TABLE_BYTES,
} from '../../protocol/section-header.js';
import type { Policy } from '../shared/policy.js';
import type { Work } from '../shared/turn.js';

export interface AnswerSlice {
  /** REQUEST section of these rows alone. */
  readonly section: Uint8Array;
  /** Offset of its rows in the answer; a multiple of 8. */
  readonly at: number;
  readonly work: Work;
}

/** Rows of one table in a section, as far as they are not cut yet. */
interface RowsLeft {
  readonly head: Uint8Array;
  readonly width: number;
  rows: number;
  keysAt: number;
  /** Offset of these rows in the answer. */
  at: number;
}

export class Slices {
  private tables: RowsLeft[] = [];
  /** The slice that is read next; undefined: all were read. */
  next: AnswerSlice | undefined;

  /** `section`: of the pull; nobody changes it any more. `answer`: what reading all of it costs. */
  constructor(
    private readonly section: Uint8Array,
    answer: Work,
    private readonly limits: Pick<Policy, 'maxTurnRows' | 'maxTurnBytes'>,
  ) {
    const view = new DataView(section.buffer, section.byteOffset, section.byteLength);
    const heads: [rows: number, width: number][] = [];
    readSectionHeader(view, 0, section.byteLength, Number.POSITIVE_INFINITY, (_, rows, width) => {
      heads.push([rows, width]);
    });
    let [keysAt, at] = [PREFIX_BYTES + heads.length * TABLE_BYTES, 0];
    for (const [i, [rows, width]] of heads.entries()) {
      const head = section.subarray(PREFIX_BYTES + i * TABLE_BYTES, PREFIX_BYTES + (i + 1) * TABLE_BYTES);
      this.tables.push({ head, width, rows, keysAt, at });
      keysAt += rows * KEY_BYTES;
      at += padded(rows * width * FLOAT_BYTES);
    }
    // The engine refuses a section of another size.
    if (keysAt !== section.byteLength) {
      this.tables = [];
      this.next = { section, at: 0, work: answer };
    } else this.shift();
  }

  /** The next slice was read. */
  shift(): void {
    while (this.tables[0]?.rows === 0) this.tables.shift();
    const [table] = this.tables;
    this.next = table && this.cut(table);
  }

  private cut(table: RowsLeft): AnswerSlice {
    const rows = Math.min(table.rows, this.rowsOfSlice(table.width));
    const section = new Uint8Array(PREFIX_BYTES + TABLE_BYTES + rows * KEY_BYTES);
    section.set(this.section.subarray(0, PREFIX_BYTES));
    section.set(table.head, PREFIX_BYTES);
    const view = new DataView(section.buffer);
    view.setUint32(0, 1, true);
    view.setUint32(PREFIX_BYTES + 4, rows, true);
    const keysEnd = table.keysAt + rows * KEY_BYTES;
    section.set(this.section.subarray(table.keysAt, keysEnd), PREFIX_BYTES + TABLE_BYTES);
    const bytes = padded(rows * table.width * FLOAT_BYTES);
    const slice = { section, at: table.at, work: { rows, bytes } };
    table.rows -= rows;
    table.keysAt = keysEnd;
    table.at += bytes;
    return slice;
  }

  /** As many as a turn has room for, and at least one. The next slice of the table begins aligned. */
  private rowsOfSlice(width: number): number {
    const { maxTurnRows, maxTurnBytes } = this.limits;
    const step = width % 2 === 0 ? 1 : 2;
    const fit = Math.min(maxTurnRows, Math.floor(maxTurnBytes / Math.max(1, width * FLOAT_BYTES)));
    return Math.max(step, fit - (fit % step));
  }
}
