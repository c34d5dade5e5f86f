/**
 * The whole surface of the native addon, typed, and the code that loads it. TypeScript validates what users
 * pass, the binding checks lengths and alignment, the engine assumes. All methods run on the calling thread
 * and return at once.
 *
 * Wire layouts (little-endian; every array starts at a multiple of 8 from the start of its section and is
 * padded to one; the section itself may start at any address):
 *
 *   REQUEST section (pull, push; one shard, any number of tables)
 *     u32 tableCount, u32 mode (0 = gradient or plain pull, 1 = whole rows: values + optimizer state)
 *     (whole rows have no padding)
 *     tableCount x { u32 tableId, u32 count, u32 width (floats per row), u32 lr }
 *     (lr: of gradients, the bits of an f32 that is the learning rate of this push in place of the table's;
 *     0 = the table's own, the bits of minus zero = a rate of zero; width 0 in a push: its rows are deleted)
 *     per table: u64 keys[count]; push only: f32 rows[count * width]
 *   ROWS section (answer to a pull)
 *     per table of the request, in order: f32 rows[count * width]
 *   DELTA section (one batch of one shard)
 *     u32 tableCount, u32 zero
 *     tableCount x { u32 tableId, u32 stride (bytes per row), u32 extent, u32 keyCount, u32 rowCount,
 *                    u32 zero }
 *     per table: u32 keySlots[keyCount], u64 keyXor[keyCount], u32 rowSlots[rowCount],
 *                u8 rowXor[rowCount * stride]
 *   BLOCKS: u32 pairs (column, index); column = tableId * 2 + (0 = keys, 1 = rows)
 *     bytes of a list of blocks: the blocks one after the other, each of its column's fixed block size
 */
import { createRequire } from 'node:module';
import { describe, KintsugiError } from '../common/errors.js';
import { addonAdvice, addonFile } from './addon-file.js';
import type { NativeData } from './native-data.js';
import type { NativeSystem } from './native-system.js';
import type { OptimizerSpec } from './optimizers.js';
import type { LifeCounts, TablePolicy, WatchedShard } from './policies.js';
import type { NativeFilters, SnapshotBegun, SnapshotRows } from './snapshots.js';

export { PushStatus } from './push-status.js';
export type { OptimizerSpec };

/**
 * Values of a row that was never pushed: zeros, a constant, or drawn by (seed, key) from a uniform
 * distribution in [low, high) or a normal one.
 */
export type InitializerSpec =
  | { kind: 'zeros' }
  | { kind: 'constant'; value: number }
  | { kind: 'uniform'; low: number; high: number }
  | { kind: 'normal'; mean: number; std: number };

/** A table as the engine knows it. `seed` is an integer in 0..2^53-1. */
export interface EngineTable {
  /** Unique in the job, from 1. */
  id: number;
  /** float32 values per row. */
  dim: number;
  optimizer: OptimizerSpec;
  initializer: InitializerSpec;
  seed: number;
  policy?: TablePolicy;
}

/** A list of blocks as u32 pairs (column, index). */
export type BlockList = Uint32Array;
/** (tableId, stride in bytes, extent = highest slot ever used + 1) */
export type Extent = [table: number, stride: number, extent: number];

export interface TableStats {
  table: number;
  rows: number;
  extent: number;
  absentKeyBlocks: number;
  absentRowBlocks: number;
  /** The counts of this object, for a table with a policy, or of which rows were deleted. */
  life?: LifeCounts;
}

/**
 * Memory that engine objects of one node share; `limitBytes` 0 = no limit. Memory of snapshots is part of
 * `usedBytes`, but does not count against the limit.
 */
export interface NativeMemory {
  readonly usedBytes: number;
  readonly limitBytes: number;
}

/** One data shard: keys, rows and optimizer state of every table in one hash range. */
export interface NativeShard extends NativeFilters, WatchedShard {
  /**
   * Adds a table, empty, all blocks present. One that is there takes the settings of the spec for the pushes
   * from now on, and its policy for those that bring rows; throws if anything else differs.
   */
  addTable(table: EngineTable): void;
  /** Frees a table, if it is there, also in the open batch, equations and the open snapshot. */
  dropTable(id: number): void;
  /**
   * After `addTable`: the shard's history used slots below `extent`; those blocks are absent until installed.
   * The budget refuses nothing here. Throws MEMORY_LIMIT where the system refuses memory.
   */
  adopt(table: number, extent: number): void;
  /** @throws BAD_FRAME, BAD_ARGUMENT when `adopt` would refuse one of them, or its stride is another */
  checkExtents(extents: readonly Extent[]): void;
  /**
   * Applies a REQUEST section and adds its deltas to the open batch: all of it or nothing. The batch has no
   * more bytes than `maxDelta` then. Default, and the most: 56 MiB.
   */
  push(section: Uint8Array, maxDelta?: number): number;
  /** ROWS for a REQUEST section, in `into` from byte `at` on if they fit; or a status other than APPLIED. */
  pull(section: Uint8Array, into?: Uint8Array, at?: number): Uint8Array | number;
  /** The absent blocks that made the last `push` or `pull` answer ABSENT. */
  missing(): BlockList;
  /** True when the open batch holds deltas. */
  readonly dirty: boolean;
  /** Bytes that `flush` would return now, about. */
  readonly openBytes: number;
  /** Closes the open batch: its DELTA section (tableCount 0 when nothing is open). */
  flush(): Uint8Array;
  /** Closes the open batch without building its DELTA: nobody follows this shard. */
  dropBatch(): void;
  /**
   * Applies a DELTA section of another shard, for a shard that follows it and takes no pushes: blocks that
   * are absent are left out, a second call takes the first one back. The budget refuses nothing here.
   * Statuses: APPLIED, or nothing was changed and UNKNOWN_TABLE, DIM_MISMATCH, BAD_FRAME, or MEMORY_LIMIT
   * where the system refuses memory.
   */
  applyDelta(delta: Uint8Array): number;
  /**
   * Splits `blocks` into present ones, with their bytes in order, and lacking ones. Beyond the extent: zeros,
   * present. The bytes are in `into` from byte `at` on, if they fit there.
   */
  read(
    blocks: BlockList,
    into?: Uint8Array,
    at?: number,
  ): { present: BlockList; bytes: Uint8Array; lacking: BlockList };
  /** Takes the bytes of blocks that are absent; present ones are left alone. Returns how many it took. */
  install(blocks: BlockList, bytes: Uint8Array): number;
  /** The part of `blocks` that is absent. */
  filterAbsent(blocks: BlockList): BlockList;
  /** Up to `max` absent blocks of all columns of keys (kind 0) or rows (kind 1), from a cursor that wraps. */
  nextAbsent(kind: 0 | 1, max: number): BlockList;
  readonly absentKeyBlocks: number;
  readonly absentRowBlocks: number;
  /** True when every table's keys are present and indexed: pulls and pushes can be served. */
  readonly keysReady: boolean;
  /** False while its keys cannot be listed: some are absent, or rows of a table with a policy are. */
  tableReady(table: number): boolean;
  /**
   * An equation for `blocks` from parity `parityIndex` (one equation per block; block bytes in order): the
   * sum over the lacking members of coefficient x content. Installs what can be solved. `others` are blocks
   * solved for other lacking members. `stuck` are blocks with an answer from each of `parityCount` parities,
   * the same lacking set and too few usable (`ok`) equations.
   */
  addEquations(
    parityIndex: number,
    parityCount: number,
    lacking: number[],
    ok: boolean,
    blocks: BlockList,
    bytes: Uint8Array,
  ): {
    installed: number;
    others: { member: number; blocks: BlockList; bytes: Uint8Array }[];
    stuck: BlockList;
  };
  /** Forgets collected equations (a new version of the group). */
  dropEquations(): void;
  /**
   * Begins a snapshot of the rows as they are now. It holds those that changed after snapshot number `since`
   * of this shard began; all rows if `since` is 0 or a number that this shard has not given, and where it
   * lies 255 snapshots back. Blocks that were installed count as changed, and so do rows that were loaded.
   * It has the keys, too, whose rows went. It has all rows, and the answer's `since` is 0, if too many went,
   * or if a table has a policy, whose ages change, and more is wanted than values. Values are those of
   * rows that are admitted, were seen `minSightings` times, and are not older than `maxAge`, or `maxSeconds`
   * where the clock counts seconds (0: any age).
   * `beginSnapshot(stamp)` will hold what changes from now on. A snapshot that is given up needs no care. The
   * budget refuses nothing here, and a push is never refused because of a snapshot.
   * @throws BAD_ARGUMENT while another one is open, the open batch is not empty, or a block is absent;
   * MEMORY_LIMIT where the system refuses memory
   */
  beginSnapshot(
    ...asked: [
      since: number,
      valuesOnly?: boolean,
      minSightings?: number,
      maxAge?: number,
      maxSeconds?: number,
    ]
  ): SnapshotBegun;
  /**
   * The next rows of the open snapshot; undefined when all were read, and the snapshot is over then. They are
   * of one table, each key once in all of the snapshot, in no order that means anything. At most `maxBytes`
   * of keys, values and state, but at least one row. Keys whose rows went come first, and slots of filters
   * are in pieces without rows.
   * @throws BAD_ARGUMENT when no snapshot is open, or `maxBytes` is 0; MEMORY_LIMIT when the system refused
   * memory for rows that changed: the snapshot is lost, and `endSnapshot` is left to do
   */
  readSnapshot(maxBytes: number): SnapshotRows | undefined;
  /** Gives up the open snapshot, if there is one, and frees what it keeps. */
  endSnapshot(): void;
  /** Memory of rows that changed since the open snapshot began and were not read yet, as they were then. */
  readonly snapshotBytes: number;
  /**
   * Whole rows, new ones or in place of those that are there; of a key that comes twice the last one counts.
   * They leave in no delta: for a shard that no sink follows. Statuses: APPLIED, or nothing was changed and
   * UNKNOWN_TABLE, DIM_MISMATCH (lengths do not fit the table), KEY_RESERVED, MEMORY_LIMIT.
   * @throws BAD_ARGUMENT when the open batch is not empty, or blocks of the table are absent
   */
  loadRows(table: number, keys: BigUint64Array, values: Float32Array, state: Float32Array): number;
  /** Removes the rows of these keys, as `loadRows` brings rows. Keys without a row are passed over. */
  unloadRows(table: number, keys: BigUint64Array): number;
  /**
   * The newest second of the job. In tables whose policy counts seconds, the clock goes on with the next
   * push; and at once, in the open batch, in one that was not pushed to for long, which may evict rows as far
   * as the delta stays within `maxDelta` bytes. 0: with pushes alone. A lower number than before changes
   * nothing.
   */
  tell(seconds: number, maxDelta: number): void;
  /** From now on, `readValues` and pulls of values take no row that a snapshot of values leaves out. */
  serve(minSightings: number, maxAge: number, maxSeconds?: number): void;
  /**
   * Values (dim floats) of the rows that are there, at their keys' places in `into`, and a 1 in `found` (a
   * byte per key); returns how many keys have a row. Places of others are left, or are their initial values.
   * @throws BAD_ARGUMENT (no such table, lengths, absent blocks), KEY_RESERVED
   */
  readValues(
    ...asked: [table: number, keys: BigUint64Array, into: Float32Array, initial: boolean, found?: Uint8Array]
  ): number;
  extents(): Extent[];
  /** Extents of the tables that have one of these blocks. */
  extentsOf(blocks: BlockList): Extent[];
  /** Keys of a table in slot order, from slot `from` on, at most `max`; `next`: where to go on, or -1. */
  keys(table: number, from: number, max: number): { keys: BigUint64Array; next: number };
  /**
   * The `max` least keys of a table that are not below `least`, ascending; `next` is the key to go on from,
   * or -1. Reads all keys of the table. `max` is at least 1.
   */
  keysInOrder(table: number, least: bigint, max: number): { keys: BigUint64Array; next: bigint | -1 };
  stats(): TableStats[];
  /** Rows of all tables. */
  readonly rows: number;
  readonly bytes: number;
  /** Frees the memory now, not at the next garbage collection. Later calls throw. */
  close(): void;
}

/** Blocks of a sink whose accumulator has nothing pending any more, grouped by lacking set. */
export interface CompletedBlocks {
  /** Members that lack these blocks, ascending. Empty for a check. */
  lacking: number[];
  /** Every lacking member's block is included in this sink, so the equation can be used. */
  ok: boolean;
  /** Members that have asked for these blocks. */
  requesters: number[];
  /** True if these accumulators were created by `check`. */
  checked: boolean;
  blocks: BlockList;
  bytes: Uint8Array;
  /** How many of the blocks have non-zero bytes: for a check with nothing lacking these are mismatches. */
  nonZero: number;
}

/**
 * A parity (or, with k = 1 and coefficient 1, a mirror): linear accumulators over the streams of k members.
 * The budget refuses a sink nothing. Where the system refuses memory, `start`, `learn`, `recover` and `check`
 * throw MEMORY_LIMIT, and `apply` answers MEMORY_LIMIT. Nothing was changed then, but for accumulators of
 * some blocks. Such a sink cannot follow its streams any more and must be replaced.
 */
export interface NativeSink {
  /** Frees the sums of a table, and drops all accumulators. Nothing if it is not there. */
  dropTable(id: number): void;
  /** Member starts (or starts afresh) with nothing included below these extents. */
  start(member: number, extents: Extent[]): void;
  /**
   * Makes strides and extents known without a change of inclusion (a sink that is complete by birth, a later
   * Start).
   */
  learn(member: number, extents: Extent[]): void;
  /**
   * P[b] ^= c * delta on included blocks, R[b] likewise where an accumulator exists and the member is not
   * done. A delta applied a second time takes it back (roll-back). Returns blocks for which the member was
   * lacking and is pending now.
   */
  apply(member: number, delta: Uint8Array): BlockList | number;
  /**
   * Content of blocks of a member: includes what is not included, and feeds accumulators. Returns how many it
   * included.
   */
  content(member: number, blocks: BlockList, bytes: Uint8Array): number;
  /** The member says that it lacks these blocks. */
  lacking(member: number, blocks: BlockList): void;
  /**
   * The member asks for these blocks: creates or joins accumulators. Returns the blocks that are new: Want
   * them from all others.
   */
  recover(member: number, blocks: BlockList): BlockList;
  /** Accumulators with every member pending and nobody asking. Returns the new ones. */
  check(blocks: BlockList): BlockList;
  /** Takes what is completed since the last call. */
  takeCompleted(): CompletedBlocks[];
  /** Up to `max` blocks of accumulators for which this member is pending, from a cursor that wraps around. */
  nextPending(member: number, max: number): BlockList;
  /** Drops all accumulators (rules 12, 13, 17). */
  dropAccumulators(): void;
  readonly accumulators: number;
  /**
   * Up to `max` blocks of this member that are not included yet, from a cursor that wraps around; keys first.
   */
  nextExcluded(member: number, max: number): BlockList;
  excludedBlocks(member: number): number;
  /** True when all members' blocks are included. */
  readonly complete: boolean;
  extents(member: number): Extent[];
  /**
   * Every block below the highest extent of any member, at most `max`, from number `from` in a fixed order.
   */
  allBlocks(from: number, max: number): BlockList;
  readonly bytes: number;
  close(): void;
}

export interface Partition {
  /** Positions of the keys, grouped by shard, in input order within a shard. */
  order: Uint32Array;
  /** starts[s] .. starts[s+1] is the range of shard s in `order`. */
  starts: Uint32Array;
}

/**
 * The part of a request for one table: keys, and for a push the rows that go with them (keys.length x width).
 */
export interface SplitCall {
  table: number;
  /** floats per row */
  width: number;
  keys: BigUint64Array;
  rows?: Float32Array;
  /** Learning rate of gradients, 0 or more, in place of the table's. */
  lr?: number;
  /** Sightings of each key in a push of gradients, 1 or more. Only for tables with a policy. */
  counts?: Uint32Array;
  /** Scores of each key in a push of gradients, finite. Only for tables with scores. */
  scores?: Float32Array;
}

/** Keys `order[start..end)` of a call, with their rows. */
export interface SectionPart extends SplitCall {
  order: Uint32Array;
  start: number;
  end: number;
}

/** Calls, split by shard into sections. All lists are flat. */
export interface Split {
  /** Positions of the keys of each call, grouped by shard, in input order within a shard. */
  orders: Uint32Array[];
  /** (call, start, end): keys `order[start..end)` of a call. */
  pieces: Uint32Array;
  /** (shard, first piece, number of pieces, bytes of the REQUEST section), by round and node. */
  sections: Uint32Array;
  /** (round, node, first section, number of sections, bytes): sections that go to one node together. */
  runs: Float64Array;
}

export interface NativeAddon extends NativeSystem, NativeData {
  /** The instruction set the kernels use: 'scalar' | 'avx2' | 'avx512-gfni'. */
  readonly isa: string;
  /** Forces an instruction set, or 'auto' again (tests); returns the name now in use. */
  forceIsa(name: string): string;
  createMemory(limitBytes: number): NativeMemory;
  createShard(memory: NativeMemory, member: number, k: number, r: number): NativeShard;
  /** `complete`: born with the group, every member's (empty) content is included. */
  createSink(memory: NativeMemory, k: number, r: number, parityIndex: number, complete: boolean): NativeSink;
  /** The generator: coefficient of member `member` in parity `parityIndex`. */
  coefficient(k: number, r: number, parityIndex: number, member: number): number;
  /** The engine's optimizers: the names of their parameters, `lr` first; `fixedRate`: pushes bring none. */
  optimizers(): { kind: string; parameters: string[]; fixedRate: boolean }[];
  /** The engine's schedules: the names of their parameters, `warmup` first. */
  schedules(): { kind: string; parameters: string[] }[];
  /** Floats of a whole row of a table (mode 1): values, optimizer state, words of its life. */
  rowWidth(dim: number, optimizer: OptimizerSpec, policy?: TablePolicy): number;
  partition(keys: BigUint64Array, shards: number): Partition;
  /** A REQUEST section, of `requestBytes`; in `into` from byte `at` on, if it fits there. */
  encodeRequest(mode: 0 | 1, parts: SectionPart[], into?: Uint8Array, at?: number): Uint8Array;
  /**
   * Splits calls by shard; `nodes` has a number for the node of each shard. Keys and rows for a shard beyond
   * `sectionBytes` go in further sections, and sections beyond `roundBytes` in further rounds. `each`: a call
   * with one key per shard, its shard's number in `keys`; every section gets that one.
   */
  split(
    calls: readonly SplitCall[],
    nodes: Uint32Array,
    sectionBytes: number,
    roundBytes: number,
    each?: number,
  ): Split;
  /** `count` REQUEST sections from `first` on, one after the other; in `into` from byte `at`, if they fit. */
  encodeSections(
    mode: 0 | 1,
    calls: readonly SplitCall[],
    split: Split,
    first: number,
    count: number,
    into?: Uint8Array,
    at?: number,
  ): Uint8Array;
  /**
   * Copies ROWS sections to the places of their rows in the targets, one target and width per call. `items`:
   * (section, bytes) of each ROWS section in `rows`. @throws BAD_FRAME when they do not fit
   */
  scatterSections(
    targets: readonly Float32Array[],
    widths: Uint32Array,
    split: Split,
    items: Uint32Array,
    rows: Uint8Array,
  ): void;
  /** Copies the rows at byte `offset` of a ROWS section to their positions; returns the offset after them. */
  scatterRows(
    target: Float32Array,
    width: number,
    order: Uint32Array,
    start: number,
    end: number,
    section: Uint8Array,
    offset: number,
  ): number;
  /** Distinct keys in order of first occurrence, and for each input key its index there. */
  unique(keys: BigUint64Array): { keys: BigUint64Array; inverse: Uint32Array };
  /** target[i] = rows[inverse[i]] */
  expandRows(target: Float32Array, width: number, rows: Float32Array, inverse: Uint32Array): void;
  /** target[inverse[i]] += rows[i], in input order; target must be zero. */
  sumRows(target: Float32Array, width: number, rows: Float32Array, inverse: Uint32Array): void;
  /** XOR-folds and multiplies; for tests and benchmarks of the kernels: dst ^= c * src. */
  mulAdd(dst: Uint8Array, src: Uint8Array, c: number): void;
}

let loaded: NativeAddon | undefined;

/** Loads the addon once. Throws ADDON_NOT_LOADED with what to run next. */
export function loadNative(): NativeAddon {
  if (loaded) return loaded;
  const require = createRequire(import.meta.url);
  const file = addonFile();
  try {
    loaded = require(file.path) as NativeAddon;
  } catch (error) {
    const text = `the native addon could not be loaded (${describe(error).slice(0, 200)})`;
    throw new KintsugiError('ADDON_NOT_LOADED', `${text}; ${addonAdvice(file)}`, { cause: error });
  }
  return loaded;
}
