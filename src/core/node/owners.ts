/** The owners on a node by their shards: at most one for each. */
import { addLife, type LifeCounts } from '../../engine/policies.js';
import { shardKey } from '../../protocol/items.js';
import type { Owner } from '../shard/owner.js';

export class Owners {
  /** By `shardKey`. An owner is in it from its creation until it is closed. */
  private readonly byShard = new Map<number, Owner>();
  /** By table, the counts of owners that were removed: counters of a process only grow. */
  private readonly lives = new Map<number, LifeCounts>();

  get size(): number {
    return this.byShard.size;
  }

  at(g: number, m: number): Owner | undefined {
    return this.byShard.get(shardKey(g, m));
  }

  /** The owner that a message of a stream is for: of this shard in exactly this generation. */
  of(message: { g: number; m: number; gen: number }): Owner | undefined {
    const owner = this.at(message.g, message.m);
    return owner?.gen === message.gen ? owner : undefined;
  }

  /** A live view: an owner that is removed during the walk is not visited. */
  values(): Iterable<Owner> {
    return this.byShard.values();
  }

  /** A copy, which stays as it is when owners come and go. */
  all(): Owner[] {
    return [...this.byShard.values()];
  }

  add(owner: Owner): void {
    this.byShard.set(shardKey(owner.group.id, owner.member), owner);
  }

  /** Before the owner is closed. */
  remove({ group, member, native }: Owner): void {
    if (!this.byShard.delete(shardKey(group.id, member))) return;
    for (const { table, life } of native.stats()) addLife(this.lives, table, life);
  }

  get livesThatWere(): ReadonlyMap<number, LifeCounts> {
    return this.lives;
  }

  dropTables(tables: readonly number[]): void {
    for (const owner of this.byShard.values()) owner.dropTables(tables);
    for (const id of tables) this.lives.delete(id);
  }
}
