/** The accounts and effects that all machines of a node share: owners, streams and sinks. */
import type { ContentBytes } from './content-bytes.js';
import type { DeltaBytes } from './delta-bytes.js';
import type { GoneTables } from './gone-tables.js';
import type { Meter } from './meter.js';
import type { Outbox } from './outbox.js';
import type { Pace } from './pace.js';
import type { Policy } from './policy.js';
import type { RateLimit } from './rate.js';

export interface CoreHost {
  readonly out: Outbox;
  readonly policy: Policy;
  /** Account of the bytes of all deltas on this node. */
  readonly deltaBytes: DeltaBytes;
  /** Account of the block content between this node and others. */
  readonly contentBytes: ContentBytes;
  /** Pace of all background recovery on this node. */
  readonly pace: Pace;
  /** Limit on the rate of all planned moves to this node. */
  readonly moveRate: RateLimit;
  /** Counts requests, rows and times for observers of this node. */
  readonly meter: Meter;
  /** Tables that are gone by the newest map. */
  readonly gone: GoneTables;
  /** Milliseconds of the newest tick. */
  readonly now: number;
  /**
   * Takes bytes that only effects of this step still refer to. It is a hint, so that the memory of large ones
   * need not wait for the garbage collector.
   */
  discard(bytes: Uint8Array): void;
}
