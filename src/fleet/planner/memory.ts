/**
 * Memory of rows by the engine's own arithmetic, so that a plan and a node agree on bytes. The engine charges
 * what a column uses, not the addresses that it reserves when it doubles (native/engine/arena.cc).
 */
import { rowFloats as floatsOf, mostSlots, rowStride, ownSlots as slotsOf } from '../../engine/filters.js';
import type { OptimizerKind } from '../../engine/optimizers.js';
import { hasTtl, policyOfShard, type TablePolicy } from '../../engine/policies.js';
import type { ScheduleSpec } from '../../engine/schedules.js';
import { BLOCK_BYTES } from '../../protocol/blocks.js';

const KEY_BYTES = 8;
/** A bucket of the index: eight keys of 8 bytes and eight slots of 4. At most 65 % of it are used. */
const BUCKET_BYTES = 96;
const KEYS_PER_BUCKET = 8;
const MOST_PERCENT = 65;
const LEAST_BUCKETS = 2;

/** Shape of the rows of a table. */
export interface RowShape {
  /** float32 values of a row. */
  dim: number;
  optimizer: OptimizerKind;
  /** Schedule of the learning rate. With one, rows count their steps. */
  schedule?: ScheduleSpec | undefined;
  /**
   * Policy of one shard. With one, rows have two or three words more, and the shard has slots for clock and
   * filter.
   */
  policy?: TablePolicy | undefined;
}

/** float32 values, optimizer state and words of the life of a row. */
export function rowFloats({ dim, optimizer: kind, schedule, policy }: RowShape): number {
  return floatsOf({ dim, optimizer: { kind, schedule }, policy });
}

/** Bytes of a row in its column: its floats, up to a multiple of 16 bytes. */
export function rowBytes({ dim, optimizer: kind, schedule, policy }: RowShape): number {
  return rowStride({ dim, optimizer: { kind, schedule }, policy });
}

/** Rows of a shape of which each shard has its part of what the policy bounds. */
export function inShards<Shape extends RowShape>(shape: Shape, shards: number): Shape {
  return shape.policy ? { ...shape, policy: policyOfShard(shape.policy, shards) } : shape;
}

/** Slots of a shard that have no key: those of its clock and its rule, and its filter. */
function ownSlots({ dim, optimizer: kind, schedule, policy }: RowShape): number {
  return slotsOf({ dim, optimizer: { kind, schedule }, policy });
}

const slotsPerBlock = (stride: number): number => Math.max(1, Math.floor(BLOCK_BYTES / stride));

/** Bytes of a column: whole blocks. */
function columnBytes(rows: number, stride: number): number {
  const slots = slotsPerBlock(stride);
  return Math.ceil(rows / slots) * slots * stride;
}

/** Bytes of keys and rows of one shard of a table: what a parity of its group has, too. */
export function codedBytes(rows: number, shape: RowShape): number {
  const slots = rows > 0 ? rows + ownSlots(shape) : rows;
  return columnBytes(slots, KEY_BYTES) + columnBytes(slots, rowBytes(shape));
}

/** Bytes of the index of one shard of a table: the least power of two of buckets, 65 % full at most. */
export function indexBytes(rows: number): number {
  if (rows <= 0) return 0;
  let buckets = LEAST_BUCKETS;
  while (rows * 100 > buckets * KEYS_PER_BUCKET * MOST_PERCENT) buckets *= 2;
  return buckets * BUCKET_BYTES;
}

/** Slots whose rows are looked at together, and bytes that say when the first of them may go. */
const RUN_SLOTS = 64;
const RUN_BYTES = 8;

/** Bytes that a shard of a table has to find rows that go by themselves. */
function runBytes(rows: number, shape: RowShape): number {
  return hasTtl(shape.policy ?? {}) && rows > 0
    ? Math.ceil((rows + ownSlots(shape)) / RUN_SLOTS) * RUN_BYTES
    : 0;
}

/**
 * Bytes of the stamps that say which rows changed since the last checkpoint: a byte and a bit for each row.
 * There is room for an eighth more rows when they are made. They count in what a node reports, but not
 * against its limit.
 */
function stampBytes(rows: number): number {
  const room = Math.ceil((rows + Math.floor(rows / 8)) / 64) * 64;
  return room + room / 8;
}

/** Bytes of one data shard with so many rows of a table, as the engine reports them. */
export function dataShardBytes(rows: number, shape: RowShape, checkpoints = false): number {
  const found = indexBytes(rows) + runBytes(rows, shape);
  return codedBytes(rows, shape) + found + (checkpoints ? stampBytes(rows) : 0);
}

/** The most rows that one shard of a table may have. */
export function maxRowsPerShard(shape: RowShape): number {
  return Math.max(0, mostSlots(rowBytes(shape)) - ownSlots(shape));
}

/** A code and the groups that use it. */
export interface TableLayout {
  k: number;
  r: number;
  groups: number;
}

/** Bytes on a PS, by what they are for. */
export interface NodeMemory {
  /** Keys, rows and optimizer state of data shards. */
  rows: number;
  index: number;
  parity: number;
  /** Stamps for checkpoints; 0 without them. */
  stamps: number;
  /** All of these. */
  engine: number;
}

/** Memory of all rows, on the PS that holds most when shards are spread evenly over `ps` nodes. */
export function nodeMemory(
  rows: number,
  shape: RowShape,
  { k, r, groups }: TableLayout,
  ps: number,
  checkpoints = false,
): NodeMemory {
  const perShard = Math.ceil(rows / (groups * k));
  // Data and parities rotate together, so a node that has one data shard more has no parity more.
  const members = Math.ceil((groups * (k + r)) / ps);
  const data = Math.min(members, Math.ceil((groups * k) / ps));
  const parities = members - data;
  const coded = codedBytes(perShard, inShards(shape, groups * k));
  const parts = {
    rows: data * coded,
    index: data * indexBytes(perShard),
    parity: parities * coded,
    stamps: checkpoints ? data * stampBytes(perShard) : 0,
  };
  return { ...parts, engine: parts.rows + parts.index + parts.parity + parts.stamps };
}
