/**
 * Messages of checkpoints. A save plan says what of the job is saved where and how often. An attempt carries
 * out a plan once: the scheduler asks the owners of all data shards, each saves its own, and the manifest is
 * written when all are stored.
 */
import type { ErrorCode } from '../errors.js';
import type { SegmentRef } from './checkpoints.js';
import type { PeerId } from './map.js';
import type { RangeProgress } from './samples.js';

/** Name of the save plan of everything, which flags and commands are about. */
export const CHECKPOINT_PLAN = 'checkpoint';

/** Two addresses of one place: they differ in slashes, or one is a URL of the other one's path. */
export function isSamePlace(one: string, other: string): boolean {
  return partsOfPlace(one).join('/') === partsOfPlace(other).join('/');
}

function partsOfPlace(url: string): string[] {
  const [, named, path = url] = /^([a-z][a-z0-9+.-]*):\/\/(.*)$/is.exec(url) ?? [];
  const scheme = named?.toLowerCase();
  const parts = path.split('/').filter((part) => part !== '' && part !== '.');
  return [scheme ?? 'file', ...parts.map((part) => (scheme === 'file' ? decoded(part) : part))];
}

/** Of a URL; what is no code stays as it is. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** What is saved, where, and how often. */
export interface SavePlan {
  /** Of the place: a directory or `s3://bucket/prefix`. */
  url: string;
  /** An attempt begins so long after the last one; 0: only when somebody asks. */
  everyMs: number;
  /** So many manifests are kept. */
  keep: number;
  /** Bytes per second that a node reads for it; 0 = as fast as leaves room for requests. */
  rate: number;
  /** `full job`: everything that a restored job needs. `export`: the values of rows. */
  kind: 'full job' | 'export';
  /** Names of the tables of an export; undefined: all. */
  tables?: string[];
  /** Clients hold their pushes back until all shards show one instant; of a full job. */
  barrier?: boolean;
}

/** A file of a checkpoint: rows of one shard, and of the last one of a shard its de-duplication state. */
export type SavedSegment = [name: string, bytes: number, sha256: string, rows: number];

/**
 * The receiver saves these shards, one after the other, as their owner in generation `gen`. `since`: the
 * stamp of an earlier snapshot, of which only later changes are saved; 0: all rows. The message is repeated
 * until each shard is saved or has failed.
 */
export interface SaveShards {
  t: 'saveShards';
  epoch: number;
  /** Of the attempt: a higher one is newer, and ends what is under way for others. */
  id: number;
  url: string;
  /** What the names of its files begin with. */
  prefix: string;
  kind: SavePlan['kind'];
  /** Tables of an export, by their ids; undefined: all. */
  tables?: number[];
  rate: number;
  /** All shards begin at once: clients wait for it. */
  barrier: boolean;
  shards: [g: number, m: number, gen: number, since: number][];
}
/** What is left of shards that the sender is saving, in answer to each `saveShards`. */
export interface SaveProgress {
  t: 'saveProgress';
  id: number;
  items: [g: number, m: number, gen: number, bytesLeft: number][];
}
/** All segments of the shard are stored, and the position that they show is committed. */
export interface ShardSaved {
  t: 'shardSaved';
  id: number;
  g: number;
  m: number;
  gen: number;
  /** Stream position of the rows and of the de-duplication state. */
  position: number;
  /** The stamp of the snapshot. A later snapshot `since` this stamp has the rows that changed after it. */
  stamp: number;
  since: number;
  segments: SavedSegment[];
}
/** The sender cannot save the shard: the attempt has failed. */
export interface SaveFailed {
  t: 'saveFailed';
  id: number;
  g: number;
  m: number;
  gen: number;
  code: ErrorCode;
  message: string;
}
/** The attempt is over: whatever is left of it is given up. */
export interface SaveEnded {
  t: 'saveEnded';
  id: number;
}

/** Files of one shard of a checkpoint, in the order in which they are loaded. */
export interface SavedPart {
  /** Of the checkpoint. */
  group: number;
  member: number;
  segments: readonly SegmentRef[];
}

/** The receiver loads its shard, as its owner in this generation, from these files, in their order. */
export interface LoadShard {
  t: 'loadShard';
  epoch: number;
  g: number;
  m: number;
  gen: number;
  url: string;
  parts: readonly SavedPart[];
  /**
   * These are shards of another division of the keys: rows are taken whose keys are the receiver's, and no
   * numbers of pushes.
   */
  reshaped: boolean;
  /**
   * The checkpoint is of another job, such as the one whose checkpoint this job began with. Only numbers of
   * sessions below this id are taken: these sessions are common to both jobs, and higher ids mean other
   * sessions in each.
   */
  sessionsBelow?: PeerId;
}
/** Everything is loaded. The owner serves when the map says that its shard is not to be loaded any more. */
export interface ShardLoaded {
  t: 'shardLoaded';
  g: number;
  m: number;
  gen: number;
}
/** A file cannot be had, or not be used. The receiver asks again. */
export interface LoadFailed {
  t: 'loadFailed';
  g: number;
  m: number;
  gen: number;
  code: ErrorCode;
  message: string;
}

/** Makes, changes or (without `plan`) drops a save plan. */
export interface SetPlan {
  t: 'setPlan';
  id: number;
  name: string;
  plan?: SavePlan;
  /** Number of its next checkpoint, where the place has some already; default: the next of the plan. */
  next?: number;
}
export interface PlanSet {
  t: 'planSet';
  id: number;
  code?: ErrorCode;
  message?: string;
}
/** Asks for an attempt now. Answered when it has ended; one that is under way already is waited for first. */
export interface SaveNow {
  t: 'saveNow';
  id: number;
  name: string;
}
export interface SaveDone {
  t: 'saveDone';
  id: number;
  /** Number of the checkpoint. */
  number: number;
  rows: number;
  /** Of the files that are new in it. */
  bytes: number;
  tookMs: number;
  /** For how long clients held their pushes back. */
  pausedMs?: number;
  code?: ErrorCode;
  message?: string;
}

/**
 * Every push below `next` was answered by some owner of this shard, or is known to be durable. An owner that
 * has forgotten such pushes goes on with number `next` (rule 41). `client` and `proof` as in `push`.
 */
export interface SkipTo {
  t: 'skipTo';
  g: number;
  m: number;
  client?: PeerId;
  proof?: Uint8Array;
  next: number;
}

/** Asks that lost shards are loaded from a checkpoint, by default the newest one of the place. */
export interface RestoreLost {
  t: 'restoreLost';
  id: number;
  url: string;
  number?: number;
}
/** What is loaded now; nothing: no shard is lost. */
export interface RestoreReply {
  t: 'restoreReply';
  id: number;
  /** Of the checkpoint. */
  number: number;
  /** How old its state is. */
  agoMs: number;
  /** `rows`: in its files; a row that several of them have counts several times. */
  shards: [pool: string, shard: number, rows: number][];
  code?: ErrorCode;
  message?: string;
}

/** The receiver begins no push until `resume`, at most for so long, and says when none is under way. */
export interface Hold {
  t: 'hold';
  /** Of the attempt. */
  id: number;
  ms: number;
}
/** No push of the sender is under way. `ranges`: those that it works on, up to its last push. */
export interface Held {
  t: 'held';
  id: number;
  ranges: Omit<RangeProgress, 't'>[];
}
export interface Resume {
  t: 'resume';
  id: number;
}

export type SavingMessage =
  | Hold
  | Held
  | Resume
  | SaveShards
  | SaveProgress
  | ShardSaved
  | SaveFailed
  | SaveEnded
  | LoadShard
  | ShardLoaded
  | LoadFailed
  | SkipTo
  | RestoreLost
  | RestoreReply
  | SetPlan
  | PlanSet
  | SaveNow
  | SaveDone;
