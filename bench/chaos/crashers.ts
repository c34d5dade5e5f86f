/**
 * Clients that are killed in the middle of their pushes. Nobody knows what they had sent, but their audit
 * rows tell how many pushes of theirs each shard applied; then every one of their rows must be exactly what
 * those first pushes give, or a push was applied in part.
 */

import { loadNative } from '../../src/engine/native.js';
import { auditKeys, auditTable } from '../../src/library/client/audit.js';
import type { Client } from '../../src/library/client/client.js';
import { type FrozenMap, poolOf, shardCount } from '../../src/protocol/map.js';
import { LoadClient } from './clients.js';
import type { ChaosLoadOptions } from './load.js';
import { CRASHED, OWN, PushStream } from './pushes.js';

/** Numbers of their own, so that their rows are nobody else's. */
const FIRST_CLIENT = 1_000_000;

export class Crashers {
  /** All that were killed, the newest last. */
  readonly dead: LoadClient[] = [];
  private current: LoadClient | undefined;

  constructor(
    private readonly options: Omit<ChaosLoadOptions, 'client' | 'crash' | 'tellsAll'>,
    private readonly onWrong: (what: string) => void,
    private readonly onLine: (line: string) => void,
    private readonly token: string,
    /** Words before the program on the command line, which put it on its machine. */
    private readonly prefix: readonly string[],
    /** Number of clients that were killed in earlier lives of the job. */
    private readonly earlier = 0,
  ) {}

  start(): void {
    const client = FIRST_CLIENT + this.earlier + this.dead.length;
    const options = { ...this.options, client, crash: true, tellsAll: true };
    this.current = new LoadClient(options, this.onWrong, this.onLine, this.token, this.prefix);
  }

  /** Kills the one that is at work and starts another; undefined when it has not pushed yet. */
  crash(): string | undefined {
    const victim = this.current;
    if (!victim || victim.acknowledged === 0) return undefined;
    victim.kill();
    this.dead.push(victim);
    this.start();
    return `client-${victim.options.client}`;
  }

  /** The last one, too, with all other processes of the job. */
  killAll(): void {
    if (!this.current) return;
    this.current.kill();
    this.dead.push(this.current);
    this.current = undefined;
  }

  /** The last one crashes, too. */
  async stop(): Promise<void> {
    this.crash();
    this.current?.kill();
    await Promise.all([...this.dead, ...(this.current ? [this.current] : [])].map((each) => each.gone));
  }

  /**
   * Rows that are not what the applied pushes give, or fewer pushes than were acknowledged: one line each.
   */
  async check(client: Client): Promise<string[]> {
    const wrong: string[] = [];
    for (const load of this.dead) wrong.push(...(await checkCrashed(client, load)));
    return wrong;
  }
}

async function checkCrashed(client: Client, load: LoadClient): Promise<string[]> {
  const { seed, client: number, sharedRows } = load.options;
  const native = loadNative();
  const pool = poolOf(client.clusterMap, 'embedding')!;
  const stream = new PushStream(seed, number, sharedRows, true);
  const keys = stream.keys();
  const [counts, values] = await client.pull([
    { table: auditTable(pool).name, keys: auditKeys(native, pool, load.id) },
    { table: CRASHED.name, keys },
  ]);
  const shardOf = shardsOf(client.clusterMap, keys);
  const { lost, sums } = appliedPushes(stream, shardOf, Array.from(counts!), load.acknowledgedAt);
  const wrong = lost.map((push) => `client ${number}: push ${push} was acknowledged and is lost`);
  for (const [i, key] of keys.entries()) {
    const row = values!.subarray(i * OWN.dim, (i + 1) * OWN.dim);
    const sum = sums.get(key) ?? 0;
    if (row.some((value) => value !== sum))
      wrong.push(`client ${number}, killed: row ${i} holds ${row.join(' ')}, its pushes give ${sum}`);
  }
  return wrong;
}

/** The pushes of a client, as its shards have applied them. */
interface AppliedPushes {
  /** Acknowledged pushes that some shard did not apply */
  lost: number[];
  /** By key: the sum of what was applied */
  sums: Map<bigint, number>;
}

/**
 * The pushes of which each shard applied the first so many. A push waits for all of its shards, so any number
 * of later ones that touch others may be acknowledged before it.
 */
export function appliedPushes(
  stream: PushStream,
  shardOf: ReadonlyMap<bigint, number>,
  applied: readonly number[],
  acknowledged: ReadonlyMap<number, unknown>,
): AppliedPushes {
  const left = [...applied];
  const lost: number[] = [];
  const sums = new Map<bigint, number>();
  const last = Math.max(0, ...acknowledged.keys());
  for (let push = 1; push <= last || left.some((count) => count > 0); push++) {
    const [request] = stream.next().requests;
    const touched = new Set<number>();
    for (const [i, key] of request!.keys.entries()) {
      const shard = shardOf.get(key)!;
      touched.add(shard);
      if (left[shard]! > 0) sums.set(key, (sums.get(key) ?? 0) + request!.gradients[i * OWN.dim]!);
    }
    if (acknowledged.has(push) && [...touched].some((shard) => left[shard] === 0)) lost.push(push);
    for (const shard of touched) if (left[shard]! > 0) left[shard]!--;
  }
  return { lost, sums };
}

function shardsOf(map: FrozenMap, keys: BigUint64Array): Map<bigint, number> {
  const shards = shardCount(poolOf(map, 'embedding')!);
  const { order, starts } = loadNative().partition(keys, shards);
  const found = new Map<bigint, number>();
  for (let shard = 0; shard < shards; shard++)
    for (let i = starts[shard]!; i < starts[shard + 1]!; i++) found.set(keys[order[i]!]!, shard);
  return found;
}
