/**
 * The tables of a shard, as the map has them. Rule 46: their learning rates are those of the map that the
 * shard is served by. Sinks follow rows, so they need no rates.
 */
import type { NativeShard } from '../../engine/native.js';
import type { ClusterMap, TableSpec } from '../../protocol/map.js';

export class ShardTables {
  /** Highest id of a table that the shard has. */
  newest = 0;
  private seen: readonly TableSpec[] = [];

  constructor(
    private readonly native: Pick<NativeShard, 'addTable'>,
    private readonly pool: number,
  ) {}

  /** Tables are only added, in the order of their ids. */
  follow({ pools, tables }: ClusterMap): void {
    const { seen } = this;
    if (tables === seen) return;
    this.seen = tables;
    const pool = pools[this.pool]?.name;
    for (const [i, table] of tables.entries()) {
      if (table.pool !== pool || seen[i]?.optimizer.lr === table.optimizer.lr) continue;
      this.newest = Math.max(this.newest, table.id);
      this.native.addTable(table);
    }
  }
}
