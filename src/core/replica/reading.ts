/**
 * Pulls that a replica answers. All sections of a request are read in one step, so no delta comes in between:
 * each is of the position that is said of it.
 */
import { type ErrorCode, KintsugiError } from '../../common/errors.js';
import { type NativeShard, PushStatus } from '../../engine/native.js';
import { limitText } from '../../protocol/limits.js';
import { FLOAT_BYTES } from '../../protocol/section-header.js';

/** Layout of a REQUEST section (src/engine/native.ts). */
const HEAD_BYTES = 8;
const TABLE_BYTES = 16;
const KEY_BYTES = 8;

/** Rows of one request; more is refused. */
export const MAX_READ_BYTES = 32 << 20;

/** A request for rows of one shard. */
export interface ReadSection {
  g: number;
  m: number;
  /** A REQUEST section. */
  section: Uint8Array;
}

export interface ReadLimits {
  /** An answer from an older state is refused. */
  maxLagMs: number;
  /** Every value of a key without a row; undefined: its initial value. */
  missing: number | undefined;
}

export interface ReadAnswer {
  /** A ROWS section for each that was asked. */
  rows: Uint8Array[];
  states: [gen: number, seq: number][];
  /** Everything that was acknowledged so long ago is in all of them. */
  lagMs: number;
}

/** The owner of the shards' copies that answers are read from. */
export interface ReadSource {
  position(g: number, m: number): { gen: number; seq: number; lagMs: number } | undefined;
  shardAt(g: number, m: number): { readonly state: { readonly native: NativeShard } | undefined } | undefined;
}

/** @throws STALE_REPLICA, LIMIT, UNKNOWN_TABLE, DIM_MISMATCH, KEY_RESERVED, BAD_FRAME */
export function read(source: ReadSource, asked: readonly ReadSection[], limits: ReadLimits): ReadAnswer {
  const answer: ReadAnswer = { rows: [], states: [], lagMs: 0 };
  let bytes = 0;
  for (const { section } of asked) for (const table of tablesOf(section)) bytes += table.bytes;
  if (bytes > MAX_READ_BYTES)
    throw new KintsugiError(
      'LIMIT',
      limitText(`rows of ${bytes} bytes are asked for`, 'maxReadBytes', MAX_READ_BYTES),
    );
  for (const { g, m, section } of asked) {
    const position = source.position(g, m);
    const native = source.shardAt(g, m)?.state?.native;
    if (!position || !native || !(position.lagMs <= limits.maxLagMs))
      throw new KintsugiError('STALE_REPLICA', staleness(g, m, position?.lagMs, limits.maxLagMs));
    const rows = native.pull(section);
    if (typeof rows === 'number') throw refusal(rows);
    const { missing } = limits;
    answer.rows.push(missing === undefined ? rows : withMissing(native, section, rows.byteLength, missing));
    answer.states.push([position.gen, position.seq]);
    answer.lagMs = Math.max(answer.lagMs, position.lagMs);
  }
  return answer;
}

function staleness(g: number, m: number, lagMs: number | undefined, maxLagMs: number): string {
  const which = `shard ${m} of group ${g}`;
  if (lagMs === undefined) return `${which} is not here, or not yet`;
  if (!Number.isFinite(lagMs)) return `nobody has said yet how old ${which} is`;
  return `${which} is ${Math.round(lagMs)} ms old, at most ${Math.round(maxLagMs)} are allowed`;
}

const REFUSALS = new Map<number, [code: ErrorCode, message: string]>([
  [PushStatus.UNKNOWN_TABLE, ['UNKNOWN_TABLE', 'a table that is not served here']],
  [PushStatus.DIM_MISMATCH, ['DIM_MISMATCH', 'rows of another width than the table has']],
  [PushStatus.KEY_RESERVED, ['KEY_RESERVED', 'the key 2^64-1 is reserved']],
  [PushStatus.MEMORY_LIMIT, ['MEMORY_LIMIT', 'the system refuses memory']],
]);

function refusal(status: number): KintsugiError {
  const [code, message] = REFUSALS.get(status) ?? (['BAD_FRAME', 'a request that cannot be read'] as const);
  return new KintsugiError(code, message);
}

interface RequestTable {
  table: number;
  count: number;
  width: number;
  /** Where its keys begin. */
  at: number;
  /** Bytes of the rows of this item. */
  bytes: number;
}

/** @throws BAD_FRAME */
function tablesOf(section: Uint8Array): RequestTable[] {
  const view = new DataView(section.buffer, section.byteOffset, section.byteLength);
  const count = section.byteLength < HEAD_BYTES ? -1 : view.getUint32(0, true);
  let at = HEAD_BYTES + count * TABLE_BYTES;
  // Values only: whole rows are not answered here.
  if (count < 0 || at > section.byteLength || view.getUint32(4, true) !== 0)
    throw refusal(PushStatus.BAD_FRAME);
  const tables: RequestTable[] = [];
  for (let i = 0; i < count; i++) {
    const word = (index: number) => view.getUint32(HEAD_BYTES + i * TABLE_BYTES + index * 4, true);
    const [table, keys, width] = [word(0), word(1), word(2)];
    tables.push({ table, count: keys, width, at, bytes: keys * width * FLOAT_BYTES });
    at += keys * KEY_BYTES;
    if (at > section.byteLength) throw refusal(PushStatus.BAD_FRAME);
  }
  return tables;
}

/** A ROWS section of `bytes` in which keys without a row have `missing` everywhere. */
function withMissing(native: NativeShard, section: Uint8Array, bytes: number, missing: number): Uint8Array {
  const rows = new Float32Array(bytes / FLOAT_BYTES).fill(missing);
  let start = 0;
  for (const { table, count, width, at } of tablesOf(section)) {
    const copy = new Uint8Array(section.subarray(at, at + count * KEY_BYTES));
    const keys = new BigUint64Array(copy.buffer);
    native.readValues(table, keys, rows.subarray(start, start + count * width), false);
    start += 2 * Math.ceil((count * width) / 2);
  }
  return new Uint8Array(rows.buffer);
}
