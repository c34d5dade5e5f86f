/**
 * What heartbeats have told. All of it is soft: after a restart of the scheduler it comes back with them
 * (rule 29). Sinks and ownerships that were complete once stay so: their numbers are never used again.
 */
import type { PeerId } from '../../protocol/map.js';
import type { Heartbeat } from '../../protocol/messages.js';
import { Loads } from './loads.js';

export class Reports {
  readonly completeSinks = new Set<number>();
  readonly heartbeats = new Map<PeerId, Heartbeat>();
  readonly loads = new Loads();
  private readonly completeShards = new Set<string>();
  private readonly shardRows = new Map<string, number>();

  /** True when something is complete that was not known to be. */
  learn(from: PeerId, heartbeat: Heartbeat, now: number): boolean {
    const { completeSinks, completeShards, owned } = heartbeat;
    const before = this.completeSinks.size + this.completeShards.size;
    this.heartbeats.set(from, heartbeat);
    this.loads.update(heartbeat, now);
    for (const [g, m, rows] of owned) this.shardRows.set(`${g}/${m}`, rows);
    for (const sid of completeSinks) this.completeSinks.add(sid);
    for (const entry of completeShards) this.completeShards.add(entry.join('/'));
    return this.completeSinks.size + this.completeShards.size > before;
  }

  isShardComplete(group: number, member: number, gen: number): boolean {
    return this.completeShards.has(`${group}/${member}/${gen}`);
  }

  rows(g: number, m: number): number {
    return this.shardRows.get(`${g}/${m}`) ?? 0;
  }
}
