/**
 * A replica: a client that follows the streams of all or some shards and answers pulls from what it has. It
 * holds nothing that the job needs, so it comes and goes as it likes. The age that it reports for its answers
 * depends on its own clock alone: it asks owners for their positions, and the scheduler for the newest map.
 */
import { filtered } from '../../engine/filters.js';
import type { EngineTable, NativeAddon, NativeMemory } from '../../engine/native.js';
import { shardKey } from '../../protocol/items.js';
import { type ClusterMap, type Group, type PeerId, SCHEDULER } from '../../protocol/map.js';
import type { Message, MessageOf } from '../../protocol/messages.js';
import type { ServedRows } from '../../protocol/saving.js';
import { checkSender } from '../../protocol/senders.js';
import { NONE_GONE } from '../shared/gone-tables.js';
import { KnownMap } from '../shared/known-map.js';
import { type Effect, Outbox } from '../shared/outbox.js';
import { DeltaMemory } from './delta-memory.js';
import { type ReplicaPolicy, ReplicaShard, type ReplicaShardHost } from './shard.js';

export type { ReplicaPolicy } from './shard.js';

export const DEFAULT_REPLICA_POLICY: ReplicaPolicy = { retryMs: 250, probeMs: 15, fills: 2, fillBlocks: 64 };

/** Questions whose time is remembered; an answer to an older one is worth nothing any more. */
const MAX_PROBES = 256;

export type ReplicaInput =
  | { kind: 'message'; from: PeerId; message: Message; parts: readonly Uint8Array[] }
  | { kind: 'peerUp'; peer: PeerId }
  | { kind: 'tick'; now: number };

/** The state of a replica, for the status of the job. */
export interface ReplicaState {
  shards: number;
  complete: number;
  lagMs: number;
  behind: number;
}

/** The position of the state that an answer was read from. */
export interface Position {
  gen: number;
  seq: number;
  /** Everything that was acknowledged so long ago is in it; Infinity: not known. */
  lagMs: number;
}

/** The share of the job that a replica holds, and the address at which it answers. */
export interface ReplicaPart {
  /** Every `of`-th shard of each pool, from the `part`-th on. Default: all. */
  share?: readonly [part: number, of: number] | undefined;
  /** Names of tables; default: all. */
  tables?: readonly string[] | undefined;
  /** Rows of tables with a policy that it serves; default: all that are admitted. */
  served?: ServedRows | undefined;
  address?: string | undefined;
}

const EMPTY = new Uint8Array(0);

export class ReplicaCore implements ReplicaShardHost {
  readonly out = new Outbox();
  readonly deltas = new DeltaMemory();
  now = 0;
  mapAt = Number.NEGATIVE_INFINITY;
  /** By `shardKey`. */
  private readonly shards = new Map<number, ReplicaShard>();
  /** Ids of streams and numbers of questions: ascending, each once. */
  private next = 1;
  /** Question -> when it was asked, and the newest stream that was asked for before. */
  private readonly probes = new Map<number, { at: number; upTo: number }>();
  private probedAt = Number.NEGATIVE_INFINITY;
  private readonly followed: KnownMap;
  private readonly share: readonly [part: number, of: number];
  /** Tables of the map that are not served here, and all others. */
  private others: ReadonlySet<number> = new Set();
  private known: ReadonlySet<number> = new Set();
  private gone = NONE_GONE;

  constructor(
    readonly native: NativeAddon,
    readonly memory: NativeMemory,
    readonly policy: ReplicaPolicy,
    private readonly what: ReplicaPart = {},
  ) {
    this.followed = new KnownMap(2 * policy.retryMs, (message) => this.out.send(SCHEDULER, message));
    this.share = what.share ?? [1, 1];
  }

  /** The newest map that this replica knows. */
  get map(): ClusterMap {
    return this.followed.newest;
  }

  step(input: ReplicaInput): Effect[] {
    if (input.kind === 'tick') this.tick(input.now);
    else if (input.kind === 'peerUp') this.peerUp(input.peer);
    else {
      checkSender(input.from === SCHEDULER ? 'scheduler' : 'node', 'client', input.message.t);
      this.receive(input.from, input.message, input.parts);
    }
    return this.out.take();
  }

  /** Says goodbye: owners forget it at once. */
  leave(): Effect[] {
    const n = this.next++;
    const owners = new Set(
      [...this.shards.values()].flatMap((shard) => (shard.position() ? shard.owner : [])),
    );
    for (const owner of owners) this.out.send(owner, { t: 'followProbe', n, upTo: n, items: [] });
    this.out.send(SCHEDULER, { t: 'detach' });
    return this.out.take();
  }

  close(): void {
    for (const shard of this.shards.values()) shard.close();
    this.shards.clear();
  }

  // ---- ReplicaHost

  tables(pool: number): readonly EngineTable[] {
    const { name, k = 1, groups = 1 } = this.map.pools[pool] ?? {};
    const tables = this.map.tables.filter((table) => table.pool === name && !this.others.has(table.id));
    // Shards of a replica have filters of the size that those of the owners have.
    return tables.map((table) => filtered(table, k * groups));
  }

  leavesOut(table: number): boolean {
    return this.others.has(table) || this.gone.has(table);
  }

  knows(table: number): boolean {
    return this.known.has(table) || this.gone.has(table);
  }

  get served(): ServedRows {
    return this.what.served ?? {};
  }

  newId(): number {
    return this.next++;
  }

  mayFill(): boolean {
    let filling = 0;
    for (const shard of this.shards.values()) if (shard.isFilling) filling++;
    return filling < this.policy.fills;
  }

  // ---- pulls

  shardAt(g: number, m: number): ReplicaShard | undefined {
    return this.shards.get(shardKey(g, m));
  }

  /** True for a shard that this replica holds, or is to hold. */
  holds(pool: number, shard: number): boolean {
    const [part, of] = this.share;
    if (this.what.tables && this.tables(pool).length === 0) return false;
    return pool < this.map.pools.length && shard % of === part - 1;
  }

  /** Names of tables that it is to serve and the job does not have. */
  get missingTables(): string[] {
    const { tables = [] } = this.what;
    return tables.filter((name) => !this.map.tables.some((table) => table.name === name));
  }

  /** The position of the state that pulls of a shard are answered from; undefined: no state is there yet. */
  position(g: number, m: number): Position | undefined {
    const shard = this.shardAt(g, m);
    const state = shard?.state;
    if (!shard || !state) return undefined;
    return { gen: state.gen, seq: state.seq, lagMs: this.now - shard.freshAt };
  }

  /** By the name of the pool: the age of the oldest state, and batches that are known of and not here. */
  lags(): Map<string, { lagMs: number; behind: number }> {
    const lags = new Map<string, { lagMs: number; behind: number }>();
    for (const shard of this.shards.values()) {
      const pool = this.map.pools[shard.pool]!.name;
      const { lagMs, behind } = lags.get(pool) ?? { lagMs: 0, behind: 0 };
      const oldest = Math.max(lagMs, this.now - shard.freshAt);
      lags.set(pool, { lagMs: oldest, behind: behind + shard.behind });
    }
    return lags;
  }

  status(): ReplicaState {
    let [complete, lagMs, behind] = [0, 0, 0];
    for (const shard of this.shards.values()) {
      if (shard.state) complete++;
      lagMs = Math.max(lagMs, this.now - shard.freshAt);
      behind += shard.behind;
    }
    return { shards: this.shards.size, complete, lagMs, behind };
  }

  // ---- messages

  private receive(from: PeerId, message: Message, parts: readonly Uint8Array[]): void {
    switch (message.t) {
      case 'map':
      case 'mapDiff':
        return this.onMap(message);
      case 'followed':
        return this.shardAt(message.g, message.m)?.onFollowed(message);
      case 'followDelta':
        this.shardAt(message.g, message.m)?.onDelta(message, parts[0] ?? EMPTY);
        return;
      case 'followContent':
        return this.shardAt(message.g, message.m)?.onContent(message, parts[0] ?? EMPTY, parts[1] ?? EMPTY);
      case 'followProbed':
        return this.onProbed(from, message);
      case 'hold':
        // A replica pushes nothing, so it answers at once, and a cut of one instant does not wait for it.
        this.out.send(SCHEDULER, { t: 'held', id: message.id, ranges: [] });
        return;
      case 'replicaHeard':
        return this.onHeard(message);
      default:
        return;
    }
  }

  private onMap(message: MessageOf<'map'> | MessageOf<'mapDiff'>): void {
    const change = this.followed.take(message, this.now);
    if (!change) return;
    const newTables = this.map.tables !== change.before.tables;
    if (newTables) this.onTables(change.before);
    for (const group of change.groups)
      for (const m of group.data.keys()) this.shardAt(group.id, m)?.onGroup(group);
    // A pool may have a table now that is to be served.
    for (const group of newTables ? this.map.groups : change.groups) this.take(group);
    if (newTables) for (const shard of this.shards.values()) shard.onTables();
    for (const shard of this.shards.values()) shard.tick();
  }

  private onTables(before: ClusterMap): void {
    const { tables } = this.what;
    this.gone = this.gone.by(this.map);
    const dropped = this.gone.since(before);
    if (dropped.length > 0) for (const shard of this.shards.values()) shard.dropTables(dropped);
    this.known = new Set(this.map.tables.map(({ id }) => id));
    if (!tables) return;
    const others = this.map.tables.filter(({ name }) => !tables.includes(name));
    this.others = new Set(others.map(({ id }) => id));
  }

  /** Begins to hold the shards of a group that it is to hold. */
  private take(group: Group): void {
    const pool = this.map.pools[group.pool]!;
    for (const m of group.data.keys()) {
      if (this.shardAt(group.id, m)) continue;
      if (this.holds(group.pool, (group.id - pool.firstGroup) * pool.k + m))
        this.shards.set(shardKey(group.id, m), new ReplicaShard(group, m, this));
    }
  }

  private onProbed(from: PeerId, { n, items }: MessageOf<'followProbed'>): void {
    const probe = this.probes.get(n);
    if (!probe) return;
    const positions = new Map(items);
    for (const shard of this.shards.values()) {
      const id = shard.streamId;
      if (shard.owner === from && id !== undefined) shard.onProbed(probe.at, positions.get(id), probe.upTo);
    }
  }

  private onHeard({ n, epoch }: MessageOf<'replicaHeard'>): void {
    const probe = this.probes.get(n);
    if (!probe) return;
    if (epoch > this.map.epoch) return this.followed.ask(this.now);
    this.mapAt = Math.max(this.mapAt, probe.at);
    for (const shard of this.shards.values()) shard.refresh();
  }

  private peerUp(peer: PeerId): void {
    for (const shard of this.shards.values()) if (shard.owner === peer) shard.again();
  }

  // ---- time

  private tick(now: number): void {
    this.now = now;
    for (const shard of this.shards.values()) shard.tick();
    if (now - this.probedAt < this.policy.probeMs) return;
    this.probedAt = now;
    this.probe();
  }

  /** Asks all owners where they are, and the scheduler for its map. */
  private probe(): void {
    const nodes = new Map<PeerId, [id: number, applied: number][]>();
    for (const shard of this.shards.values()) {
      const position = shard.position();
      if (!position) continue;
      const items = nodes.get(shard.owner) ?? [];
      nodes.set(shard.owner, items);
      items.push(position);
    }
    const n = this.next++;
    this.probes.set(n, { at: this.now, upTo: n });
    for (const [oldest] of this.probes) {
      if (this.probes.size <= MAX_PROBES) break;
      this.probes.delete(oldest);
    }
    for (const [node, items] of nodes) this.out.send(node, { t: 'followProbe', n, upTo: n, items });
    const [part, of] = this.share;
    const { shards, complete, lagMs, behind } = this.status();
    const known = Number.isFinite(lagMs) ? Math.round(lagMs) : Number.MAX_SAFE_INTEGER;
    const { address = '', tables, served } = this.what;
    this.out.send(SCHEDULER, {
      ...{ t: 'replicaReport', n, address, share: [part, of], ...(tables && { tables: [...tables] }) },
      ...(served && { served }),
      ...{ shards, complete, behind, lagMs: known },
    });
  }
}
