/** Parts of sections that name several tables: those of some of them. */
import { KintsugiError } from '../../common/errors.js';
import {
  ENTRY_BYTES,
  PREFIX_BYTES as HEAD_BYTES,
  KEY_BYTES,
  padded,
  pushedBytes,
} from '../../protocol/section-header.js';

/** The layout of DELTA sections is in src/engine/native.ts. */
const DELTA_TABLE_BYTES = 24;

/** The part of a DELTA section that is of tables which `keep` names. @throws BAD_FRAME */
export function selected(delta: Uint8Array, keep: (table: number) => boolean): Uint8Array {
  return partOf(delta, DELTA_TABLE_BYTES, keep, (word) => {
    const [stride, keys, rows] = [word(1), word(3), word(4)];
    return padded(keys * 4) + keys * KEY_BYTES + padded(rows * 4) + padded(rows * stride);
  });
}

/** As `selected`, of the REQUEST section of a push. @throws BAD_FRAME */
export function selectedPush(section: Uint8Array, keep: (table: number) => boolean): Uint8Array {
  return partOf(section, ENTRY_BYTES, keep, (word) => pushedBytes(word(1), word(2)));
}

/** A section begins with the number of its tables. Entries of tables follow, and then the body of each. */
function partOf(
  section: Uint8Array,
  entryBytes: number,
  keep: (table: number) => boolean,
  bodyBytes: (word: (index: number) => number) => number,
): Uint8Array {
  const view = new DataView(section.buffer, section.byteOffset, section.byteLength);
  const count = section.byteLength < HEAD_BYTES ? -1 : view.getUint32(0, true);
  let at = HEAD_BYTES + count * entryBytes;
  if (count < 0 || at > section.byteLength) throw tooShort();
  const kept: { head: Uint8Array; body: Uint8Array }[] = [];
  for (let i = 0; i < count; i++) {
    const start = HEAD_BYTES + i * entryBytes;
    const word = (index: number): number => view.getUint32(start + index * 4, true);
    const end = at + bodyBytes(word);
    if (end > section.byteLength) throw tooShort();
    if (keep(word(0)))
      kept.push({ head: section.subarray(start, start + entryBytes), body: section.subarray(at, end) });
    at = end;
  }
  if (kept.length === count) return section;
  const bodies = kept.reduce((sum, { body }) => sum + body.byteLength, 0);
  const result = new Uint8Array(HEAD_BYTES + kept.length * entryBytes + bodies);
  result.set(section.subarray(0, HEAD_BYTES));
  new DataView(result.buffer).setUint32(0, kept.length, true);
  let to = HEAD_BYTES;
  for (const part of [...kept.map(({ head }) => head), ...kept.map(({ body }) => body)]) {
    result.set(part, to);
    to += part.byteLength;
  }
  return result;
}

const tooShort = (): KintsugiError =>
  new KintsugiError('BAD_FRAME', 'a section is shorter than its header says');
