/**
 * A job whose processes were all killed and that was started again with a checkpoint: what of the pushes of
 * its dead clients must be in it, and what is.
 *
 * Each shard of a checkpoint is of one position, so it holds the first so many pushes of each client that
 * touch it, as many as the client's audit row there says. These are compared with the files of the
 * checkpoint, with the rows of the client, and with what it had told: all that was acknowledged before the
 * checkpoint began is in it, and nothing that was never sent.
 */

import { loadNative } from '../../src/engine/native.js';
import { auditKeys, auditTable } from '../../src/library/client/audit.js';
import type { Client } from '../../src/library/client/client.js';
import { shardCount, tableByName } from '../../src/protocol/map.js';
import { readManifest } from '../../src/stores/checkpoint/checkpoints.js';
import { openPlace, withPlace } from '../../src/stores/checkpoint/open.js';
import { readSegmentOf, verifyCheckpoint } from '../../src/stores/checkpoint/verify.js';
import type { LoadClient } from './clients.js';
import { eachShard, isZero, type PrefixCounts, ShardsOfPushes } from './prefix.js';
import { CRASHED, OWN, PushStream } from './pushes.js';

/** Pushes count once per shard that they touch. */
export interface RestoredCounts {
  /** Pushes that clients saw acknowledged before they were killed. */
  acknowledged: number;
  /** Acknowledged pushes that are in the checkpoint. */
  restored: number;
  /** Pushes that were acknowledged after the checkpoint had begun, and are not in it: allowed. */
  lostAfterCheckpoint: number;
  /** Pushes that were acknowledged before it began, and are not in it: must be 0. */
  lostBefore: number;
  /** Pushes in the checkpoint whose clients were killed before an acknowledgement came. */
  untold: number;
}

/** Part of the pushes of a client that a checkpoint holds. */
export interface Held {
  load: LoadClient;
  counts: PrefixCounts;
}

export interface RestoreCheck {
  counts: RestoredCounts;
  /** Clients of whose pushes some are in the job. */
  held: Held[];
  wrong: string[];
}

/** Whether all checkpoints that a place lists are whole: one line for each file that is not. */
export function damaged(url: string, numbers: readonly number[]): Promise<string[]> {
  return withPlace(url, async (place) => {
    const wrong: string[] = [];
    for (const number of numbers) {
      const { bad } = await verifyCheckpoint(place, number);
      for (const { name, problem } of bad) wrong.push(`checkpoint ${number}: ${name}: ${problem}`);
    }
    return wrong;
  });
}

/** By table: the first value of every row that a checkpoint has. */
async function auditRowsOf(url: string, number: number): Promise<Map<string, Map<bigint, number>>> {
  const place = await openPlace(url);
  const found = new Map<string, Map<bigint, number>>();
  const manifest = await readManifest(place, number);
  for (const shard of manifest.shards) {
    for (const ref of shard.segments) {
      const { tables } = await readSegmentOf(place, manifest, shard, ref);
      for (const { name, dim, keys, values } of tables) {
        if (dim !== 1) continue;
        const rows = found.get(name) ?? new Map<bigint, number>();
        for (const [i, key] of keys.entries()) rows.set(key, values[i]!);
        found.set(name, rows);
      }
    }
  }
  await place.close();
  return found;
}

export class RestoreChecker {
  private readonly shards: ShardsOfPushes;
  private readonly wrong: string[] = [];
  private readonly counts: RestoredCounts = {
    ...{ acknowledged: 0, restored: 0, lostAfterCheckpoint: 0, lostBefore: 0, untold: 0 },
  };

  /** `begunAt`: when the checkpoint began, on the clock of the log records. */
  constructor(
    private readonly client: Client,
    private readonly begunAt: number,
    private readonly barrier: boolean,
  ) {
    this.shards = new ShardsOfPushes(client.clusterMap);
  }

  /** Before new clients connect: they may get numbers of those of whom nothing is left. */
  async check(url: string, number: number, gone: readonly LoadClient[]): Promise<RestoreCheck> {
    const files = await auditRowsOf(url, number);
    const held: Held[] = [];
    for (const load of gone.filter(({ id }) => id >= 0)) {
      const counts = await this.heldOf(load, files);
      await this.compare(load, counts);
      if (!isZero(counts)) held.push({ load, counts });
    }
    return { counts: this.counts, held, wrong: this.wrong };
  }

  private say(load: LoadClient, what: string): void {
    this.wrong.push(`client ${load.options.client}, restored: ${what}`);
  }

  private async heldOf(load: LoadClient, files: Map<string, Map<bigint, number>>): Promise<PrefixCounts> {
    const counts = await countsOf(this.client, load.id);
    for (const pool of this.client.clusterMap.pools) {
      const { name } = auditTable(pool);
      for (const [shard, key] of auditKeys(loadNative(), pool, load.id).entries()) {
        const [served, saved] = [counts[pool.name]![shard]!, files.get(name)?.get(key) ?? 0];
        if (served !== saved)
          this.say(load, `shard ${shard} of ${pool.name} has ${served} pushes, its files have ${saved}`);
      }
    }
    return counts;
  }

  private async compare(load: LoadClient, held: PrefixCounts): Promise<void> {
    const { seed, client: number, sharedRows, crash } = load.options;
    const stream = new PushStream(seed, number, sharedRows, crash);
    const seen = this.shards.none();
    const rows = new Map<bigint, number>();
    /** With a barrier: the first push that is not in it. */
    let firstMissing = Number.POSITIVE_INFINITY;
    for (let push = 1; push <= load.sent; push++) {
      const touched = this.shards.of(stream.next().requests);
      for (const [pool, shard] of eachShard(touched)) {
        const isHeld = ++seen[pool]![shard]! <= held[pool]![shard]!;
        if (!isHeld) firstMissing = Math.min(firstMissing, push);
        else if (push > firstMissing && this.barrier)
          this.say(
            load,
            `push ${push} is in it in part, and ${firstMissing} is not, in spite of the barrier`,
          );
        this.count(load, push, isHeld);
      }
      const own = touched.find(({ request }) => request.table === (crash ? CRASHED : OWN).name)!;
      for (const [i, key] of own.request.keys.entries()) {
        const shard = own.shards[i]!;
        if (seen[own.pool]![shard]! <= held[own.pool]![shard]!)
          rows.set(key, (rows.get(key) ?? 0) + own.request.gradients[i * OWN.dim]!);
      }
    }
    for (const [pool, counts] of Object.entries(held))
      for (const [shard, count] of counts.entries())
        if (count > seen[pool]![shard]!)
          this.say(load, `shard ${shard} of ${pool} has ${count} pushes, ${seen[pool]![shard]} were sent`);
    await this.compareRows(load, stream.keys(), rows);
  }

  private count(load: LoadClient, push: number, isHeld: boolean): void {
    const { counts } = this;
    const at = load.acknowledgedAt.get(push);
    if (at === undefined) {
      if (isHeld) counts.untold++;
      return;
    }
    counts.acknowledged++;
    if (isHeld) counts.restored++;
    else if (at >= this.begunAt) counts.lostAfterCheckpoint++;
    else {
      counts.lostBefore++;
      this.say(load, `push ${push} was acknowledged before the checkpoint began, and is lost`);
    }
  }

  private async compareRows(
    load: LoadClient,
    keys: BigUint64Array,
    rows: Map<bigint, number>,
  ): Promise<void> {
    const { name } = load.options.crash ? CRASHED : OWN;
    if (!tableByName(this.client.clusterMap, name)) return;
    const [values] = await this.client.pull([{ table: name, keys }]);
    for (const [i, key] of keys.entries()) {
      const row = values!.subarray(i * OWN.dim, (i + 1) * OWN.dim);
      const sum = rows.get(key) ?? 0;
      if (row.some((value) => value !== sum))
        this.say(load, `row ${i} holds ${row.join(' ')}, its pushes give ${sum}`);
    }
  }
}

/** Number of pushes of each shard, according to the audit rows of a client. */
async function countsOf(client: Client, id: number): Promise<PrefixCounts> {
  const { pools } = client.clusterMap;
  const known = pools.filter((pool) => tableByName(client.clusterMap, auditTable(pool).name));
  const rows = await client.pull(
    known.map((pool) => ({ table: auditTable(pool).name, keys: auditKeys(loadNative(), pool, id) })),
  );
  return Object.fromEntries(
    pools.map((pool) => {
      const at = known.indexOf(pool);
      return [pool.name, at < 0 ? new Array(shardCount(pool)).fill(0) : Array.from(rows[at]!)];
    }),
  );
}

/** Clients whose audit rows are not any more what they were. */
export async function changedSince(client: Client, held: readonly Held[]): Promise<string[]> {
  const wrong: string[] = [];
  for (const { load, counts } of held) {
    const now = await countsOf(client, load.id);
    for (const [pool, shards] of Object.entries(counts))
      for (const [shard, count] of shards.entries())
        if (now[pool]![shard] !== count)
          wrong.push(
            `client ${load.options.client}: shard ${shard} of ${pool} had ${count} pushes when it was ` +
              `restored, and has ${now[pool]![shard]} now`,
          );
  }
  return wrong;
}
