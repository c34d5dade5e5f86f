/**
 * Messages of checkpoints. A save plan has the content, the place and the interval of checkpoints. An attempt
 * carries out a plan once: the scheduler asks the owners of all data shards, each owner saves its shard, and
 * the manifest is written when all files are stored.
 */
import type { ErrorCode } from '../common/errors.js';
import type { SegmentRef } from './checkpoints.js';
import type { PeerId, TableSpec } from './map.js';
import type { RangeProgress } from './samples.js';

/** Name of the save plan of full jobs, which flags and commands set. */
export const CHECKPOINT_PLAN = 'checkpoint';

/** True for two addresses of one place: they differ in slashes, or one is a URL of the other one's path. */
export function isSamePlace(one: string, other: string): boolean {
  return partsOfPlace(one).join('/') === partsOfPlace(other).join('/');
}

function partsOfPlace(url: string): string[] {
  const [, begin, path = url] = /^([a-z][a-z0-9+.-]*):\/\/(.*)$/is.exec(url) ?? [];
  const scheme = begin?.toLowerCase();
  const parts = path.split('/').filter((part) => part !== '' && part !== '.');
  if (scheme === 's3') return [scheme, ...parts];
  // An absolute path of this machine is written with its name, too.
  if (scheme === 'file' && /^localhost\//i.test(path)) parts.shift();
  const named: string[] = [];
  for (const part of scheme === 'file' ? parts.map(decoded) : parts) {
    if (part !== '..') named.push(part);
    else named.pop();
  }
  return ['file', ...named];
}

/** A part of a URL without percent codes. A part with a malformed code stays as it is. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Rows of tables with a policy that an export or a replica has for its readers. */
export interface ServedRows {
  /** Rows that were seen so often; rows that are not admitted are never served. */
  minFrequency?: number;
  /** Rows that were last seen at most so many steps ago, of tables that count steps. */
  maxAge?: number;
  /** The same in seconds, of tables whose policy has `clock: 'seconds'`. */
  maxAgeSeconds?: number;
}

/** Zero: no threshold. Undefined: none is one. */
export function servedRows(minFrequency: number, maxAge: number, maxAgeSeconds = 0): ServedRows | undefined {
  if (minFrequency === 0 && maxAge === 0 && maxAgeSeconds === 0) return undefined;
  return {
    ...(minFrequency > 0 && { minFrequency }),
    ...(maxAge > 0 && { maxAge }),
    ...(maxAgeSeconds > 0 && { maxAgeSeconds }),
  };
}

/** Thresholds of ages as a flag has them: "2000", "86400s", or both with a comma. Undefined: none. */
export function agesText({ maxAge, maxAgeSeconds }: ServedRows): string | undefined {
  const texts = [maxAge && `${maxAge}`, maxAgeSeconds && `${maxAgeSeconds}s`].filter(Boolean);
  return texts.length > 0 ? texts.join(',') : undefined;
}

/**
 * Why a threshold fits none of the tables, in one line. `named`: the tables that are meant; undefined: all,
 * those that come later, too. Undefined: it fits one, or one may come that it fits: a table that is there has
 * a policy from its creation on, or never.
 */
export function servedProblem(
  served: ServedRows,
  tables: readonly Pick<TableSpec, 'name' | 'policy'>[],
  named: readonly string[] | undefined,
): string | undefined {
  const { minFrequency, maxAge, maxAgeSeconds } = served;
  const meant = named ? tables.filter(({ name }) => named.includes(name)) : tables;
  const clocks = new Set(meant.flatMap(({ policy }) => (policy ? [policy.clock ?? 'steps'] : [])));
  if (clocks.size === 0) {
    const mayCome = !named || meant.length < new Set(named).size;
    const [asked] = [
      minFrequency && `a frequency of ${minFrequency}`,
      maxAge && `an age of ${maxAge} steps`,
      maxAgeSeconds && `an age of ${maxAgeSeconds} seconds`,
    ].filter(Boolean);
    if (mayCome || !asked) return undefined;
    return `${asked} fits no table, as none of these has a policy: ${named.join(', ')}`;
  }
  if (maxAge && !clocks.has('steps'))
    return `an age of ${maxAge} steps fits no table: those with a policy count seconds, as in "24h"`;
  if (maxAgeSeconds && !clocks.has('seconds'))
    return `an age of ${maxAgeSeconds} seconds fits no table: those with a policy count steps`;
  return undefined;
}

/** Which of these tables the job does not have, in one line; undefined: it has all. */
export function missingProblem(
  named: readonly string[] | undefined,
  tables: readonly Pick<TableSpec, 'name'>[],
): string | undefined {
  const missing = named?.filter((name) => !tables.some((each) => each.name === name)) ?? [];
  const texts = missing.map((name) => JSON.stringify(name));
  return texts.length > 0 ? `the job has no table ${texts.join(', ')}` : undefined;
}

/** Why a replica with these flags serves nothing of a job, whatever it holds: its /readyz says it, too. */
export function unfitProblem(
  { tables: named, served = {} }: { tables?: readonly string[]; served?: ServedRows },
  tables: readonly Pick<TableSpec, 'name' | 'policy'>[],
): string | undefined {
  return missingProblem(named, tables) ?? servedProblem(served, tables, named);
}

/** Content, place and interval of checkpoints. */
export interface SavePlan {
  /** The place: a directory or `s3://bucket/prefix`. */
  url: string;
  /** Time from one attempt to the next; 0: only when somebody asks. */
  everyMs: number;
  /** Manifests that are kept. */
  keep: number;
  /** Bytes per second that a node reads for an attempt; 0: as fast as leaves room for requests. */
  rate: number;
  /** `full job`: everything that a restored job needs. `export`: the values of rows. */
  kind: 'full job' | 'export';
  /** Names of the tables of an export; undefined: all. */
  tables?: string[];
  /** True: clients hold their pushes back, so that all shards show one instant. For full jobs only. */
  barrier?: boolean;
  /** Rows of an export; undefined: all that are admitted. */
  served?: ServedRows;
}

/** Plans whose files can add to each other's, where they have one place. */
export function addsTo(plan: SavePlan, other: SavePlan): boolean {
  const { minFrequency, maxAge, maxAgeSeconds } = plan.served ?? {};
  const served = other.served ?? {};
  const isSameAge = maxAge === served.maxAge && maxAgeSeconds === served.maxAgeSeconds;
  return (
    isSameAge && minFrequency === served.minFrequency && plan.url === other.url && plan.kind === other.kind
  );
}

/** Both plans save the same to the same place, at the same times. */
export function isSamePlan(plan: SavePlan, known: SavePlan): boolean {
  const { everyMs, keep, rate, tables, barrier = false } = plan;
  const sameTables = tables?.join() === known.tables?.join();
  const sameTimes = everyMs === known.everyMs && keep === known.keep && rate === known.rate;
  const sameKind = barrier === (known.barrier ?? false);
  return addsTo(plan, known) && sameKind && sameTimes && sameTables;
}

/** A file of a checkpoint with rows of one shard. The last file of a shard has its de-duplication state. */
export type SavedSegment = [name: string, bytes: number, sha256: string, rows: number];

/**
 * The receiver saves these shards, one after the other, as their owner in generation `gen`. `since`: the
 * stamp of an earlier snapshot, of which only later changes are saved; 0: all rows. The message is repeated
 * until each shard is saved or has failed.
 */
export interface SaveShards {
  t: 'saveShards';
  epoch: number;
  /** Number of the attempt. A higher number is newer, and ends the saving for other attempts. */
  id: number;
  url: string;
  /** Beginning of the names of the attempt's files. */
  prefix: string;
  kind: SavePlan['kind'];
  /** Tables of an export, by their ids; undefined: all. */
  tables?: number[];
  /** Rows of an export. */
  served?: ServedRows;
  rate: number;
  /** True: all shards begin at once, because clients wait for that. */
  barrier: boolean;
  shards: [g: number, m: number, gen: number, since: number][];
}
/** The bytes that are left of each shard that the sender is saving, in answer to each `saveShards`. */
export interface CheckpointProgress {
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
/** The attempt is over: the receiver gives up the rest of its saving. */
export interface SaveEnded {
  t: 'saveEnded';
  id: number;
}

/** Files of one shard of a checkpoint, in the order in which they are loaded. */
export interface SavedPart {
  /** Group of the shard in the checkpoint. */
  group: number;
  /** Member of the shard in the checkpoint. */
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
   * True: the files are of another division of the keys. The receiver takes rows whose keys are its own, and
   * no numbers of pushes (rule 43).
   */
  reshaped: boolean;
  /**
   * The checkpoint is of another job, such as the one whose checkpoint this job began with. Only numbers of
   * sessions below this id are taken: these sessions are common to both jobs, and higher ids mean other
   * sessions in each.
   */
  sessionsBelow?: PeerId;
}
/** All files are loaded. The owner serves when the map has its shard without the mark (rule 37). */
export interface ShardLoaded {
  t: 'shardLoaded';
  g: number;
  m: number;
  gen: number;
}
/** A file cannot be fetched or used. The receiver asks again. */
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
  /** Number of the next checkpoint, where the place has some already; default: the next one of the plan. */
  next?: number;
}
export interface PlanSet {
  t: 'planSet';
  id: number;
  code?: ErrorCode;
  message?: string;
}
/** Asks for an attempt now, after one that is under way already. The answer comes when it has ended. */
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
  /** Bytes of the files that are new in the checkpoint. */
  bytes: number;
  tookMs: number;
  /** Time for which clients held their pushes back. */
  pausedMs?: number;
  code?: ErrorCode;
  message?: string;
}

/**
 * Every push below `next` was answered by some owner of this shard, or is known to be durable. Rule 41: an
 * owner that has forgotten such pushes records the skip, and takes number `next`. `client` and `proof` as in
 * `push`.
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
/** The shards that are loaded now; none: no shard is lost. */
export interface RestoreReply {
  t: 'restoreReply';
  id: number;
  /** Number of the checkpoint. */
  number: number;
  /** Age of its state. */
  agoMs: number;
  /** `rows`: in its files; a row that several of them have counts several times. */
  shards: [pool: string, shard: number, rows: number][];
  code?: ErrorCode;
  message?: string;
}

/** The receiver begins no push until `resume`, and answers when none of its pushes is under way (rule 38). */
export interface Hold {
  t: 'hold';
  /** Number of the attempt. */
  id: number;
  /** Time after which the receiver begins pushes again without `resume`. */
  ms: number;
}
/** No push of the sender is under way. `ranges`: the progress of its ranges, up to its last push. */
export interface PushesHeld {
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
  | PushesHeld
  | Resume
  | SaveShards
  | CheckpointProgress
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
