/**
 * Audit of the own rows that a load client reads from replicas. An answer must be a state that the owner had:
 * each row is the sum of a prefix of the pushes to it. An answer must not be older than it says: the prefix
 * has what was acknowledged before. Within one ownership a later position never has fewer pushes.
 */

import { KintsugiError } from '../../src/common/errors.js';
import { loadNative } from '../../src/engine/native.js';
import type { Client } from '../../src/library/client/client.js';
import type { ReplicaAnswer } from '../../src/library/client/options.js';
import { monotonicMs } from '../../src/net/log.js';
import { poolOf, shardCount } from '../../src/protocol/map.js';

export interface AuditCounts {
  /** Pulls that were answered, and those that were refused because no replica had what was asked for. */
  reads: number;
  refused: number;
  longestLagMs: number;
}

/** The rows that are read, and what is known of them. */
export interface AuditedRows {
  table: string;
  dim: number;
  keys: BigUint64Array;
  /** Pushes to a row that were sent; what a row holds after so many of them. */
  sent(row: number): number;
  sum(pushes: number): number;
}

/** Pushes to a row that a state had, by its position. */
interface Seen {
  position: number;
  pushes: number;
}

export class ReplicaAudit {
  readonly counts: AuditCounts = { reads: 0, refused: 0, longestLagMs: 0 };
  /** When each push to a row was acknowledged, in order. */
  private readonly acknowledged: number[][];
  /** "shard/generation/row" -> the newest state that was seen of it. */
  private readonly seen = new Map<string, Seen>();
  private shards: Uint32Array | undefined;

  constructor(
    private readonly reader: Client,
    private readonly rows: AuditedRows,
  ) {
    this.acknowledged = Array.from({ length: rows.keys.length }, () => []);
  }

  /** A push to these rows is durable. */
  durable(rows: readonly number[]): void {
    const now = monotonicMs();
    for (const row of rows) this.acknowledged[row]!.push(now);
  }

  /**
   * Reads all rows. Returns what is wrong with the answer.
   * `complete`: everything that was acknowledged before must be in it; undefined: whatever it says it has
   */
  async check(): Promise<{ wrong: string | undefined; complete: boolean }> {
    const { table, keys } = this.rows;
    const asked = monotonicMs();
    let answer: ReplicaAnswer | undefined;
    const rows = await this.reader
      .pull([{ table, keys }], {
        onAnswer: (it) => {
          answer = it;
        },
      })
      .catch((error: unknown) => {
        if (error instanceof KintsugiError && error.code === 'STALE_REPLICA') return undefined;
        throw error;
      });
    if (!rows || !answer) {
      this.counts.refused++;
      return { wrong: undefined, complete: false };
    }
    this.counts.reads++;
    this.counts.longestLagMs = Math.max(this.counts.longestLagMs, answer.lagMs);
    const before = asked - answer.lagMs;
    const complete = this.acknowledged.every((times) => (times.at(-1) ?? 0) < before);
    return { wrong: this.problem(rows[0]!, answer, before), complete };
  }

  private problem(
    values: Float32Array,
    { states, lagMs }: ReplicaAnswer,
    before: number,
  ): string | undefined {
    const { keys, dim, sent, sum } = this.rows;
    const stateOf = new Map(states.map((state) => [state.shard, state]));
    for (const row of keys.keys()) {
      const found = values.subarray(row * dim, (row + 1) * dim);
      const where = `row ${row} of a replica`;
      if (found.some((value) => value !== found[0])) return `${where} is torn: ${found.join(' ')}`;
      let pushes = 0;
      while (pushes < sent(row) && sum(pushes) !== found[0]) pushes++;
      if (sum(pushes) !== found[0])
        return `${where} holds ${found[0]}, which no prefix of ${sent(row)} pushes gives`;
      const least = countBefore(this.acknowledged[row]!, before);
      if (pushes < least)
        return `${where} has ${pushes} of ${least} acknowledged pushes and says that it is ${lagMs} ms old`;
      const state = stateOf.get(this.shardOf(row));
      if (!state) return `${where}: the answer does not say of which state it is`;
      const key = `${state.shard}/${state.generation}/${row}`;
      const seen = this.seen.get(key);
      const { position } = state;
      const goesBack = seen && (position < seen.position ? pushes > seen.pushes : pushes < seen.pushes);
      const differs = seen?.position === position && seen.pushes !== pushes;
      if (goesBack || differs)
        return `${where} has ${pushes} pushes at ${position}, and had ${seen.pushes} at ${seen.position}`;
      if (!seen || position > seen.position) this.seen.set(key, { position, pushes });
    }
    return undefined;
  }

  private shardOf(row: number): number {
    this.shards ??= this.findShards();
    return this.shards[row]!;
  }

  private findShards(): Uint32Array {
    const { keys, table } = this.rows;
    const { pool } = this.reader.table(table).spec;
    const { order, starts } = loadNative().partition(keys, shardCount(poolOf(this.reader.clusterMap, pool)!));
    const shards = new Uint32Array(keys.length);
    for (let shard = 0; shard + 1 < starts.length; shard++)
      for (let i = starts[shard]!; i < starts[shard + 1]!; i++) shards[order[i]!] = shard;
    return shards;
  }
}

/** How many of these ascending times are before `end`. */
function countBefore(times: readonly number[], end: number): number {
  let count = times.length;
  while (count > 0 && times[count - 1]! >= end) count--;
  return count;
}
