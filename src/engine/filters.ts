/**
 * The filter of a table with `bloom`: how many counters it needs, so that no more than `error` of the keys
 * that come for the first time look as if they had been seen. The engine keeps them in slots of the table's
 * rows, all of a key in one slot (native/engine/filter.cc). The slots of all shards are a line, ordered as
 * the keys are in shards. Neither the line nor the counters of a key in its slot depend on the number of
 * shards, so a filter can be restored into another number of them. All nodes must find the same sizes, so
 * only operations are used that IEEE 754 rounds alike everywhere.
 */
import { type StateOf, stateParts } from './optimizers.js';
import { type BloomOfShard, policyOfShard, type TablePolicy, wholeBloom } from './policies.js';

/** The filter of one shard. */
export interface FilterShape {
  /** Slots of all shards. */
  line: number;
  /** The first slot of this shard. */
  first: number;
  /** Slots of this shard; the last one may be the next shard's, too. */
  slots: number;
  /** Counters of a key. */
  hashes: number;
  /** Sightings of waiting keys that it knows at most. */
  capacity: number;
}

/** The slots of all shards, and what is the same in each. */
type FilterLine = Pick<FilterShape, 'line' | 'hashes'>;

/** Most counters of a key. */
const MOST_HASHES = 16;
/** From so many keys in a slot on, those beyond the mean are bounded and not summed up. */
const MANY_KEYS = 400;

/** e^-x for x >= 0, by products and sums. */
function expOfMinus(x: number): number {
  if (x > 700) return 0;
  const small = x / 4096;
  let [sum, term] = [1, 1];
  for (let i = 1; i <= 8; i++) {
    term = (term * -small) / i;
    sum += term;
  }
  for (let i = 0; i < 12; i++) sum *= sum;
  return sum;
}

function power(base: number, exponent: number): number {
  let result = 1;
  for (let i = 0; i < exponent; i++) result *= base;
  return result;
}

/** Chance that all counters of a new key are in use, in a slot with `counters` of them and a mean of keys. */
function errorOf(counters: number, hashes: number, mean: number): number {
  const stays = power(1 - 1 / counters, hashes);
  const used = (free: number) => power(1 - free, hashes);
  if (mean > MANY_KEYS) return used(expOfMinus(((mean + 3 * Math.sqrt(mean)) * hashes) / counters));
  let [chance, free, sum, left] = [expOfMinus(mean), 1, 0, 1];
  const last = Math.ceil(mean + 10 * Math.sqrt(mean) + 20);
  for (let keys = 0; keys <= last; keys++) {
    sum += chance * used(free);
    left -= chance;
    chance *= mean / (keys + 1);
    free *= stays;
  }
  return sum + Math.max(0, left);
}

/** The counters of a key with which the error is the least. */
function bestHashes(counters: number, mean: number): { hashes: number; error: number } {
  let best = { hashes: 1, error: errorOf(counters, 1, mean) };
  for (let hashes = 2; hashes <= Math.min(MOST_HASHES, counters); hashes++) {
    const error = errorOf(counters, hashes, mean);
    if (error < best.error) best = { hashes, error };
  }
  return best;
}

/** Sizes that are remembered: more than a job has tables. */
const MOST_KNOWN = 8192;
const known = new Map<string, FilterLine>();

/** The least slots of `counters` bytes for so many keys of all shards and such an error. */
function lineOf(capacity: number, error: number, counters: number): FilterLine {
  const name = `${capacity} ${error} ${counters}`;
  const before = known.get(name);
  if (before) return before;
  // Parts of the line get more or fewer keys than others.
  const keys = capacity + 3 * Math.sqrt(capacity);
  let [few, enough] = [0, 1];
  while (bestHashes(counters, keys / enough).error > error) [few, enough] = [enough, enough * 2];
  // To within a part in a hundred.
  while (enough - few > 1 + few / 128) {
    const middle = Math.floor((few + enough) / 2);
    if (bestHashes(counters, keys / middle).error > error) few = middle;
    else enough = middle;
  }
  const shape = { line: enough, hashes: bestHashes(counters, keys / enough).hashes };
  // Every shard asks for the filters of all tables, in one order.
  if (known.size >= MOST_KNOWN) known.clear();
  known.set(name, shape);
  return shape;
}

/** The filter of a shard with this policy. */
function filterShape(bloom: BloomOfShard, stride: number, shard: number): FilterShape {
  const { capacity, error } = wholeBloom(bloom);
  const { whole = capacity, shards = 1 } = bloom;
  const { line, hashes } = lineOf(whole, error, stride);
  // A slot at the end of its range may be shared with the next shard.
  const slots = shards === 1 ? line : Math.min(line, Math.ceil(line / shards) + 1);
  const first = Number((BigInt(shard) * BigInt(line)) / BigInt(shards));
  return { line, first, slots, hashes, capacity };
}

/** The part of a table that decides how long rows are. */
interface RowOf {
  dim: number;
  optimizer: StateOf;
  policy?: TablePolicy | undefined;
}

/** float32 values, optimizer state and words of the life of a row. */
export function rowFloats({ dim, optimizer, policy }: RowOf): number {
  return stateParts(optimizer, policy).reduce(
    (floats, { shape }) => floats + (shape === 'vector' ? dim : 1),
    dim,
  );
}

/** Bytes of a row in its column: its floats, up to a multiple of 16 bytes. */
export function rowStride(row: RowOf): number {
  return Math.ceil((rowFloats(row) * 4) / 16) * 16;
}

/** Bytes of the largest columns of keys and rows, and of their blocks, about (native/engine/blocks.h). */
const [MOST_KEYS_BYTES, MOST_ROWS_BYTES, BLOCK_BYTES] = [8 * 2 ** 30, 64 * 2 ** 30, 4096];
const KEY_BYTES = 8;

/** Slots that one shard of a table may have, by the bytes of its rows. */
export function mostSlots(stride: number): number {
  const inColumn = (bytes: number, each: number) => {
    const slots = Math.max(1, Math.floor(BLOCK_BYTES / each));
    return (Math.floor(bytes / (slots * each)) - 1) * slots;
  };
  return Math.min(inColumn(MOST_ROWS_BYTES, stride), inColumn(MOST_KEYS_BYTES, KEY_BYTES));
}

/** Bytes of the rule of a policy (native/engine/rule.h), and of the two words of a life. */
const [RULE_BYTES, LIFE_BYTES] = [92, 8];

/** Slots that a shard of a table has in front of its keys: for clock and rule, and for the filter. */
export function ownSlots(row: RowOf): number {
  const { policy } = row;
  if (!policy) return 0;
  const stride = rowStride(row);
  const isShort = rowFloats(row) * 4 - LIFE_BYTES < RULE_BYTES;
  const reserved = isShort ? 1 + Math.ceil(RULE_BYTES / stride) : 1;
  if (!policy.bloom) return reserved;
  return reserved + filterShape(policy.bloom, stride, 0).slots;
}

/** Why a table with a valid policy cannot have so many shards, in one line; undefined when it can. */
export function filterProblem(row: RowOf, shards: number): string | undefined {
  if (!row.policy?.bloom) return undefined;
  const stride = rowStride(row);
  const needed = ownSlots({ ...row, policy: policyOfShard(row.policy, Math.max(1, shards)) });
  if (needed < mostSlots(stride)) return undefined;
  const each = `${needed} slots of ${stride} bytes`;
  const most = `a shard has ${mostSlots(stride)} at most: take a lower capacity, or a higher error`;
  return `policy: bloom needs ${each} in each of ${shards} shards, and ${most}`;
}

/** Bytes of the filter of a table, with clock and rule, in one of so many shards. */
export function filterBytes(row: RowOf, shards: number): number {
  const policy = row.policy && policyOfShard(row.policy, Math.max(1, shards));
  return ownSlots({ ...row, policy }) * (rowStride(row) + KEY_BYTES);
}

/** A table as each of so many shards has it that take no pushes, so that none needs to know which it is. */
export function filtered<Table extends RowOf>(table: Table, shards: number): Table {
  const { policy } = table;
  return policy?.bloom ? { ...table, policy: withFilter(table, policyOfShard(policy, shards)) } : table;
}

/** The policy of a shard, as the engine takes it: with its filter. `shard`: its number among all shards. */
export function withFilter(row: RowOf, policy: TablePolicy, shard = 0): TablePolicy {
  const { bloom } = policy;
  if (!bloom) return policy;
  return { ...policy, bloom: { ...bloom, ...filterShape(bloom, rowStride(row), shard) } };
}
