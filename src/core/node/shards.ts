/**
 * Creates the owners that the map gives to a node, and drops those that it takes away, or that the system
 * refuses memory. Every step of an owner that may need memory for its first time runs through `during`.
 */
import type { NativeAddon, NativeMemory } from '../../engine/native.js';
import { shardKey } from '../../protocol/items.js';
import type { Group } from '../../protocol/map.js';
import { Owner } from '../shard/owner.js';
import type { NodeHost } from './host.js';
import type { Loading } from './loading.js';
import type { Owners } from './owners.js';
import { RefusedShards } from './refused.js';
import type { Saving } from './saving.js';
import type { Sinks } from './sinks.js';

export class Shards {
  private readonly refused: RefusedShards;

  constructor(
    private readonly host: NodeHost,
    private readonly native: NativeAddon,
    private readonly memory: NativeMemory,
    private readonly owners: Owners,
    private readonly saving: Saving,
    private readonly loading: Loading,
    sinks: Sinks,
  ) {
    this.refused = new RefusedShards(host, sinks);
  }

  /** Afterwards the node has owners of the group's data shards that the map gives to it, and no others. */
  place(group: Group): void {
    const { id, inc, map } = this.host;
    for (const [m, entry] of group.data.entries()) {
      const key = shardKey(group.id, m);
      const known = this.owners.at(group.id, m);
      const here = entry.node === id && entry.inc === inc;
      if (known && !(here && known.gen === entry.gen)) this.drop(known);
      const isRefused = this.refused.has(key, here ? entry.gen : undefined);
      if (isRefused || !here || this.owners.at(group.id, m)) continue;
      // r is at least 1 for the engine: a shard without parities can be decoded from a mirror, which has
      // the coefficients of parity 0.
      const r = Math.max(1, map.pools[group.pool]?.r ?? 0);
      const shard = this.native.createShard(this.memory, m, group.data.length, r);
      shard.tell(this.host.seconds, 0);
      this.owners.add(new Owner(group, m, entry, shard, this.host));
    }
  }

  /** Rule 50: a second of the job has passed. */
  tell(seconds: number): void {
    if (seconds <= this.host.seconds) return;
    this.host.seconds = seconds;
    for (const owner of this.owners.all()) this.during(owner, () => owner.onTime());
  }

  /** The owners of these groups learn the newest version of them. */
  applyVersions(groups: readonly Group[]): void {
    const { map } = this.host;
    for (const group of groups)
      for (const m of group.data.keys()) {
        const owner = this.owners.at(group.id, m);
        if (owner) this.during(owner, () => owner.onGroup(group, map));
      }
  }

  /** Hands a message of a stream to its owner, if that is here in exactly this generation. */
  to(message: { g: number; m: number; gen: number }, step: (owner: Owner) => void): void {
    const owner = this.owners.of(message);
    if (owner) this.during(owner, () => step(owner));
  }

  /**
   * Runs a step of an owner. If the system refuses memory before the shard was ever complete, the shard is
   * dropped as if its node had died: the other members still have all that it needs.
   */
  during(owner: Owner, step: () => void): void {
    try {
      step();
    } catch (error) {
      if ((error as { code?: unknown } | undefined)?.code !== 'MEMORY_LIMIT' || owner.wasComplete)
        throw error;
      this.drop(owner);
      this.refused.add(owner, error);
    }
  }

  private drop(owner: Owner): void {
    this.owners.remove(owner);
    this.host.forget(owner);
    this.saving.dropped(owner);
    this.loading.dropped(owner);
    owner.close();
  }

  /** `owners`: those that were here when the tick began. */
  tick(now: number, owners: readonly Owner[]): void {
    for (const owner of owners) this.during(owner, () => owner.tick());
    this.refused.tick(now);
  }

  close(): void {
    for (const owner of this.owners.all()) {
      this.owners.remove(owner);
      owner.close();
    }
  }
}
