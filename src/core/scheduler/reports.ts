/**
 * Reports of nodes. All of it is soft state: after a restart of the scheduler it comes back with heartbeats
 * (rule 29). A report counts only for shards and sinks that the newest map gives to the reporting process,
 * and it is forgotten when the map no longer names them.
 *
 * Sinks and ownerships that were complete once stay so: their numbers are never used again.
 */
import type { Group, PeerId, SinkEntry } from '../../protocol/map.js';
import { isInUse, seatOf } from '../../protocol/map.js';
import type { Heartbeat, MessageOf, RecoveryStats } from '../../protocol/messages.js';
import { changedGroups } from '../placement/group-index.js';
import type { Ledger } from './ledger.js';
import { Loads } from './loads.js';

/** A data shard that its owner has reported as beyond repair. */
export interface LostShard {
  g: number;
  m: number;
  /** Version of the group that it was reported in. */
  v: number;
  blocks: number;
}

type ReportedNode = Required<Pick<Heartbeat, 'bytes' | 'rows' | 'recoveries'>> & {
  limit: number | undefined;
};

export class Reports {
  /** The newest report of each node. */
  readonly nodes = new Map<PeerId, ReportedNode>();
  readonly loads = new Loads();
  /** Sids of the map whose sinks are complete. */
  private readonly completeSinks = new Set<number>();
  /** By group and member: the newest generation that is complete. */
  private readonly completeShards: number[][] = [];
  /** By group and member: rows, by the last report of an owner. */
  private readonly shardRows: number[][] = [];
  /** By group and member. All losses of a group are of one version of it. */
  private readonly lostShards = new Map<number, Map<number, LostShard>>();
  /** Groups of the map that `follow` looked at last, as a list and one by one. */
  private groups: readonly Group[] = [];
  private readonly seen: Group[] = [];
  /** All sinks of these groups by their sids, with the group of each. */
  private readonly sinks = new Map<number, SinkEntry & { g: number }>();
  /** Groups of which something became complete, or was lost, since they were last taken. */
  private touched = new Set<number>();

  constructor(private readonly ledger: Pick<Ledger, 'map'>) {}

  /** Forgets what the newest map does not name. */
  private follow(): void {
    const { groups } = this.ledger.map;
    if (groups === this.groups) return;
    this.groups = groups;
    const before = this.seen.slice();
    const changed = changedGroups(this.seen, groups);
    for (const g of changed) for (const { sid } of before[g]?.sinks ?? []) this.sinks.delete(sid);
    for (const g of changed) for (const sink of groups[g]!.sinks) this.sinks.set(sink.sid, { ...sink, g });
    for (const g of changed)
      for (const { sid } of before[g]?.sinks ?? []) if (!this.sinks.has(sid)) this.completeSinks.delete(sid);
    for (const g of changed) this.lostShards.delete(g);
  }

  /** True when something is complete that was not known to be. */
  learn(from: PeerId, heartbeat: Heartbeat, now: number): boolean {
    this.follow();
    const { inc, bytes, rows, limit } = heartbeat;
    const owns = (g: number, m: number, gen?: number): boolean => {
      const entry = this.groups[g]?.data[m];
      return entry?.node === from && entry.inc === inc && (gen === undefined || gen === entry.gen);
    };
    const known = heartbeat.recoveries ?? this.nodes.get(from)?.recoveries ?? [];
    const recoveries = known.filter(({ g, m, gen }) => owns(g, m, gen));
    this.nodes.set(from, { bytes, rows, recoveries, limit });
    for (const [g, seat, size, count] of heartbeat.held ?? [])
      if (owns(g, seat) || this.holdsParity(from, inc, g, seat)) this.loads.update(g, seat, size, count, now);
    for (const [g, m, count] of heartbeat.owned) if (owns(g, m)) put(this.shardRows, g, m, count);
    let news = false;
    for (const sid of heartbeat.completeSinks) {
      const sink = this.sinks.get(sid);
      if (sink?.node !== from || sink.inc !== inc || this.completeSinks.has(sid)) continue;
      this.completeSinks.add(sid);
      this.touched.add(sink.g);
      news = true;
    }
    for (const [g, m, gen] of heartbeat.completeShards) {
      if (!owns(g, m, gen) || this.isShardComplete(g, m, gen)) continue;
      put(this.completeShards, g, m, gen);
      this.touched.add(g);
      news = true;
    }
    return news;
  }

  /** The target of a move counts from a number of its own, so it is not heard before its move is over. */
  private holdsParity(node: PeerId, inc: number, g: number, seat: number): boolean {
    const group = this.groups[g];
    if (!group) return false;
    for (const sink of group.sinks)
      if (sink.node === node && sink.inc === inc && isInUse(sink) && seatOf(group, sink) === seat)
        return true;
    return false;
  }

  /** Recoveries under way on living and on lost nodes, by the newest report of each. */
  *recoveries(): Iterable<RecoveryStats> {
    for (const { recoveries } of this.nodes.values()) yield* recoveries;
  }

  isSinkComplete(sid: number): boolean {
    return this.completeSinks.has(sid);
  }

  isShardComplete(g: number, m: number, gen: number): boolean {
    return this.completeShards[g]?.[m] === gen;
  }

  /** The owner of this generation is past FENCE and START, as it has reported. */
  serves(node: PeerId, g: number, m: number, gen: number): boolean {
    if (this.isShardComplete(g, m, gen)) return true;
    const { recoveries = [] } = this.nodes.get(node) ?? {};
    return recoveries.some((each) => each.g === g && each.m === m && each.gen === gen && each.keysReady);
  }

  /** Rows of a shard, by the last report of whoever owned it. */
  rows(g: number, m: number): number {
    return this.shardRows[g]?.[m] ?? 0;
  }

  /** Takes a report of a loss: true if it is of the owner, and of the newest version of the group. */
  lose(from: PeerId, { g, m, gen, v, blocks }: MessageOf<'unrecoverable'>): boolean {
    this.follow();
    const group = this.groups[g];
    const entry = group?.data[m];
    if (group?.version !== v || entry?.node !== from || entry.gen !== gen) return false;
    const shards = this.lostShards.get(g) ?? new Map<number, LostShard>();
    this.lostShards.set(g, shards.set(m, { g, m, v, blocks }));
    this.touched.add(g);
    return true;
  }

  /** Groups of which something was reported since the last call. */
  takeTouched(): ReadonlySet<number> {
    const { touched } = this;
    this.touched = new Set();
    return touched;
  }

  /** All shards that are beyond repair, by the newest map. */
  get lost(): LostShard[] {
    if (this.lostShards.size > 0) this.follow();
    return [...this.lostShards.values()].flatMap((shards) => [...shards.values()]);
  }

  /** True: a shard of the group is beyond repair in this version of it. */
  isLost({ id, version }: Group): boolean {
    if (this.lostShards.size === 0) return false;
    this.follow();
    const [shard] = this.lostShards.get(id)?.values() ?? [];
    return shard?.v === version;
  }

  forget(node: PeerId): void {
    this.nodes.delete(node);
  }
}

function put(table: number[][], g: number, m: number, value: number): void {
  table[g] ??= [];
  table[g][m] = value;
}
