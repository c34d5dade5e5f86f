/**
 * Pushes and pulls are cut into sections and rounds, by the engine: JavaScript touches each node, not each
 * shard. A section goes to one shard at once. A round is what is under way at once. Both stay far below the
 * largest frame, also where they grow on the way: a delta carries optimizer state and slots, up to four times
 * the bytes of its push.
 */
import { PLACE_WORDS, type SectionList } from '../../core/client/client.js';
import type { NativeAddon, Split, SplitCall } from '../../engine/native.js';
import type { PartBuffer, PartMemory } from '../../net/transport/index.js';
import { type ClusterMap, type Group, locate, type Pool, shardCount } from '../../protocol/map.js';

/**
 * Bytes of keys and rows in one section. What a push or pull asks of a shard beyond this goes in further
 * sections.
 */
export const SECTION_BYTES = 4 << 20;
/** Sections of one push or pull that are under way at once; the next ones follow when these are answered. */
export const ROUND_BYTES = 16 << 20;
/** Below so many bytes to one node, sections have memory of their own and are copied into their frame. */
const ARRANGED_FROM = 16_384;

/** Words of a section in `Split.sections`, and fields of a run in `Split.runs`. */
const SECTION_WORDS = 4;
const RUN_FIELDS = 5;

/** The calls of a request for the tables of one pool. */
export interface PoolCalls {
  pool: Pool;
  calls: readonly SplitCall[];
  /** Number of the call of which every section gets one row, that of its shard. */
  each?: number | undefined;
}

/** Sections of one pool in a round. */
export interface RoundPart {
  /** Index in what `encodeRounds` was given. */
  pool: number;
  split: Split;
  /** Number of the first one in `split`. */
  first: number;
  count: number;
}

/** Sections that go together. They are numbered in the order of `lists`, and of `parts`. */
export interface PushRound {
  lists: readonly SectionList[];
  parts: readonly RoundPart[];
  bytes: number;
  /** To be called when no section is needed any more: their memory is used again. */
  done(): void;
}

/** Why rows cannot be put where the caller wanted them. */
export const INTO_CHANGED = '`into` was detached (transferred) or resized before its pull ended';

/** Bytes of a key and its row. */
export const rowBytes = (width: number): number => 8 + width * 4;

/**
 * The node of each shard of each pool, by the list of groups. Such a list is replaced, never changed in
 * place, and a map with other tables or nodes has the same one.
 */
const nodes = new WeakMap<readonly Group[], Map<string, Uint32Array>>();

function nodesOf({ groups }: ClusterMap, pool: Pool): Uint32Array {
  let ofGroups = nodes.get(groups);
  if (!ofGroups) {
    ofGroups = new Map();
    nodes.set(groups, ofGroups);
  }
  let list = ofGroups.get(pool.name);
  if (!list) {
    list = Uint32Array.from({ length: shardCount(pool) }, (_, shard) => {
      const { group, member } = locate(pool, shard);
      return groups[group]?.data[member]?.node ?? 0;
    });
    ofGroups.set(pool.name, list);
  }
  return list;
}

/** How many sections go to each shard that gets one. They depend on nothing but keys and widths. */
export function sectionCounts(
  native: NativeAddon,
  map: ClusterMap,
  { pool, calls }: PoolCalls,
): Map<number, number> {
  const counts = new Map<number, number>();
  const { sections } = native.split(calls, nodesOf(map, pool), SECTION_BYTES, ROUND_BYTES);
  for (let i = 0; i < sections.length; i += SECTION_WORDS)
    counts.set(sections[i]!, (counts.get(sections[i]!) ?? 0) + 1);
  return counts;
}

/** Sections that go to one node. */
interface SectionRun {
  part: RoundPart;
  node: number;
  first: number;
  count: number;
  bytes: number;
}

/** Sections in order, as many together as a round may hold. All are encoded before this returns. */
export function encodeRounds(
  native: NativeAddon,
  memory: PartMemory,
  map: ClusterMap,
  mode: 0 | 1,
  pools: readonly PoolCalls[],
): PushRound[] {
  const rounds: SectionRun[][] = [];
  for (const [index, { pool, calls, each }] of pools.entries()) {
    // Together they have one round's bytes.
    const split = native.split(calls, nodesOf(map, pool), SECTION_BYTES, ROUND_BYTES / pools.length, each);
    for (let i = 0; i < split.runs.length; i += RUN_FIELDS) {
      const [number = 0, node = 0, first = 0, count = 0, bytes = 0] = split.runs.subarray(i, i + RUN_FIELDS);
      rounds[number] ??= [];
      const round = rounds[number];
      const last = round.at(-1)?.part;
      const part = last?.pool === index ? last : { pool: index, split, first, count: 0 };
      part.count += count;
      round.push({ part, node, first, count, bytes });
    }
  }
  return rounds.map((runs) => encodeRound(native, memory, mode, pools, runs));
}

/**
 * Encodes the sections of one round. Sections to one node share a buffer, so that their frame can be built
 * around them; where they are few, copying is cheaper.
 */
function encodeRound(
  native: NativeAddon,
  memory: PartMemory,
  mode: 0 | 1,
  pools: readonly PoolCalls[],
  runs: readonly SectionRun[],
): PushRound {
  const sizes = new Map<number, number>();
  for (const { node, bytes } of runs) sizes.set(node, (sizes.get(node) ?? 0) + bytes);
  const buffers = new Map<number, PartBuffer>();
  for (const [node, size] of sizes) if (size >= ARRANGED_FROM) buffers.set(node, memory.open(size));
  let total = 0;
  const lists = runs.map(({ part, node, first, count, bytes: size }): SectionList => {
    const { pool, calls } = pools[part.pool]!;
    const buffer = buffers.get(node);
    const bytes = native.encodeSections(mode, calls, part.split, first, count, buffer?.memory, buffer?.at);
    buffer?.took(bytes);
    total += size;
    return { places: placesOf(pool, part.split, first, count), bytes };
  });
  const done = () => {
    for (const buffer of buffers.values()) buffer.close();
  };
  return { lists, parts: [...new Set(runs.map(({ part }) => part))], bytes: total, done };
}

function placesOf(pool: Pool, { sections }: Split, first: number, count: number): Uint32Array {
  const { k, firstGroup } = pool;
  const places = new Uint32Array(count * PLACE_WORDS);
  for (let i = 0; i < count; i++) {
    const at = (first + i) * SECTION_WORDS;
    const shard = sections[at]!;
    places[i * PLACE_WORDS] = firstGroup + Math.floor(shard / k);
    places[i * PLACE_WORDS + 1] = shard % k;
    places[i * PLACE_WORDS + 2] = sections[at + 3]!;
  }
  return places;
}

/**
 * Puts rows of a round to their places. `items`: (number of the section in the round, bytes) of each, which
 * are changed. @throws BAD_FRAME when they do not fit
 */
export function scatter(
  native: NativeAddon,
  { parts }: PushRound,
  targets: readonly { rows: Float32Array[]; widths: Uint32Array }[],
  items: Uint32Array,
  rows: Uint8Array,
): void {
  let [from, start] = [0, 0];
  while (from < items.length) {
    let base = 0;
    const part = parts.find(({ count }) => {
      if (items[from]! < base + count) return true;
      base += count;
      return false;
    });
    if (!part) return;
    let [to, end] = [from, start];
    for (; to < items.length && items[to]! >= base && items[to]! < base + part.count; to += 2) {
      items[to] = items[to]! - base + part.first;
      end += items[to + 1]!;
    }
    const target = targets[part.pool]!;
    const [mine, bytes] = [items.subarray(from, to), rows.subarray(start, end)];
    native.scatterSections(target.rows, target.widths, part.split, mine, bytes);
    [from, start] = [to, end];
  }
}
