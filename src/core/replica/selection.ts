/** The deltas that a replica takes from a stream when it serves some of the tables: those of these tables. */
import { KintsugiError } from '../../common/errors.js';

/** Layout of a DELTA section (src/engine/native.ts). */
const HEAD_BYTES = 8;
const TABLE_BYTES = 24;

const padded = (bytes: number): number => Math.ceil(bytes / 8) * 8;

/** The part of a DELTA section that is of tables which `keep` names. @throws BAD_FRAME */
export function selected(delta: Uint8Array, keep: (table: number) => boolean): Uint8Array {
  const view = new DataView(delta.buffer, delta.byteOffset, delta.byteLength);
  const count = delta.byteLength < HEAD_BYTES ? -1 : view.getUint32(0, true);
  let at = HEAD_BYTES + count * TABLE_BYTES;
  if (count < 0 || at > delta.byteLength) throw tooShort();
  const kept: { head: Uint8Array; body: Uint8Array }[] = [];
  for (let i = 0; i < count; i++) {
    const start = HEAD_BYTES + i * TABLE_BYTES;
    const word = (index: number): number => view.getUint32(start + index * 4, true);
    const [stride, keys, rows] = [word(1), word(3), word(4)];
    const end = at + padded(keys * 4) + keys * 8 + padded(rows * 4) + padded(rows * stride);
    if (end > delta.byteLength) throw tooShort();
    if (keep(word(0)))
      kept.push({ head: delta.subarray(start, start + TABLE_BYTES), body: delta.subarray(at, end) });
    at = end;
  }
  if (kept.length === count) return delta;
  const bodies = kept.reduce((sum, { body }) => sum + body.byteLength, 0);
  const result = new Uint8Array(HEAD_BYTES + kept.length * TABLE_BYTES + bodies);
  new DataView(result.buffer).setUint32(0, kept.length, true);
  let to = HEAD_BYTES;
  for (const part of [...kept.map(({ head }) => head), ...kept.map(({ body }) => body)]) {
    result.set(part, to);
    to += part.byteLength;
  }
  return result;
}

const tooShort = (): KintsugiError =>
  new KintsugiError('BAD_FRAME', 'a delta is shorter than its header says');
