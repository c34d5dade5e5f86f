/**
 * The header of a REQUEST section: its tables, and the number of rows of each (src/engine/native.ts).
 */

export const PREFIX_BYTES = 8;
export const ENTRY_BYTES = 16;
export const KEY_BYTES = 8;
/** Bytes of a value of a row. */
export const FLOAT_BYTES = 4;
/** The bits of a push's word of width that are the width. The two above it say what follows the rows. */
const WIDTH_BITS = 0x3fff_ffff;
/** How often each key was seen, and then a score of each. */
const [COUNTS_BIT, SCORES_BIT] = [31, 30];
const COUNT_BYTES = 4;
/** Arrays in a section are padded to a multiple of it. */
const ALIGNMENT = 8;

/** Bytes of an array in a section, with its padding. */
export const padded = (bytes: number): number => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;

/**
 * Calls `visit(table, rows, width)` for each table that the section in bytes `start` to `end` names. The
 * section is not validated yet, so reading ends at the first entry that cannot be right. The engine refuses
 * such a section.
 */
export function readSectionHeader(
  section: DataView,
  start: number,
  end: number,
  tables: number,
  visit: (table: number, rows: number, width: number) => void,
): void {
  if (end - start < PREFIX_BYTES) return;
  const count = section.getUint32(start, true);
  if (count > (end - start - PREFIX_BYTES) / ENTRY_BYTES) return;
  for (let at = start + PREFIX_BYTES, left = count; left > 0; at += ENTRY_BYTES, left--) {
    const table = section.getUint32(at, true);
    const rows = section.getUint32(at + 4, true);
    if (table > tables || rows > (end - start) / KEY_BYTES) return;
    visit(table, rows, section.getUint32(at + 8, true));
  }
}

/** Bytes of keys, rows, counts and scores of a table in a push, whose head has this word of width. */
export function pushedBytes(rows: number, widthWord: number): number {
  const behind = ((widthWord >>> COUNTS_BIT) & 1) + ((widthWord >>> SCORES_BIT) & 1);
  const extras = behind * padded(rows * COUNT_BYTES);
  return rows * KEY_BYTES + padded(rows * (widthWord & WIDTH_BITS) * FLOAT_BYTES) + extras;
}

/** Size of the ROWS section that answers a pull. A malformed section gets no rows, whatever this returns. */
export function answerBytes(section: DataView, start: number, end: number, tables: number): number {
  let bytes = 0;
  readSectionHeader(section, start, end, tables, (_, rows, width) => {
    bytes += padded(rows * width * FLOAT_BYTES);
  });
  return bytes;
}
