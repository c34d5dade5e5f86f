/**
 * Messages of replicas: clients that follow the streams of shards and answer pulls. Only the owner of a shard
 * knows who follows it, and a new owner does not. No map names a replica, and nobody waits for one.
 */
import type { ErrorCode } from '../common/errors.js';
import type { Extent } from '../engine/native.js';
import type { ReplicaStatus } from './status.js';

/** Most tables that a replica serves, unless it serves all. */
export const MAX_REPORTED_TABLES = 64;

interface FollowedShard {
  g: number;
  m: number;
  gen: number;
  /** Number of one attempt to follow one shard. A replica gives ascending numbers, each once. */
  id: number;
}

// ---- replica -> owner
/**
 * The sender wants the stream of this ownership. `have`: it has the state at `applied` of the stream of
 * generation `gen` and can roll back to `trim`; undefined: it has no state.
 */
export interface Follow extends FollowedShard {
  t: 'follow';
  v: number;
  have?: [gen: number, trim: number, applied: number];
}
/** part: blocks that the sender lacks. */
export interface FollowWant extends FollowedShard {
  t: 'followWant';
}
/**
 * Asks for the positions of all shards of the receiver that the sender follows. `items`: (id, position that
 * the sender has). The receiver ends the streams to this sender that have an id up to `upTo` and are not
 * among `items`.
 */
export interface FollowProbe {
  t: 'followProbe';
  /** Number of the question, ascending, which the answer repeats. */
  n: number;
  upTo: number;
  items: [id: number, applied: number][];
}

// ---- owner -> replica
/**
 * `fresh`: the stream begins at `base`, and the replica asks for all blocks below `extents`. `resumed`: the
 * stream is resumed at `base`, and the replica rolls back what it has above. `gone`: the stream cannot be
 * resumed with the replica's state.
 */
export interface Followed extends FollowedShard {
  t: 'followed';
  how: 'fresh' | 'resumed' | 'gone';
  base: number;
  extents: Extent[];
}
/** part: the delta of batch `seq`, which has the same bytes as for sinks. */
export interface FollowDelta extends FollowedShard {
  t: 'followDelta';
  seq: number;
  committed: number;
}
/** parts: the wanted blocks that the owner has, and their bytes at position `seq`. */
export interface FollowContent extends FollowedShard {
  t: 'followContent';
  seq: number;
  servedRatio?: number;
}
/** The shards that the receiver follows here, and their positions when the probe was read, or later. */
export interface FollowProbed {
  t: 'followProbed';
  n: number;
  items: [id: number, seq: number][];
}

// ---- replica -> scheduler
/** Asks for the epoch of the newest map, and describes the sender for the status of the job. */
export interface ReplicaReport extends Omit<ReplicaStatus, 'id'> {
  t: 'replicaReport';
  n: number;
  /** Names of the served tables, at most MAX_REPORTED_TABLES; absent: all. */
  tables?: string[];
}

// ---- scheduler -> replica
/** Epoch of the newest map when the report was read, or later. */
export interface ReplicaHeard {
  t: 'replicaHeard';
  n: number;
  epoch: number;
}

// ---- who reads -> replica
/**
 * `items`: (g, m, bytes), packed. part: their REQUEST sections, one after the other. All items are answered,
 * or the read is refused. `maxLagMs`: greatest age of the rows; absent: the limit of the replica. `missing`:
 * the value to give for keys without a row, as a float32 of 4 bytes, little-endian; absent: the initial
 * values.
 */
export interface Read {
  t: 'read';
  id: number;
  items: Uint8Array;
  maxLagMs?: number;
  missing?: Uint8Array;
}

// ---- replica -> who reads
/**
 * part: the ROWS sections of all items, in order. `states`: (generation, position) of each. The rows have
 * every push that was acknowledged `lagMs` ago or before.
 */
export interface ReadRows {
  t: 'readRows';
  id: number;
  states: [gen: number, seq: number][];
  lagMs: number;
}
export interface ReadRefused {
  t: 'readRefused';
  id: number;
  code: ErrorCode;
  message: string;
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
  | ReplicaHeard
  | Read
  | ReadRows
  | ReadRefused;
