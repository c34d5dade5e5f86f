/**
 * What must be true, from the pushes alone. Each client owns one row per shard; its n-th push there adds 2^n, so the row is a
 * bit mask of the pushes that were applied: a lost one leaves a hole, a repeated one carries. Every push also adds to a
 * shared row, whose final value is the sum.
 */

import { auditKeys } from '../audit.js';
import type { NativeAddon, NativeShard } from '../native.js';
import { type ClusterMap, type Pool, shardCount, tableByName } from '../protocol/map.js';
import { Violation } from './violation.js';

const FIRST = Uint32Array.of(0);

/** Of a pool in the simulator. */
const MAX_SHARDS = 1024;

function place(client: number, shard: number): number {
  return client * MAX_SHARDS + shard;
}

export class Oracle {
  private readonly sent = new Map<number, number>();
  private readonly acked = new Map<number, number>();
  private readonly sums = new Map<bigint, number>();

  constructor(private readonly clients: number) {}

  /** The number of the client's next push to a shard, from 1. */
  begin(client: number, shard: number): number {
    const key = place(client, shard);
    const number = (this.sent.get(key) ?? 0) + 1;
    this.sent.set(key, number);
    return number;
  }

  add(key: bigint, amount: number): void {
    this.sums.set(key, (this.sums.get(key) ?? 0) + amount);
  }

  acknowledge(client: number, shard: number, count: number): void {
    this.acked.set(place(client, shard), count);
  }

  acknowledged(client: number, shard: number): number {
    return this.acked.get(place(client, shard)) ?? 0;
  }

  /** Keys above all clients' own ones, spread over shards by the real hash. */
  sharedKey(native: NativeAddon, pool: Pool, shard: number, index: number): bigint {
    return auditKeys(native, pool, 1_000_000 + index)[shard]!;
  }

  /** A row read while things happen: a prefix of what was sent, with everything in it that was acknowledged before. */
  checkOwnRow(client: number, shard: number, row: Float32Array, acknowledged: number): void {
    const value = row[0]!;
    for (let i = 1; i < row.length; i++)
      if (row[i] !== value) throw new Violation(`client ${client} shard ${shard}: a torn row`);
    const sent = this.sent.get(place(client, shard)) ?? 0;
    const prefix = Math.round(Math.log2(value + 2)) - 1;
    if (2 ** (prefix + 1) - 2 !== value || prefix > sent) {
      throw new Violation(
        `client ${client} shard ${shard}: read ${value}, which no prefix of ${sent} pushes gives`,
      );
    }
    if (prefix < acknowledged) {
      throw new Violation(
        `client ${client} shard ${shard}: ${acknowledged} pushes acknowledged, ${prefix} in the row`,
      );
    }
  }

  /** At rest: every push that was sent is there exactly once. */
  checkShard(
    native: NativeAddon,
    map: ClusterMap,
    shard: NativeShard,
    g: number,
    m: number,
    dim: number,
  ): void {
    const pool = map.pools[map.groups[g]!.pool]!;
    const table = tableByName(map, 't')!;
    const number = (g - pool.firstGroup) * pool.k + m;
    const read = (key: bigint): Float32Array => {
      const part = {
        table: table.id,
        width: dim,
        keys: BigUint64Array.of(key),
        order: FIRST,
        start: 0,
        end: 1,
      };
      const rows = shard.pull(native.encodeRequest(0, [part]));
      if (typeof rows === 'number') throw new Violation(`shard ${g}/${m} cannot be read at rest: ${rows}`);
      const row = new Float32Array(dim);
      native.scatterRows(row, dim, FIRST, 0, 1, rows, 0);
      return row;
    };
    const firstClient = 1;
    for (const [key, sent] of this.sent) {
      const client = Math.floor(key / MAX_SHARDS);
      const at = key % MAX_SHARDS;
      if (at !== number || client < firstClient) continue;
      this.checkOwnRow(client, at, read(auditKeys(native, pool, client)[at]!), sent);
    }
    for (let index = 0; index < this.clients + 16; index++) {
      const key = this.sharedKey(native, pool, number, index);
      const sum = this.sums.get(key);
      if (sum === undefined) continue;
      const value = read(key)[0];
      if (value !== sum) throw new Violation(`shard ${g}/${m}: a shared row holds ${value}, not ${sum}`);
    }
    if (shardCount(pool) <= number) throw new Violation('a shard outside its pool');
  }
}
