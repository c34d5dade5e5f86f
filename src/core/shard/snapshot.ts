/**
 * A snapshot of a shard at one position of its stream: its rows, and the de-duplication state of the same
 * position. It counts only when that position is committed, because what is above it may be rolled back.
 * Later pushes do not change it: before a row changes that was not read yet, the engine keeps a copy of it.
 */
import type { NativeShard, SnapshotRows } from '../../native.js';
import type { DedupEntry } from '../../protocol/messages.js';

/** Whose snapshot it is, while the ownership lasts. */
export interface SnapshotOwner {
  readonly native: NativeShard;
  readonly stream: { readonly committed: number };
}

export class ShardSnapshot {
  /**
   * Number of the snapshot in the engine: a later snapshot `since` this stamp has the rows that changed after
   * it.
   */
  readonly stamp: number;
  /** About. */
  bytesLeft: number;

  /** The open batch of the shard is flushed: its rows are those at `position`. */
  constructor(
    private readonly owner: SnapshotOwner,
    readonly position: number,
    readonly dedup: readonly DedupEntry[],
    readonly since: number,
  ) {
    const { stamp, bytes } = owner.native.beginSnapshot(since);
    this.stamp = stamp;
    this.bytesLeft = bytes;
  }

  /** Bytes that the engine keeps for it. */
  get keptBytes(): number {
    return this.owner.native.snapshotBytes;
  }

  /** Nothing of it can be rolled back any more. */
  get isCommitted(): boolean {
    return this.owner.stream.committed >= this.position;
  }

  /** The next rows; undefined: these were all. */
  read(maxBytes: number): SnapshotRows | undefined {
    const rows = this.owner.native.readSnapshot(maxBytes);
    this.bytesLeft = rows ? Math.max(0, this.bytesLeft - bytesOf(rows)) : 0;
    return rows;
  }

  giveUp(): void {
    this.owner.native.endSnapshot();
  }
}

export function bytesOf({ keys, values, state }: SnapshotRows): number {
  return keys.byteLength + values.byteLength + state.byteLength;
}
