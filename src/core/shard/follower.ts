/** What an owner knows of one sink on its stream. */
import type { Extent } from '../../native.js';
import type { SinkEntry } from '../../protocol/map.js';
import type { Dedup } from '../shared/dedup.js';
import type { Policy } from '../shared/policy.js';
import { Retry } from '../shared/retry.js';

export interface Follower {
  entry: SinkEntry;
  /** silent: nothing known; opened: it promised; starting: Start sent; started: it follows our generation. */
  state: 'silent' | 'opened' | 'starting' | 'started';
  /** It had no stream of this shard when it promised. */
  none: boolean;
  /** Its position when it promised. */
  applied: number;
  /** The generation that it followed when it promised. */
  sgen: number;
  dedup: Dedup | undefined;
  extents: Extent[];
  /** It has acknowledged everything up to here to us. Never decreases. */
  acked: number;
  /** True if, by the sink's newest acknowledgement, its node has no room for more deltas. */
  atLimit: boolean;
  /** The committed position that it was told. */
  told: number;
  /** Deltas, and committed positions that come without one. */
  readonly telling: Retry;
  /** Where its stream starts (new sinks). */
  base: number;
  /** Number of the newest Open. */
  attempt: number;
  /**
   * Number of the newest Open that was sent before the newest Start or resend. An answer to an Open up to
   * this number does not say whether that Start or resend arrived, so only an answer to a later Open may
   * cause another resend. So at most one resend is under way.
   */
  coveredAttempt: number;
  /** Opens and Starts; an answer is any sign that it moved on or is not behind. */
  readonly asking: Retry;
  /** Reports to the scheduler that it does not move on. */
  readonly stall: Retry;
}

/**
 * `born`: the owner was born with its group. A sink that was born with the group, too, needs no Open and no
 * Start.
 */
export function newFollower(entry: SinkEntry, born: boolean, policy: Policy, now: number): Follower {
  const bornTogether = born && entry.init;
  const follower: Follower = {
    entry,
    state: bornTogether ? 'started' : 'silent',
    none: !bornTogether,
    applied: 0,
    sgen: 0,
    dedup: undefined,
    extents: [],
    acked: bornTogether ? 0 : -1,
    atLimit: false,
    told: 0,
    telling: new Retry({ waitMs: policy.retryMs }),
    base: 0,
    attempt: 0,
    coveredAttempt: 0,
    asking: new Retry({ waitMs: policy.retryMs }),
    stall: new Retry({ waitMs: policy.sinkStallMs }),
  };
  follower.stall.answered(now);
  if (bornTogether) follower.asking.answered(now);
  return follower;
}
