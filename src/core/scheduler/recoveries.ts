/**
 * Recoveries of data shards, as events: a recovery is all shards that one decision gave new owners because
 * their own were gone. Its number is the epoch of the map that the decision made. Its set of shards is soft
 * state. A recovery that an earlier scheduler began, and whose events have no end, is resumed: its shards are
 * then all shards that are incomplete when all nodes have reported, and it ends when these are complete.
 */
import type { JobEvent } from '../../protocol/events.js';
import { shardKey } from '../../protocol/items.js';
import { type Group, mirrorOf } from '../../protocol/map.js';
import type { RecoveryStats } from '../../protocol/status.js';
import type { Ledger } from './ledger.js';
import type { Liveness } from './liveness.js';
import type { Reports } from './reports.js';

interface Shard {
  readonly g: number;
  readonly m: number;
  readonly gen: number;
  keysReady: boolean;
}

interface NumberedRecovery {
  readonly number: number;
  /** Milliseconds; also those of a recovery of an earlier scheduler are on the clock of this one. */
  readonly begunAt: number;
  /**
   * Shards that are still part of it, by `shardKey`: complete ones, too, until all are. Empty only while it
   * is resumed.
   */
  readonly shards: Map<number, Shard>;
  /** True: an event has said that all its shards have their keys, so that they serve. */
  serves: boolean;
  /** Number of its shards when an earlier scheduler began it; undefined: this process began it. */
  readonly count?: number;
}

/** A recovery of an earlier scheduler that has no end among the events. */
interface Unended {
  number: number;
  /** Milliseconds since 1970. */
  at: number;
  count: number;
  serves: boolean;
}

/** Recoveries in the events that have begun and not ended, since the job was last redundant. */
function unendedIn(events: Iterable<JobEvent>): Unended[] {
  const open = new Map<number, Unended>();
  for (const { kind, at, fields } of [...events].sort((a, b) => a.number - b.number)) {
    const number = Number(fields.recovery);
    const known = open.get(number);
    if (kind === 'recovery.begun')
      open.set(number, { number, at, count: Number(fields.shards), serves: false });
    else if (kind === 'recovery.keysReady' && known) known.serves = true;
    else if (kind === 'recovery.complete') open.delete(number);
    else if (kind === 'redundancy' && fields.state === 'full') open.clear();
  }
  return [...open.values()];
}

export class Recoveries {
  private running: NumberedRecovery[] = [];
  private now = 0;
  private wall = 0;
  /** Recoveries to resume; empty once they are resumed. */
  private unended: Unended[];

  constructor(
    private readonly ledger: Ledger,
    private readonly liveness: Liveness,
    private readonly reports: Reports,
  ) {
    this.unended = unendedIn(ledger.state.events.values());
  }

  /** Number of recoveries of which a shard is not complete. */
  get underWay(): number {
    return this.running.length;
  }

  /** `wall`: milliseconds since 1970. */
  tick(now: number, wall: number): void {
    this.now = now;
    this.wall = wall;
  }

  /** All nodes have reported to a scheduler that resumes the job. */
  resume(reported: Iterable<RecoveryStats>): void {
    const { unended, now, wall, ledger, reports } = this;
    this.unended = [];
    if (unended.length === 0) return;
    const open = new Map<number, Shard>();
    for (const { id: g, data } of ledger.map.groups)
      for (const [m, { gen, node, restore }] of data.entries()) {
        const isOpen = node !== 0 && !restore && !reports.isShardComplete(g, m, gen);
        const isLostAgain = this.running.some(({ shards }) => shards.has(shardKey(g, m)));
        if (isOpen && !isLostAgain) open.set(shardKey(g, m), { g, m, gen, keysReady: false });
      }
    for (const { number, at, count, serves } of unended) {
      const shards = new Map([...open].map(([key, shard]) => [key, { ...shard }]));
      this.running.push({ number, begunAt: now - Math.max(0, wall - at), shards, serves, count });
    }
    this.heard([...reported]);
  }

  /** A decision has changed groups: the map has `after`. */
  decided(before: readonly Group[], after: readonly Group[]): void {
    const shards = new Map<number, Shard>();
    for (const [g, group] of after.entries()) {
      const old = before[g];
      if (!old || old === group) continue;
      for (const [m, { gen, node, restore }] of group.data.entries()) {
        if (gen === old.data[m]!.gen) continue;
        this.forget(g, m);
        const isRecovered = node !== 0 && !restore && !this.isHandedOver(old, group, m);
        if (isRecovered) shards.set(shardKey(g, m), { g, m, gen, keysReady: false });
      }
    }
    if (shards.size === 0) return;
    const { epoch: number } = this.ledger.map;
    this.running.push({ number, begunAt: this.now, shards, serves: false });
    this.ledger.afterwards({
      kind: 'event',
      name: 'recovery.begun',
      fields: { recovery: number, shards: shards.size },
    });
  }

  /** The end of a move: its old owner lives, and the new one has a complete mirror beside it. */
  private isHandedOver(before: Group, after: Group, m: number): boolean {
    const owner = before.data[m]!;
    const mirror = mirrorOf(before, m);
    const { node } = after.data[m]!;
    const isTarget = node !== owner.node && mirror?.node === node && this.reports.isSinkComplete(mirror.sid);
    return isTarget && this.liveness.isAlive(owner.node, owner.inc);
  }

  /** A node has reported how far its recoveries are, and what is complete. */
  heard(reported: readonly RecoveryStats[]): void {
    if (this.running.length === 0) return;
    for (const { g, m, gen, keysReady } of reported) {
      if (!keysReady) continue;
      for (const { shards } of this.running) {
        const shard = shards.get(shardKey(g, m));
        if (shard?.gen === gen) shard.keysReady = true;
      }
    }
    this.look();
  }

  /** The shard is beyond repair, or another owner recovers it: no recovery waits for it any more. */
  forget(g: number, m: number): void {
    for (const { shards } of this.running) shards.delete(shardKey(g, m));
    this.running = this.running.filter(({ shards }) => shards.size > 0);
  }

  private look(): void {
    const { running, ledger, reports } = this;
    for (const recovery of running) {
      const shards = [...recovery.shards.values()];
      const isComplete = ({ g, m, gen }: Shard) => reports.isShardComplete(g, m, gen);
      const fields = {
        recovery: recovery.number,
        shards: recovery.count ?? shards.length,
        tookMs: Math.round(this.now - recovery.begunAt),
      };
      if (!recovery.serves && shards.every((shard) => shard.keysReady || isComplete(shard))) {
        recovery.serves = true;
        ledger.now({ kind: 'event', name: 'recovery.keysReady', fields });
      }
      if (!shards.every(isComplete)) continue;
      this.running = this.running.filter((other) => other !== recovery);
      ledger.now({ kind: 'event', name: 'recovery.complete', fields });
    }
  }
}
