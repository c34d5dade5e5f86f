/**
 * What must be true, from the pushes alone. Each client owns one row per shard; its n-th push there adds 2^n,
 * so the row is a bit mask of the pushes that were applied: a lost one leaves a hole, a repeated one carries.
 * Every push also adds to a shared row, whose final value is the sum over the pushes in the masks.
 *
 * What became of a push that failed, or whose client died, only its bit says.
 */

import { auditKeys } from '../client/audit.js';
import type { NativeAddon, NativeShard } from '../native.js';
import { type ClusterMap, type Pool, shardCount, tableByName } from '../protocol/map.js';
import { Violation } from './violation.js';

const FIRST = Uint32Array.of(0);

/** Of a pool in the simulator. */
const MAX_SHARDS = 1024;

function place(client: number, shard: number): number {
  return client * MAX_SHARDS + shard;
}

interface Push {
  ticket: number;
  shared: bigint;
  amount: number;
}

export class Oracle {
  /** place -> its pushes, the first one with number 1. */
  private readonly sent = new Map<number, Push[]>();
  private readonly acked = new Map<number, number>();
  /** Acknowledged to earlier processes of a client. */
  private readonly before = new Map<number, number>();
  private readonly doubtful = new Set<number>();

  constructor(private readonly clients: number) {}

  /** The number of the client's next push to a shard, from 1. */
  begin(client: number, shard: number, push: Push): number {
    const key = place(client, shard);
    const pushes = this.sent.get(key) ?? [];
    this.sent.set(key, pushes);
    return pushes.push(push);
  }

  /** Nobody was told whether the pushes of this ticket were applied. */
  doubt(ticket: number): void {
    this.doubtful.add(ticket);
  }

  /** The client's next process counts from 0. */
  countAgain(client: number): void {
    for (const [key, count] of this.acked)
      if (Math.floor(key / MAX_SHARDS) === client) this.before.set(key, count);
  }

  acknowledge(client: number, shard: number, count: number): void {
    const key = place(client, shard);
    this.acked.set(key, (this.before.get(key) ?? 0) + count);
  }

  acknowledged(client: number, shard: number): number {
    return this.acked.get(place(client, shard)) ?? 0;
  }

  /** Keys above all clients' own ones, spread over shards by the real hash. */
  sharedKey(native: NativeAddon, pool: Pool, shard: number, index: number): bigint {
    return auditKeys(native, pool, 1_000_000 + index)[shard]!;
  }

  /**
   * A row read while things happen: all of what was sent up to some push, with at least as many as were
   * acknowledged before. `whole`: nothing is under way any more.
   */
  checkOwnRow(client: number, shard: number, row: Float32Array, acknowledged: number, whole = false): void {
    const mask = row[0]!;
    for (let i = 1; i < row.length; i++)
      if (row[i] !== mask) throw new Violation(`client ${client} shard ${shard}: a torn row`);
    const pushes = this.sent.get(place(client, shard)) ?? [];
    const possible = Number.isInteger(mask) && mask >= 0 && mask % 2 === 0 && mask < 2 ** (pushes.length + 1);
    const upTo = whole ? pushes.length : Math.floor(Math.log2(Math.max(1, mask)));
    let applied = 0;
    let missing = !possible;
    for (const [i, { ticket }] of pushes.entries()) {
      if ((mask & (2 ** (i + 1))) !== 0) applied++;
      else if (i < upTo && !this.doubtful.has(ticket)) missing = true;
    }
    if (missing)
      throw new Violation(
        `client ${client} shard ${shard}: read ${mask}, which ${pushes.length} pushes do not give`,
      );
    if (applied < acknowledged) {
      throw new Violation(
        `client ${client} shard ${shard}: ${acknowledged} pushes acknowledged, ${applied} in the row`,
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
    const sums = new Map<bigint, number>();
    for (const [key, pushes] of this.sent) {
      const client = Math.floor(key / MAX_SHARDS);
      const at = key % MAX_SHARDS;
      if (at !== number) continue;
      const row = read(auditKeys(native, pool, client)[at]!);
      this.checkOwnRow(client, at, row, this.acknowledged(client, at), true);
      for (const [i, { shared, amount }] of pushes.entries())
        sums.set(shared, (sums.get(shared) ?? 0) + ((row[0]! & (2 ** (i + 1))) !== 0 ? amount : 0));
    }
    for (let index = 0; index < this.clients + 16; index++) {
      const key = this.sharedKey(native, pool, number, index);
      const sum = sums.get(key);
      if (sum === undefined) continue;
      const value = read(key)[0];
      if (value !== sum) throw new Violation(`shard ${g}/${m}: a shared row holds ${value}, not ${sum}`);
    }
    if (shardCount(pool) <= number) throw new Violation('a shard outside its pool');
  }
}
