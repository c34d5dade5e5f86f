/**
 * Messages of replicas: clients that follow the streams of shards and answer pulls. Who follows is known to
 * the owner of a shard only, and only while it lasts: no map names a replica, nothing waits for one.
 */
import type { Extent } from '../native.js';

interface FollowedShard {
  g: number;
  m: number;
  gen: number;
  /** Of one attempt to follow one shard. A replica gives ascending numbers and never one twice. */
  id: number;
}

// ---- replica -> owner
/**
 * The sender wants the stream of this ownership. `have`: it has the state at `applied` of the stream of
 * generation `gen` and can go back to `trim`; undefined: it has nothing and wants to begin.
 */
export interface Follow extends FollowedShard {
  t: 'follow';
  v: number;
  have?: [gen: number, trim: number, applied: number];
}
/** part: blocks that it does not have. */
export interface FollowWant extends FollowedShard {
  t: 'followWant';
}
/**
 * Where are you now? Of all shards of the receiver that the sender follows. `items`: (id, position that the
 * sender has). What the receiver knows of this sender with an id up to `upTo` and does not find here is over.
 */
export interface FollowProbe {
  t: 'followProbe';
  /** Ascending; the answer has it. */
  n: number;
  upTo: number;
  items: [id: number, applied: number][];
}

// ---- owner -> replica
/**
 * `fresh`: the stream begins at `base`, all blocks below `extents` are to be asked for. `resumed`: it goes on
 * at `base`; what the replica has above it is taken back. `gone`: it cannot go on with what the replica has.
 */
export interface Followed extends FollowedShard {
  t: 'followed';
  how: 'fresh' | 'resumed' | 'gone';
  base: number;
  extents: Extent[];
}
/** part: the delta of batch `seq`. */
export interface FollowDelta extends FollowedShard {
  t: 'followDelta';
  seq: number;
  committed: number;
}
/** parts: those of the wanted blocks that the owner has, and their bytes at position `seq`. */
export interface FollowContent extends FollowedShard {
  t: 'followContent';
  seq: number;
  servedRatio?: number;
}
/** Shards that the receiver follows here, and their positions when the probe was read, or later. */
export interface FollowProbed {
  t: 'followProbed';
  n: number;
  items: [id: number, seq: number][];
}

// ---- replica -> scheduler
/** Is this the newest map? And what the sender is, for the status of the job. */
export interface ReplicaReport {
  t: 'replicaReport';
  n: number;
  /** Where it answers pulls. */
  address: string;
  /** It holds every `of`-th shard, from the `part`-th on, `part` from 1. */
  share: [part: number, of: number];
  /** Shards that it is to hold, and those of which it has a state. */
  shards: number;
  complete: number;
  /** Age of the oldest state that it has; the number of batches that it knows of and does not have. */
  lagMs: number;
  behind: number;
}

// ---- scheduler -> replica
/** The newest map when the report was read, or later. */
export interface ReplicaHeard {
  t: 'replicaHeard';
  n: number;
  epoch: number;
}

export type ReplicaMessage =
  | Follow
  | FollowWant
  | FollowProbe
  | Followed
  | FollowDelta
  | FollowContent
  | FollowProbed
  | ReplicaReport
  | ReplicaHeard;
