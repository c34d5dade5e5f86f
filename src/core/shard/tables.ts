/**
 * The tables of a shard, as the map has them. Rule 46: their settings are those of the map that the shard is
 * served by. Sinks follow rows, so they need no settings. A policy that is set holds from the next push on,
 * or the next second (rule 50): the engine keeps the rule that holds beside the rows (native/engine/rule.h),
 * so every later owner has it.
 */

import { withFilter } from '../../engine/filters.js';
import type { BlockList, NativeShard } from '../../engine/native.js';
import { policyOfShard } from '../../engine/policies.js';
import { type ClusterMap, shardAt, type TableSpec } from '../../protocol/map.js';
import { isSetAlike } from '../../protocol/settings.js';

export class ShardTables {
  /** Highest id of a table that the shard has. */
  newest = 0;
  private seen: readonly TableSpec[] = [];
  private ownPool = '';

  constructor(
    private readonly native: Pick<NativeShard, 'addTable'>,
    private readonly pool: number,
    private readonly group: number,
    private readonly member: number,
  ) {}

  /** Both lists are in the order of their ids. Tables that are gone were dropped before (rule 47). */
  follow({ pools, tables }: ClusterMap): void {
    const { seen } = this;
    if (tables === seen) return;
    this.seen = tables;
    const { name: pool = '', k = 1, groups = 1 } = pools[this.pool] ?? {};
    this.ownPool = pool;
    const shard = pools[this.pool] ? shardAt(pools[this.pool]!, this.group, this.member) : 0;
    let at = 0;
    for (const table of tables) {
      while (at < seen.length && seen[at]!.id < table.id) at++;
      const before = seen[at]?.id === table.id ? seen[at] : undefined;
      const isKnown = before && isSetAlike(before, table);
      if (table.pool !== pool || isKnown) continue;
      this.newest = Math.max(this.newest, table.id);
      const { policy } = table;
      const own = policy && withFilter(table, policyOfShard(policy, k * groups), shard);
      this.native.addTable(own ? { ...table, policy: own } : table);
    }
  }

  /** By the newest map that the shard follows. */
  has(id: number): boolean {
    return this.seen.some((table) => table.id === id && table.pool === this.ownPool);
  }

  /** The tables of all blocks are, or were, in a map that the shard has followed. */
  knowsAll(blocks: BlockList): boolean {
    for (let i = 0; i < blocks.length; i += 2) if (blocks[i]! >>> 1 > this.newest) return false;
    return true;
  }
}
