/**
 * Reading a table as a whole: the keys of its shards, then whole rows (values and optimizer state) in batches
 * of bounded size. The key list is the only thing that grows with the table: 8 bytes a row.
 */
import type { Client, RequestOptions } from '../client/client.js';
import { KintsugiError } from '../errors.js';
import { locate, type Pool, poolOf, shardCount, type TableSpec } from '../protocol/map.js';
import { askOwner } from './ask.js';
import { eachAtMost, pipelined, ranges } from './concurrent.js';

/** Keys in one answer; the owner may send fewer. */
const PAGE_KEYS = 65_536;
/** Bytes of rows in one request. */
export const BATCH_BYTES = 4 << 20;
/** Batches under way while one is being handled. */
const DEPTH = 2;
/** Shards that are asked for keys at once. */
const SHARDS_AT_ONCE = 8;

export interface RowBatch {
  keys: BigUint64Array;
  /** keys.length x width: values, then optimizer state, no padding */
  rows: Float32Array;
}

export function poolOfTable(client: Client, spec: TableSpec): Pool {
  const pool = poolOf(client.clusterMap, spec.pool);
  if (!pool) throw new KintsugiError('INTERNAL', `table "${spec.name}" is in an unknown pool "${spec.pool}"`);
  return pool;
}

/** Rows in one batch: as many as `BATCH_BYTES` hold, at least one. */
export function batchRows(width: number): number {
  return Math.max(1, Math.floor(BATCH_BYTES / (8 + width * 4)));
}

/** Keys of the rows that a shard of the table holds now, ascending. */
export async function shardKeys(client: Client, spec: TableSpec, shard: number): Promise<BigUint64Array> {
  const { group: g, member: m } = locate(poolOfTable(client, spec), shard);
  const pages: BigUint64Array[] = [];
  for (let from = 0; from >= 0; ) {
    const question = { t: 'keys' as const, g, m, table: spec.id, from, max: PAGE_KEYS };
    from = await askOwner(client, question, ({ next }, parts) => {
      if (parts[0]) pages.push(new BigUint64Array(parts[0].slice().buffer));
      return next;
    });
  }
  return concatenate(pages).sort();
}

/** Keys of all rows of the table, ascending. */
export async function tableKeys(client: Client, spec: TableSpec): Promise<BigUint64Array> {
  const shards = Array.from({ length: shardCount(poolOfTable(client, spec)) }, (_, shard) => shard);
  const lists: BigUint64Array[] = [];
  await eachAtMost(SHARDS_AT_ONCE, shards, async (shard) => {
    lists.push(await shardKeys(client, spec, shard));
  });
  return concatenate(lists).sort();
}

/** Whole rows of `keys`, in their order. */
export function pullRows(
  client: Client,
  spec: TableSpec,
  keys: BigUint64Array,
  options: RequestOptions = {},
): AsyncGenerator<RowBatch> {
  const batches = ranges(keys.length, batchRows(client.rowWidth(spec)));
  return pipelined(DEPTH, batches, async ([start, end]) => {
    const part = keys.subarray(start, end);
    const [rows] = await client.pullFull([{ table: spec.name, keys: part }], options);
    return { keys: part, rows: rows! };
  });
}

function concatenate(lists: readonly BigUint64Array[]): BigUint64Array {
  if (lists.length === 1) return lists[0]!;
  let length = 0;
  for (const list of lists) length += list.length;
  const all = new BigUint64Array(length);
  let at = 0;
  for (const list of lists) {
    all.set(list, at);
    at += list.length;
  }
  return all;
}
