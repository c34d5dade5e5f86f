/** What an owner knows of one sink on its stream. */
import type { Extent } from '../../native.js';
import type { SinkEntry } from '../../protocol/map.js';
import type { Dedup } from '../shared/dedup.js';

export interface Follower {
  entry: SinkEntry;
  /** silent: nothing known; opened: it promised; starting: Start sent; started: it follows our generation. */
  state: 'silent' | 'opened' | 'starting' | 'started';
  /** It had no stream of this shard when it promised. */
  none: boolean;
  /** Its position when it promised. */
  applied: number;
  dedup: Dedup | undefined;
  extents: Extent[];
  /** Everything up to here it has acknowledged to us. */
  acked: number;
  /** Where its stream starts (new sinks). */
  base: number;
  sentAt: number;
  /** When it was last asked for its position. */
  openedAt: number;
  /** When it last moved on, or was not behind. */
  movedAt: number;
  reportedAt: number;
}

/** `born`: the owner was born with its group, so a sink that was, too, has nothing to be told. */
export function newFollower(entry: SinkEntry, born: boolean, now: number): Follower {
  const bornTogether = born && entry.init;
  return {
    entry,
    state: bornTogether ? 'started' : 'silent',
    none: !bornTogether,
    applied: 0,
    dedup: undefined,
    extents: [],
    acked: bornTogether ? 0 : -1,
    base: 0,
    sentAt: Number.NEGATIVE_INFINITY,
    openedAt: Number.NEGATIVE_INFINITY,
    movedAt: now,
    reportedAt: Number.NEGATIVE_INFINITY,
  };
}
