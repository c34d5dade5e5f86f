/** What every machine of a node gets from the node that runs it. */
import type { DeltaBytes } from './delta-bytes.js';
import type { Meter } from './meter.js';
import type { Outbox } from './outbox.js';
import type { Pace } from './pace.js';
import type { Policy } from './policy.js';
import type { RateLimit } from './rate.js';

export interface CoreHost {
  readonly out: Outbox;
  readonly policy: Policy;
  /** Of all deltas on this node. */
  readonly deltaBytes: DeltaBytes;
  /** Of background recovery on this node. */
  readonly pace: Pace;
  /** Of all planned moves to this node. */
  readonly moveRate: RateLimit;
  /** What is counted of requests, for whoever looks at this node. */
  readonly meter: Meter;
  /** Milliseconds of the newest tick. */
  readonly now: number;
  /**
   * Nothing but effects of this step refers to these bytes any more: a hint, so that large ones need not wait
   * for the garbage collector.
   */
  discard(bytes: Uint8Array): void;
}
