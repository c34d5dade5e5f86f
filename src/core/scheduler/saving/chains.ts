/**
 * The files of each shard in the newest checkpoint of a plan. The next checkpoint adds the rows that changed
 * since. This is soft state, so the first checkpoint after a start of the scheduler has all rows.
 *
 * Only the ownership that made a snapshot knows what changed since. Another owner saves all rows.
 */
import { invariant } from '../../../common/errors.js';
import type { SavedShard, SegmentRef } from '../../../protocol/checkpoints.js';
import { shardKey } from '../../../protocol/items.js';
import type { MessageOf } from '../../../protocol/messages.js';

/** The files of one shard in the newest checkpoint. */
interface Chain {
  /** The ownership that made the newest snapshot, and the number of that snapshot in its engine. */
  gen: number;
  stamp: number;
  /** Position of the newest files in the stream of the shard. */
  position: number;
  /** Files, oldest first. */
  segments: SegmentRef[];
  /** Bytes of the files with all rows. */
  fullBytes: number;
  /** Bytes of the files that were added since. */
  addedBytes: number;
  /** Number of checkpoints since the files with all rows. */
  increments: number;
}

/** The files of a shard that one attempt has saved. */
export type ChainSegment = Pick<
  MessageOf<'shardSaved'>,
  'g' | 'm' | 'gen' | 'position' | 'stamp' | 'since' | 'segments'
>;

export class Chains {
  private readonly chains = new Map<number, Chain>();
  /** Ids of the tables of the newest checkpoint, as text. */
  private tables = '';

  constructor(private readonly maxIncrements: number) {}

  /**
   * Sets the tables of the next checkpoint, by their ids. If they differ from those of the newest one, its
   * files are of no use: they lack rows of other tables.
   */
  choose(tables: readonly number[] | undefined): void {
    const chosen = tables ? tables.join() : 'all';
    if (chosen !== this.tables) this.clear();
    this.tables = chosen;
  }

  /**
   * The stamp since which the owner in generation `gen` saves changes. 0: all rows, because there is nothing
   * to add to, or there are too many increments.
   */
  since(g: number, m: number, gen: number): number {
    const chain = this.chains.get(shardKey(g, m));
    if (chain?.gen !== gen || chain.increments >= this.maxIncrements) return 0;
    return chain.addedBytes > chain.fullBytes ? 0 : chain.stamp;
  }

  /** All files of a shard, and how many bytes of them are new. */
  private with(saved: ChainSegment): Chain {
    const added = saved.segments.map(([name, bytes, sha256, rows]) => ({ name, bytes, sha256, rows }));
    const bytes = added.reduce((sum, segment) => sum + segment.bytes, 0);
    const { gen, stamp, position, since, g, m } = saved;
    const before = this.chains.get(shardKey(g, m));
    if (since === 0)
      return { gen, stamp, position, segments: added, fullBytes: bytes, addedBytes: 0, increments: 0 };
    invariant(before?.stamp === since, 'what changed is added to what it changed from', { g, m, gen, since });
    return {
      ...{ gen, stamp, segments: [...before.segments, ...added], fullBytes: before.fullBytes },
      // Where nothing of chosen tables has changed there is no new file.
      position: added.length > 0 ? position : before.position,
      ...{ addedBytes: before.addedBytes + bytes, increments: before.increments + 1 },
    };
  }

  /** All files of a shard, and the position of the newest of them. */
  content(saved: ChainSegment): Pick<SavedShard, 'position' | 'segments'> {
    const { position, segments } = this.with(saved);
    return { position, segments };
  }

  /** Rows of a shard in the files of the newest checkpoint; undefined: it has none that is known. */
  rows(g: number, m: number): number | undefined {
    return this.chains.get(shardKey(g, m))?.segments.reduce((sum, { rows }) => sum + rows, 0);
  }

  /** The checkpoint with these shards is published. */
  accept(all: Iterable<ChainSegment>): void {
    for (const saved of all) this.chains.set(shardKey(saved.g, saved.m), this.with(saved));
  }

  /** Files of earlier checkpoints may be gone. */
  clear(): void {
    this.chains.clear();
  }
}
