/**
 * A snapshot of a shard at one position of its stream: its rows, and the de-duplication state of the same
 * position. Rule 34: it counts only when that position is committed, because uncommitted pushes may be rolled
 * back. Later pushes do not change it: before they change a row that is still to be read, the engine copies
 * the row.
 */
import type { NativeShard } from '../../engine/native.js';
import type { FilterState, SnapshotRows } from '../../engine/snapshots.js';
import type { DedupEntry } from '../../protocol/messages.js';
import type { ServedRows } from '../../protocol/saving.js';

/** The owner that makes the snapshot. A snapshot is void when the ownership ends. */
export interface SnapshotOwner {
  readonly native: NativeShard;
  readonly stream: { readonly committed: number };
}

export class ShardSnapshot {
  /**
   * Number of the snapshot in the engine of this owner: a later snapshot `since` this stamp has the rows that
   * changed after it.
   */
  readonly stamp: number;
  /** The stamp of the snapshot after which its rows changed. 0: it has all rows. */
  readonly since: number;
  /** Estimate of the bytes of rows that are still to be read: never negative, 0 when all were read. */
  bytesLeft: number;
  /** Filters of tables by their ids; none where only values are wanted. */
  readonly filters: ReadonlyMap<number, FilterState>;

  /** The caller has flushed the open batch, so the rows are those at `position`. */
  constructor(
    private readonly owner: SnapshotOwner,
    readonly position: number,
    readonly dedup: readonly DedupEntry[],
    wanted: number,
    served: ServedRows | undefined,
  ) {
    const { native } = owner;
    const { minFrequency = 0, maxAge = 0, maxAgeSeconds = 0 } = served ?? {};
    const { stamp, since, bytes } = served
      ? native.beginSnapshot(wanted, true, minFrequency, maxAge, maxAgeSeconds)
      : native.beginSnapshot(wanted);
    this.stamp = stamp;
    this.since = since;
    this.bytesLeft = bytes;
    const filters = served ? [] : native.filters();
    this.filters = new Map(filters.map(({ table, ...filter }) => [table, filter]));
  }

  /** Bytes of the rows that the engine keeps for this snapshot. */
  get keptBytes(): number {
    return this.owner.native.snapshotBytes;
  }

  /** The position is committed, so no row of the snapshot can be rolled back. */
  get isCommitted(): boolean {
    return this.owner.stream.committed >= this.position;
  }

  /** The next rows; undefined: all were read. */
  read(maxBytes: number): SnapshotRows | undefined {
    const rows = this.owner.native.readSnapshot(maxBytes);
    this.bytesLeft = rows ? Math.max(0, this.bytesLeft - bytesOf(rows)) : 0;
    return rows;
  }

  giveUp(): void {
    this.owner.native.endSnapshot();
  }
}

export function bytesOf({ keys, values, state, removed, filter }: SnapshotRows): number {
  const rows = keys.byteLength + values.byteLength + state.byteLength;
  const counters = (filter?.slots.byteLength ?? 0) + (filter?.counters.byteLength ?? 0);
  return rows + (removed?.byteLength ?? 0) + counters;
}
