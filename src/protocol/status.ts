/** What the scheduler tells of a job, for people and launchers. */
import type { ErrorCode } from '../errors.js';
import type { PeerId } from './map.js';

/** How far the recovery of a data shard is. */
export interface RecoveryStats {
  /** Group. */
  g: number;
  /** Data shard in the group. */
  m: number;
  /** Generation of its new owner. */
  gen: number;
  /** Blocks that the shard lost, each about 4 KiB. */
  blocksLost: number;
  /** Those of them that are there again. */
  blocksPresent: number;
  /** Those of them that requests waited for. */
  blocksOnDemand: number;
  /** Its keys are there: it serves requests. */
  keysReady?: true;
}

/**
 * Whether every group can lose r nodes: `forming` (the job has not started), `full`, `recovering` (not yet
 * again), `degraded` (not until nodes are added), `lost` (a shard is beyond repair).
 */
export type Redundancy = 'forming' | 'full' | 'recovering' | 'degraded' | 'lost';

/** A PS node, by its newest report. */
export interface NodeStatus {
  id: PeerId;
  name: string;
  /** Its failure domain. */
  host: string;
  /** host:port that others dial. */
  address: string;
  alive: boolean;
  /** It joined without shards, to take over when a node is lost. */
  standby: boolean;
  /** Incarnation: a new number at every start of its process. */
  inc: number;
  dataShards: number;
  parityShards: number;
  /** Memory of its engine in bytes. */
  bytes: number;
  /** Rows of its data shards, of all tables together. */
  rows: number;
}

/** Data shard m, or parity j of a group, goes from one node (name) to another. */
export interface MoveStatus {
  group: number;
  kind: 'data' | 'parity';
  /** Number of the data shard or of the parity in the group. */
  index: number;
  /** Name of a node. */
  from: string;
  /** Name of a node. */
  to: string;
  /** Size of the shard in bytes. */
  bytes: number;
}

/** A change of what serves: somebody asked for it, or a node joined. */
export interface ChangeStatus {
  id: number;
  kind: 'scale' | 'drain' | 'rebalance' | 'join';
  /** PS that served before. */
  from: number;
  /** PS that are to serve afterwards. */
  to: number;
  state: 'running' | 'done' | 'cancelled';
  /** Why it was cancelled, or what it waits for. */
  reason: string;
  /** Whoever it empties is to be started again. */
  restart?: boolean;
  /** Names of the nodes that it empties. */
  leaving: string[];
  /** Shards that have moved. */
  shardsMoved: number;
  /** Their bytes. */
  bytesMoved: number;
  /** Moves that have begun and not ended. */
  shardsMoving: number;
  /** Moves that are still to begin. */
  shardsLeft: number;
}

/** How many PS serve, and what changes it. */
export interface ScalingStatus {
  /** PS that are to serve when no change is under way. */
  wanted: number;
  /** PS that serve now. */
  serving: number;
  /** The newest ones, oldest first. */
  changes: ChangeStatus[];
}

/** The part of the status that is cached: it changes only with an event. */
export interface JobSummary {
  epoch: number;
  redundancy: Redundancy;
  /** Why it is not `full`. */
  reasons: readonly string[];
  nodesAlive: number;
  /** Nodes of the map, dead ones included. */
  nodesKnown: number;
  tables: number;
}

/** A save plan, and what became of it. */
export interface PlanStatus {
  name: string;
  url: string;
  kind: 'full job' | 'export';
  /** 0: only when somebody asks. */
  everyMs: number;
  keep: number;
  /** Bytes per second that each PS reads for it; 0: as fast as leaves room for requests. */
  rate: number;
  /** Each is of one instant of all shards. */
  barrier?: true;
  /** Names of the tables of an export; absent: all. */
  tables?: string[];
  /** The checkpoint that is being made. */
  underWay?: { number: number; saved: number; shards: number };
  /**
   * The newest one since this scheduler started. `rows` and `bytes` are those of its own files, without those
   * of earlier checkpoints that it needs.
   */
  last?: { number: number; rows: number; bytes: number; tookMs: number; agoMs: number };
  /** Why there is no newer one. */
  failure?: { number: number; code: ErrorCode; message: string };
}

/** A shard in a checkpoint. */
export interface SavedCopy {
  url: string;
  /** Of the checkpoint. */
  number: number;
  /** In all of its files; a row that several of them have counts several times. */
  rows: number;
  /** When it was taken. */
  agoMs: number;
}

/** A job that goes on from a checkpoint, while shards are loaded. */
export interface RestoreStatus {
  url: string;
  /** Of the checkpoint. */
  number: number;
  /** A running job loads the shards that it had lost. */
  onlyLost?: true;
  /**
   * The job has other shards than the checkpoint, which is not of one instant: some of what was trained after
   * its beginning is trained again.
   */
  atLeastOnce?: true;
  shardsLeft: number;
  /** Why a shard is not loaded; it is tried again. */
  failure?: { code: ErrorCode; message: string };
}

/** A process that follows shards and answers pulls, by its newest report. */
export interface ReplicaStatus {
  id: PeerId;
  /** host:port where it answers pulls. */
  address: string;
  /** It holds every `of`-th shard, from the `part`-th on, `part` from 1. */
  share: [part: number, of: number];
  /** Names of the tables that it serves; absent: all. */
  tables?: string[];
  /** Shards that it is to hold. */
  shards: number;
  /** Those of which it has a state. */
  complete: number;
  /** Everything that was acknowledged so long ago is in its answers. */
  lagMs: number;
  /** Batches that it knows of and does not have. */
  behind: number;
}

/** A job, as its scheduler knows it. */
export interface JobStatus {
  /** Id of the job. */
  job: string;
  /** Version of the cluster map. */
  epoch: number;
  redundancy: Redundancy;
  /** One line per reason why redundancy is not full. */
  reasons: string[];
  /** What makes redundancy worth less than it looks, one line each. */
  warnings: string[];
  /** Nodes that have joined and not left. */
  nodes: NodeStatus[];
  /** Pools with their code (`k+r`) and numbers of groups and of data shards. */
  pools: { name: string; code: string; groups: number; shards: number }[];
  /** Tables with float32 values per row (`dim`) and kind of optimizer. */
  tables: { name: string; pool: string; dim: number; optimizer: string }[];
  /** Recoveries of data shards. */
  recoveries: RecoveryStats[];
  /**
   * Data shards (m of group g) that are beyond repair, with the blocks and rows that are lost. `checkpoint`:
   * the newest one that would bring the shard back; absent: none that this scheduler has made.
   */
  unrecoverable: { g: number; m: number; blocks: number; rows: number; checkpoint?: SavedCopy }[];
  scaling: ScalingStatus;
  /** Save plans; absent: there was never one. */
  saving?: PlanStatus[];
  /** What is still to be loaded of a checkpoint; absent: nothing. */
  restoring?: RestoreStatus;
  /** Replicas that have reported of late; absent: none. */
  replicas?: ReplicaStatus[];
}

export interface StatusRequest {
  t: 'status';
  id: number;
}
export interface StatusReply {
  t: 'statusReply';
  id: number;
  status: JobStatus;
}
