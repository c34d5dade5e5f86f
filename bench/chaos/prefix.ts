/**
 * Which shards a push touches. A snapshot of a shard holds the first so many pushes of a client that touch
 * it, so what a checkpoint holds of a client is a number for each shard.
 */

import { loadNative } from '../../src/engine/native.js';
import type { PushRequest } from '../../src/library/client/client.js';
import { type FrozenMap, poolOf, shardCount, tableByName } from '../../src/protocol/map.js';

/** Number of pushes of each shard, by pool. */
export type PrefixCounts = Record<string, number[]>;

/** Shards of a push: those of the keys of each request, in their order. */
export interface Touched {
  request: PushRequest;
  pool: string;
  shards: number[];
}

export class ShardsOfPushes {
  private readonly pools = new Map<string, { name: string; shards: number }>();

  constructor(private readonly map: FrozenMap) {}

  private poolOf(table: string): { name: string; shards: number } {
    let found = this.pools.get(table);
    if (!found) {
      const { pool: name } = tableByName(this.map, table)!;
      found = { name, shards: shardCount(poolOf(this.map, name)!) };
      this.pools.set(table, found);
    }
    return found;
  }

  of(requests: readonly PushRequest[]): Touched[] {
    return requests.map((request) => {
      const { name: pool, shards: count } = this.poolOf(String(request.table));
      const { order, starts } = loadNative().partition(request.keys, count);
      const shards = new Array<number>(request.keys.length);
      for (let shard = 0; shard < count; shard++)
        for (let i = starts[shard]!; i < starts[shard + 1]!; i++) shards[order[i]!] = shard;
      return { request, pool, shards };
    });
  }

  /** Zero for every shard. */
  none(): PrefixCounts {
    return Object.fromEntries(this.map.pools.map((pool) => [pool.name, new Array(shardCount(pool)).fill(0)]));
  }
}

/** The shards of a push, each once: pool and number. */
export function eachShard(touched: readonly Touched[]): [pool: string, shard: number][] {
  const pools = new Map<string, Set<number>>();
  for (const { pool, shards } of touched) {
    const known = pools.get(pool) ?? new Set();
    for (const shard of shards) known.add(shard);
    pools.set(pool, known);
  }
  return [...pools].flatMap(([pool, shards]) => [...shards].map((shard): [string, number] => [pool, shard]));
}

/**
 * The part of a push that goes to shards of which some are left; these have one less afterwards. Undefined
 * when there is no such part.
 */
export function takePart(touched: readonly Touched[], left: PrefixCounts): PushRequest[] | undefined {
  const part = touched.flatMap(({ request, pool, shards }) => {
    const rows = [...shards.keys()].filter((row) => left[pool]![shards[row]!]! > 0);
    if (rows.length === 0) return [];
    const dim = request.gradients.length / request.keys.length;
    const gradients = new Float32Array(rows.length * dim);
    for (const [i, row] of rows.entries())
      gradients.set(request.gradients.subarray(row * dim, (row + 1) * dim), i * dim);
    return [{ ...request, keys: BigUint64Array.from(rows, (row) => request.keys[row]!), gradients }];
  });
  for (const [pool, shard] of eachShard(touched)) {
    const counts = left[pool]!;
    if (counts[shard]! > 0) counts[shard]!--;
  }
  return part.length > 0 ? part : undefined;
}

export function isZero(counts: PrefixCounts): boolean {
  return Object.values(counts).every((shards) => shards.every((count) => count === 0));
}
