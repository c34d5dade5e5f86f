/**
 * Tables that were dropped. Rule 47: a table is gone with the epoch that drops it. That epoch is durable, so
 * whatever a message of an older map says about the table means nothing any more, and is left out.
 */
import type { BlockList, Extent } from '../../engine/native.js';
import { type ClusterMap, EMPTY_MAP, lastTableOf } from '../../protocol/map.js';
import { selected, selectedPush } from './sections.js';

export class GoneTables {
  /** Ids of the tables of the map. Undefined: the job has dropped none. */
  private readonly present: ReadonlySet<number> | undefined;
  private readonly last: number;

  constructor(private readonly map: ClusterMap) {
    const { tables, lastTable } = map;
    this.last = lastTable ?? 0;
    if (lastTable !== undefined) this.present = new Set(tables.map(({ id }) => id));
  }

  /** The same tables by a newer map. */
  by(map: ClusterMap): GoneTables {
    return map.tables === this.map.tables ? this : new GoneTables(map);
  }

  /** The job has dropped this table. */
  has(table: number): boolean {
    return this.present !== undefined && table <= this.last && !this.present.has(table);
  }

  /**
   * Tables that are gone, and that a process may have which had the map `before` until now. Messages of
   * others may have told it of tables that come after those of its map.
   */
  since(before: ClusterMap): number[] {
    if (!this.present) return [];
    const ids = before.tables.map(({ id }) => id);
    for (let id = lastTableOf(before) + 1; id <= this.last; id++) ids.push(id);
    return ids.filter((id) => this.has(id));
  }

  /** Without blocks of tables that are gone. */
  blocks(blocks: BlockList): BlockList {
    if (!this.touches(blocks)) return blocks;
    const kept: number[] = [];
    for (let i = 0; i < blocks.length; i += 2)
      if (!this.has(blocks[i]! >>> 1)) kept.push(blocks[i]!, blocks[i + 1]!);
    return Uint32Array.from(kept);
  }

  /** A block is of a table that is gone. */
  touches(blocks: BlockList): boolean {
    if (!this.present) return false;
    for (let i = 0; i < blocks.length; i += 2) if (this.has(blocks[i]! >>> 1)) return true;
    return false;
  }

  extents(extents: Extent[]): Extent[] {
    return this.present ? extents.filter(([table]) => !this.has(table)) : extents;
  }

  /** A DELTA section without tables that are gone. @throws BAD_FRAME */
  delta(delta: Uint8Array): Uint8Array {
    return this.present ? selected(delta, (table) => !this.has(table)) : delta;
  }

  /**
   * The REQUEST section of a push, as `delta`. A push that a drop overtakes is as if it had come before.
   * @throws BAD_FRAME
   */
  push(section: Uint8Array): Uint8Array {
    return this.present ? selectedPush(section, (table) => !this.has(table)) : section;
  }
}

export const NONE_GONE = new GoneTables(EMPTY_MAP);
