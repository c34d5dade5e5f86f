/** The knowledge that an owner has of one sink on its stream. Stream positions are numbers of batches. */
import type { Extent } from '../../engine/native.js';
import type { SinkEntry } from '../../protocol/map.js';
import type { Dedup } from '../shared/dedup.js';
import type { Policy } from '../shared/policy.js';
import { Retry } from '../shared/retry.js';

export interface Follower {
  /** The sink in the newest map that this owner knows. */
  entry: SinkEntry;
  /**
   * silent: nothing is known of the sink. opened: it promised to take nothing from an older generation.
   * starting: Start was sent. started: it follows this generation. The state only moves forward.
   */
  state: 'silent' | 'opened' | 'starting' | 'started';
  /**
   * True: the sink cannot give lost blocks. It had no stream of this shard at the take-over, or it is a
   * mirror that was rolled back to a position before it included them.
   */
  none: boolean;
  /** Position of the sink when it promised, for the take-over only. 0 before the promise. */
  applied: number;
  /** Generation that the sink followed when it promised, for the take-over only. 0: none. */
  sgen: number;
  /** De-duplication state of the sink at the base. Known from its StartAck of the take-over on. */
  dedup: Dedup | undefined;
  /** Extents of the shard's tables in the sink. Known from its StartAck of the take-over on. */
  extents: Extent[];
  /**
   * The sink has acknowledged every delta up to this position, or needs none below it because its stream
   * started here. -1 before that. Never decreases; in an active stream never below the committed position.
   */
  acked: number;
  /** True if, by the sink's newest acknowledgement, its node has no room for more deltas. */
  atLimit: boolean;
  /** Committed position that the sink was told last; 0 after a reconnect, because it may not have arrived. */
  told: number;
  /** Times at which the sink was told a committed position, with a delta or without. */
  readonly telling: Retry;
  /** Position at which the sink's stream of this generation starts. Set before Start is sent, then fixed. */
  base: number;
  /** Number of the newest Open of this owner to the sink. Only grows. */
  attempt: number;
  /**
   * Number of the newest Open before the newest Start or resend; never above `attempt`. Rule 11: an answer to
   * an Open up to this number does not say whether that Start or resend arrived, so it causes no other one.
   * So at most one resend is under way.
   */
  coveredAttempt: number;
  /** Opens and Starts. Any sign that the sink moved on, or is not behind, counts as an answer. */
  readonly asking: Retry;
  /** Reports to the scheduler that the sink does not answer. */
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
