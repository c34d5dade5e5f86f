/**
 * How large pushes and pulls are cut: what goes to one shard at once is a section, what is under way at once is a round.
 * Both stay far below the largest frame, also where they grow on the way: a delta carries optimizer state and slots, up to
 * four times the bytes of its push.
 */
import type { NativeAddon, SectionPart } from './native.js';
import { type Pool, shardCount, type TableSpec } from './protocol/map.js';

/** What a push or pull asks of one shard beyond this, keys and rows together, goes in further sections. */
export const SECTION_BYTES = 4 << 20;
/** Sections of one push or pull that are under way at once; the next ones follow when these are answered. */
export const ROUND_BYTES = 16 << 20;
/** Sections of one round: an answer has one part for each. */
export const ROUND_SECTIONS = 4096;

/** What a request asks of one table: keys, and the rows that go with them. */
export interface TableCall {
  spec: TableSpec;
  keys: BigUint64Array;
  width: number;
  rows?: Float32Array;
}

/** The keys of one table that go to one shard; of a pull, where its rows go. */
export interface Piece {
  call: number;
  part: SectionPart;
}

/** A range of sections that go together. */
export interface Round {
  from: number;
  to: number;
  bytes: number;
}

/** Bytes of a key and its row. */
export const rowBytes = (width: number): number => 8 + width * 4;

/** What goes to each shard of a pool. Constant work in JavaScript per shard and table. */
export function piecesByShard(
  native: NativeAddon,
  calls: readonly TableCall[],
  pool: Pool,
): Map<number, Piece[]> {
  const shards = shardCount(pool);
  const byShard = new Map<number, Piece[]>();
  for (const [index, call] of calls.entries()) {
    if (call.spec.pool !== pool.name || call.keys.length === 0) continue;
    const { order, starts } = native.partition(call.keys, shards);
    for (let shard = 0; shard < shards; shard++) {
      const [start, end] = [starts[shard]!, starts[shard + 1]!];
      if (start === end) continue;
      const { keys, width, rows } = call;
      const part: SectionPart = { table: call.spec.id, width, keys, order, start, end };
      if (rows) part.rows = rows;
      const known = byShard.get(shard);
      if (known) known.push({ call: index, part });
      else byShard.set(shard, [{ call: index, part }]);
    }
  }
  return byShard;
}

/** The pieces of one shard, cut so that no list holds more than a section may (but at least one row). */
export function cut(pieces: readonly Piece[]): Piece[][] {
  const lists: Piece[][] = [];
  let list: Piece[] = [];
  let used = 0;
  for (const { call, part } of pieces) {
    const each = rowBytes(part.width);
    for (let start = part.start; start < part.end; ) {
      if (used > 0 && used + each > SECTION_BYTES) {
        lists.push(list);
        list = [];
        used = 0;
      }
      const rows = Math.max(1, Math.floor((SECTION_BYTES - used) / each));
      const end = Math.min(part.end, start + rows);
      list.push({ call, part: { ...part, start, end } });
      used += (end - start) * each;
      start = end;
    }
  }
  if (list.length > 0) lists.push(list);
  return lists;
}

/** Sections in order, as many together as a round may hold. */
export function rounds(sizes: readonly number[]): Round[] {
  const ranges: Round[] = [];
  for (const [index, size] of sizes.entries()) {
    const last = ranges.at(-1);
    if (last && last.bytes + size <= ROUND_BYTES && last.to - last.from < ROUND_SECTIONS) {
      last.to = index + 1;
      last.bytes += size;
    } else ranges.push({ from: index, to: index + 1, bytes: size });
  }
  return ranges;
}
