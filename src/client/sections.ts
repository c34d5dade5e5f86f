/**
 * Pushes and pulls are cut into sections and rounds. A section goes to one shard at once. A round is what is
 * under way at once. Both stay far below the largest frame, also where they grow on the way: a delta carries
 * optimizer state and slots, up to four times the bytes of its push.
 */
import type { ShardSection } from '../core/client/client.js';
import type { NativeAddon, SectionPart } from '../native.js';
import {
  type ClusterMap,
  locate,
  type PeerId,
  type Pool,
  shardCount,
  type TableSpec,
} from '../protocol/map.js';
import type { PartBuffer, PartMemory } from '../transport/index.js';

/**
 * Bytes of keys and rows in one section. What a push or pull asks of a shard beyond this goes in further
 * sections.
 */
export const SECTION_BYTES = 4 << 20;
/** Sections of one push or pull that are under way at once; the next ones follow when these are answered. */
export const ROUND_BYTES = 16 << 20;
/** Sections of one round: an answer has one part for each. */
export const ROUND_SECTIONS = 4096;
/** Below so many bytes to one node, sections have memory of their own and are copied into their frame. */
const ARRANGED_FROM = 16_384;

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

/** What one shard is asked at once. */
export interface Plan {
  pool: Pool;
  shard: number;
  pieces: Piece[];
  /** Parts of the pieces, and an audit row if there is one. */
  parts: SectionPart[];
}

/** Sections that go together. */
export interface Round {
  items: ShardSection[];
  /** Of each item. */
  pieces: Piece[][];
  bytes: number;
  /** To be called when no section is needed any more: their memory is used again. */
  done(): void;
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

/** Bytes of a REQUEST section. */
function requestBytes(parts: readonly SectionPart[]): number {
  let bytes = 8 + 16 * parts.length;
  for (const { start, end, width, rows } of parts)
    bytes += 8 * (end - start) + (rows ? 8 * Math.ceil(((end - start) * width) / 2) : 0);
  return bytes;
}

/** Bytes of keys and rows, whichever way they go: a pull is measured by its answer. */
const weight = (plan: Plan): number =>
  plan.parts.reduce((sum, part) => sum + (part.end - part.start) * rowBytes(part.width), 0);

/** Sections in order, as many together as a round may hold. All are encoded before this returns. */
export function encodeRounds(
  native: NativeAddon,
  memory: PartMemory,
  map: ClusterMap,
  mode: 0 | 1,
  plans: readonly Plan[],
): Round[] {
  const rounds: Round[] = [];
  for (let from = 0; from < plans.length; ) {
    let bytes = 0;
    let to = from;
    for (; to < plans.length && to - from < ROUND_SECTIONS; to++) {
      const more = weight(plans[to]!);
      if (to > from && bytes + more > ROUND_BYTES) break;
      bytes += more;
    }
    rounds.push(encodeRound(native, memory, map, mode, plans.slice(from, to), bytes));
    from = to;
  }
  return rounds;
}

/**
 * Encodes the sections of one round. Sections to one node share a buffer, so that their frame can be built
 * around them; where they are few, copying is cheaper.
 */
function encodeRound(
  native: NativeAddon,
  memory: PartMemory,
  map: ClusterMap,
  mode: 0 | 1,
  plans: readonly Plan[],
  bytes: number,
): Round {
  const buffers = new Map<PeerId, PartBuffer>();
  const places = plans.map(({ pool, shard, parts }) => {
    const { group: g, member: m } = locate(pool, shard);
    const node = map.groups[g]?.data[m]?.node ?? 0;
    return { g, m, node, parts, size: requestBytes(parts) };
  });
  const perNode = new Map<PeerId, number>();
  for (const { node, size } of places) perNode.set(node, (perNode.get(node) ?? 0) + size);
  for (const [node, size] of perNode) if (size >= ARRANGED_FROM) buffers.set(node, memory.open(size));
  const items = places.map(({ g, m, node, parts }): ShardSection => {
    const buffer = buffers.get(node);
    const section = native.encodeRequest(mode, parts, buffer?.memory, buffer?.at);
    buffer?.took(section);
    return { g, m, section };
  });
  const done = () => {
    for (const buffer of buffers.values()) buffer.close();
  };
  return { items, pieces: plans.map((plan) => plan.pieces), bytes, done };
}
