/**
 * Checks that every acknowledged push was applied once. What clients counted is compared with the audit rows
 * that their pushes changed (src/library/client/audit.ts), not with the protocol's own de-duplication. Exact
 * up to 2^24 pushes of a client to a shard.
 */

import { KintsugiError } from '../../common/errors.js';
import { checkArray, checkInteger } from '../../common/options.js';
import { loadNative } from '../../engine/native.js';
import { type Pool, shardCount, tableByName } from '../../protocol/map.js';
import { auditKeys, auditTable } from '../client/audit.js';
import type { Client, PushCounts } from '../client/client.js';
import { ranges } from '../client/concurrent.js';
import { internalsOf } from '../client/connected.js';

/** Audit rows that are pulled at once, of whole clients: each has one per shard. */
const ROWS_PER_PULL = 65_536;

/** Counts of one client: `client.id` and `client.pushCounts()`. */
export interface ClientCounts {
  client: number;
  counts: PushCounts[];
}

/** The fate of the pushes of some clients. */
export interface PushAudit {
  /** Pushes that clients saw acknowledged; a push counts once per shard that it touches. */
  acked: number;
  /** Acknowledged, but not in the audit row. */
  lost: number;
  /** In the audit row more often than the client sent it. */
  duplicated: number;
}

/**
 * Compares the counts of clients that connected with `audit` and have stopped pushing with the rows that
 * their pushes changed.
 * @throws UNKNOWN_TABLE (nobody connected with `audit`), UNRECOVERABLE, BAD_ARGUMENT, CLOSED
 */
export async function checkPushes(client: Client, counts: readonly ClientCounts[]): Promise<PushAudit> {
  internalsOf(client);
  checkArray('checkPushes: counts', counts);
  const { pools } = client.clusterMap;
  checkCounts(counts, pools);
  const result: PushAudit = { acked: 0, lost: 0, duplicated: 0 };
  for (const pool of pools) {
    const pushed = counts.filter((entry) => entry.counts.some((count) => count.pool === pool.name));
    if (pushed.length === 0 && !tableByName(client.clusterMap, auditTable(pool).name)) continue;
    const clients = Math.max(1, Math.floor(ROWS_PER_PULL / shardCount(pool)));
    for (const [from, to] of ranges(counts.length, clients))
      await comparePool(client, pool, counts.slice(from, to), result);
  }
  return result;
}

/** Each client once, and of each its shards once. A report may say more of each. @throws BAD_ARGUMENT */
function checkCounts(given: readonly ClientCounts[], pools: readonly Pool[]): void {
  const where = 'checkPushes: ';
  const refuse = (text: string) => new KintsugiError('BAD_ARGUMENT', `${where}${text}`);
  const clients = new Set<number>();
  for (const each of given) {
    if (typeof each !== 'object' || each === null) throw refuse('an entry of counts must be an object');
    const { client, counts } = each;
    checkInteger(`${where}client`, client, 0);
    if (clients.has(client)) throw refuse(`client ${client} is there twice`);
    clients.add(client);
    checkArray(`${where}counts of a client`, counts);
    const shards = new Set<string>();
    for (const count of counts) {
      const pool = pools.find(({ name }) => name === count?.pool);
      if (!pool) throw refuse(`counts of client ${client} have no pool of this job`);
      const { shard } = count;
      checkInteger(`${where}shard`, shard, 0);
      if (shard >= shardCount(pool))
        throw refuse(`shard ${shard} is none of pool "${pool.name}", which has ${shardCount(pool)}`);
      for (const name of ['sent', 'acknowledged', 'refused'] as const)
        checkInteger(`${where}${name}`, count[name], 0);
      const known = `${pool.name}/${shard}`;
      if (shards.has(known)) throw refuse(`shard ${shard} of client ${client} is there twice`);
      shards.add(known);
    }
  }
}

async function comparePool(
  client: Client,
  pool: Pool,
  some: readonly ClientCounts[],
  result: PushAudit,
): Promise<void> {
  const shards = shardCount(pool);
  const keys = new BigUint64Array(some.length * shards);
  for (const [index, each] of some.entries())
    keys.set(auditKeys(loadNative(), pool, each.client), index * shards);
  const [rows] = await client.pull([{ table: auditTable(pool).name, keys }]);
  for (const [index, each] of some.entries())
    compare(pool, rows!.subarray(index * shards, (index + 1) * shards), each.counts, result);
}

function compare(pool: Pool, rows: Float32Array, own: readonly PushCounts[], result: PushAudit): void {
  const byShard = new Map(
    own.filter((count) => count.pool === pool.name).map((count) => [count.shard, count]),
  );
  // Shards that the client never pushed to are read too: a row there would be a push to the wrong shard.
  for (const [shard, applied] of rows.entries()) {
    const { sent, acknowledged, refused } = byShard.get(shard) ?? { sent: 0, acknowledged: 0, refused: 0 };
    result.acked += acknowledged;
    result.lost += Math.max(0, acknowledged - applied);
    // A refused push changed nothing, so only the others may have reached the row.
    result.duplicated += Math.max(0, applied - (sent - refused));
  }
}
