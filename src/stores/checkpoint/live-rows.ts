/**
 * The rows of a shard that a restore would have, each once, without a table in memory: what one checkpoint
 * wrote of it comes before what earlier ones wrote, and a row counts unless a newer one had its key.
 *
 * What one checkpoint wrote of a shard has no key twice. So only keys of increments are remembered, not those
 * of the oldest part. Where these would take more than `indexBytes`, the shard is read several times, each
 * time for another part of the keys.
 */
import {
  checkpointOfSegment,
  type Manifest,
  type SavedShard,
  type SegmentRef,
} from '../../protocol/checkpoints.js';
import type { DedupEntry } from '../../protocol/messages.js';
import { KeySet, mix, wordsOfKeys } from './key-set.js';
import type { Place } from './place.js';
import type { TableRead } from './segment.js';
import { readSegments } from './verify.js';

export interface LiveOptions {
  /** Keys whose rows are left out, by the name of their table. */
  forgotten?: ForgottenKeys | undefined;
  /** Memory for keys of increments of a shard, about. Default: 64 MiB. */
  indexBytes?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** Keys whose rows are to go, by the name of their table. */
export type ForgottenKeys = ReadonlyMap<string, KeySet>;

const INDEX_BYTES = 64 * 1024 * 1024;
/** Bytes of the index for a key, on average. */
const KEY_BYTES = 16;

/** Rows first..end of a table, `end` excluded. */
export type RowRun = [first: number, end: number];

/** The rows of a segment that no newer segment replaces. The arrays are views of its bytes. */
export interface LiveSegment {
  tables: { table: TableRead; runs: RowRun[] }[];
  /** Tables that have slots of a filter that counts: the newest part of a shard has all of them, once. */
  filters: TableRead[];
  /** Sessions of a shard; only the last segment of a shard of a full job has them. */
  sessions: DedupEntry[] | undefined;
}

/** The segments of a shard in parts, oldest first. A part is the segments that one checkpoint wrote. */
function partsOf({ segments }: SavedShard): SegmentRef[][] {
  const parts: SegmentRef[][] = [];
  const numberOf = (ref: SegmentRef | undefined) => checkpointOfSegment(ref?.name ?? '');
  for (const ref of segments) {
    if (parts.length > 0 && numberOf(parts.at(-1)![0]) === numberOf(ref)) parts.at(-1)!.push(ref);
    else parts.push([ref]);
  }
  return parts;
}

/** A shard was written by more than one checkpoint. */
export function hasIncrements(shard: SavedShard): boolean {
  return partsOf(shard).length > 1;
}

/** Rows of a range, or of several. */
export function countRows(runs: readonly RowRun[]): number {
  return runs.reduce((sum, [first, end]) => sum + end - first, 0);
}

/**
 * Memory holds two segments, and the keys of increments. @throws BAD_CHECKPOINT with the name of the file,
 * PLACE_FAILED, ABORTED
 */
export async function* liveRows(
  place: Place,
  manifest: Manifest,
  shard: SavedShard,
  { indexBytes = INDEX_BYTES, forgotten, signal }: LiveOptions = {},
): AsyncGenerator<LiveSegment> {
  const [oldest = [], ...increments] = partsOf(shard);
  const keys = increments.flat().reduce((sum, { rows }) => sum + rows, 0);
  const passes = Math.max(1, Math.ceil((keys * KEY_BYTES) / indexBytes));
  // Within a part the order stays: where another program has written a key twice, the last one counts.
  const newest = increments.at(-1) ?? oldest;
  const newestFirst = [...increments.reverse().flat(), ...oldest].map((ref) => ({ shard, ref }));
  for (let pass = 0; pass < passes; pass++) {
    const seen = new Map<string, KeySet>();
    for await (const { ref, segment } of readSegments(place, manifest, newestFirst, signal)) {
      const tables = segment.tables.map((table) => {
        if (!seen.has(table.name)) seen.set(table.name, new KeySet());
        const isIncrement = !oldest.includes(ref);
        const isWanted = isIn(forgotten?.get(table.name), pass, passes);
        return { table, runs: newRows(table, seen.get(table.name)!, isIncrement, isWanted) };
      });
      const holds = pass === 0 && newest.includes(ref);
      const filters = holds ? segment.tables.filter(({ filter }) => filter) : [];
      yield { tables, filters, sessions: segment.sessions };
    }
  }
}

/** Whether a key is of this pass, and is not to be left out. */
function isIn(forgotten: KeySet | undefined, pass: number, passes: number) {
  return (low: number, high: number): boolean =>
    (passes === 1 || mix(high, low) % passes === pass) && !forgotten?.has(low, high);
}

/** The rows of a table that no newer segment had, of keys that are wanted. */
function newRows(
  { keys, removed }: TableRead,
  seen: KeySet,
  isIncrement: boolean,
  isWanted: (low: number, high: number) => boolean,
): RowRun[] {
  const runs: RowRun[] = [];
  const of = wordsOfKeys(keys);
  for (let row = 0; row < keys.length; row++) {
    const [low, high] = [of[2 * row]!, of[2 * row + 1]!];
    if (!isWanted(low, high)) continue;
    if (isIncrement ? !seen.add(low, high) : seen.has(low, high)) continue;
    const last = runs.at(-1);
    if (last?.[1] === row) last[1]++;
    else runs.push([row, row + 1]);
  }
  const gone = wordsOfKeys(removed);
  for (let row = 0; isIncrement && row < removed.length; row++) {
    const [low, high] = [gone[2 * row]!, gone[2 * row + 1]!];
    if (isWanted(low, high)) seen.add(low, high);
  }
  return runs;
}

/** The rows of these runs, `width` items of each, one after the other in an array of their own. */
export function copyRuns<T extends Uint32Array | BigUint64Array>(
  from: T,
  to: T,
  width: number,
  runs: readonly RowRun[],
): T {
  let at = 0;
  for (const [first, end] of runs) {
    to.set(from.subarray(first * width, end * width) as never, at);
    at += (end - first) * width;
  }
  return to;
}
