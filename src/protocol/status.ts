/** The status of a job, which the scheduler tells to people and launchers. */
import type { ErrorCode } from '../common/errors.js';
import type { TablePolicy } from '../engine/policies.js';
import type { Life } from './liveness.js';
import type { PeerId } from './map.js';
import type { ServedRows } from './saving.js';

/** The progress of the recovery of a data shard. */
export interface RecoveryStats {
  /** Group. */
  g: number;
  /** Data shard in the group. */
  m: number;
  /** Generation of its new owner. */
  gen: number;
  /** Blocks that the shard lost, each about 4 KiB. */
  blocksLost: number;
  /** Lost blocks that are present again. */
  blocksPresent: number;
  /** Lost blocks that came because requests waited for them. */
  blocksOnDemand: number;
  /** The keys of the shard are present, so it serves requests. */
  keysReady?: true;
}

/**
 * `full`: every group can lose r nodes. `forming`: the job has not started. `recovering`: every group will be
 * able to again. `degraded`: not until nodes are added. `lost`: a shard is beyond repair.
 */
export type Redundancy = 'forming' | 'full' | 'recovering' | 'degraded' | 'lost';

/** A PS node, by its newest report. */
export interface NodeStatus {
  id: PeerId;
  name: string;
  /** Failure domain of the node. */
  host: string;
  /** Address that peers dial: host:port. */
  address: string;
  alive: boolean;
  /**
   * `turning`: the last turn of its event loop is younger than `silentMs`. `stopped`: the process answers,
   * and that turn is older; it is given up after `stoppedMs`. `gone`: nothing is heard of it, or its machine
   * acknowledges nothing.
   */
  life: Life;
  /** True: its event loop has turned late for `overloadedMs`, and still does. */
  overloaded?: true;
  /** True: the node joined without shards, to take over when a node is lost. */
  standby: boolean;
  /** Incarnation: a new number at every start of its process. */
  inc: number;
  dataShards: number;
  parityShards: number;
  /** Memory of its engine in bytes. */
  bytes: number;
  /** Rows of its data shards, of all tables together. */
  rows: number;
  /** False: it has not reported to this scheduler yet, so `bytes` and `rows` are 0. Absent: it has. */
  reported?: false;
}

/** A move of data shard m, or of parity j, of a group from one node to another. */
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

/** A change: a scale, drain or rebalance that somebody asked for, or a join. */
export interface ChangeStatus {
  id: number;
  kind: 'scale' | 'drain' | 'rebalance' | 'join';
  /** PS that served before. */
  from: number;
  /** PS that are to serve afterwards. */
  to: number;
  state: 'running' | 'done' | 'cancelled';
  /** Reason why it was cancelled, or for which it waits. */
  reason: string;
  /** True: the nodes that it empties are to be started again. */
  restart?: boolean;
  /** Names of the nodes that it empties. */
  leaving: string[];
  /** Shards that have moved. */
  shardsMoved: number;
  /** Bytes of the shards that have moved. */
  bytesMoved: number;
  /** Moves that have begun and not ended. */
  shardsMoving: number;
  /** Moves that are still to begin. */
  shardsLeft: number;
}

/** The number of PS that serve, and the changes. */
export interface ScalingStatus {
  /** PS that are to serve when no change is under way. */
  wanted: number;
  /** PS that serve now. */
  serving: number;
  /** The newest changes, oldest first. */
  changes: ChangeStatus[];
}

/** The part of the status that is cached: it changes only with an event. */
export interface JobSummary {
  epoch: number;
  redundancy: Redundancy;
  /** Reasons why redundancy is not `full`. */
  reasons: readonly string[];
  nodesAlive: number;
  /** Nodes of the map, dead ones included. */
  nodesKnown: number;
  tables: number;
}

/** A save plan and its newest checkpoint. */
export interface PlanStatus {
  name: string;
  url: string;
  kind: 'full job' | 'export';
  /** Time from one checkpoint to the next; 0: only when somebody asks. */
  everyMs: number;
  /** Manifests that are kept. */
  keep: number;
  /** Bytes per second that each PS reads for a checkpoint; 0: as fast as leaves room for requests. */
  rate: number;
  /** Each checkpoint is of one instant of all shards. */
  barrier?: true;
  /** Names of the tables of an export; absent: all. */
  tables?: string[];
  /** Rows of tables with a policy that readers of an export get; absent: all that are admitted. */
  served?: ServedRows;
  /** The checkpoint that is being made. */
  underWay?: { number: number; saved: number; shards: number };
  /**
   * The newest checkpoint. `rows` and `bytes` are those of its own files, without those of earlier
   * checkpoints that it needs.
   */
  last?: { number: number; rows: number; bytes: number; tookMs: number; agoMs: number };
  /** Reason why there is no newer checkpoint. */
  failure?: { number: number; code: ErrorCode; message: string };
}

/** A shard in a checkpoint. */
export interface SavedCopy {
  url: string;
  /** Number of the checkpoint. */
  number: number;
  /** Rows in all of its files. A row that several of them have counts several times. */
  rows: number;
  /** Age of the checkpoint. */
  agoMs: number;
}

/** The restore of a job from a checkpoint, while shards are loaded. */
export interface RestoreStatus {
  url: string;
  /** Number of the checkpoint. */
  number: number;
  /** A running job loads the shards that it had lost. */
  onlyLost?: true;
  /**
   * The job has other shards than the checkpoint, which is not of one instant: some batches after the
   * beginning of the checkpoint are applied again (rule 43).
   */
  atLeastOnce?: true;
  shardsLeft: number;
  /** Reason why a shard is not loaded; it is tried again. */
  failure?: { code: ErrorCode; message: string };
}

/** A process that follows shards and answers pulls, by its newest report. */
export interface ReplicaStatus {
  id: PeerId;
  /** Address at which the replica answers pulls: host:port. */
  address: string;
  /** The replica holds every `of`-th shard, from the `part`-th on, `part` from 1. */
  share: [part: number, of: number];
  /** Names of the tables that the replica serves; absent: all. */
  tables?: string[];
  /** Rows of tables with a policy that the replica serves; absent: all that are admitted. */
  served?: ServedRows;
  /** Shards that the replica is to hold. */
  shards: number;
  /** Shards of which the replica has a state. */
  complete: number;
  /** Age of the answers: they have every push that was acknowledged this long ago, or before. */
  lagMs: number;
  /** Batches that the replica knows of and does not have. */
  behind: number;
}

/** The status of a job, as its scheduler knows it. */
export interface JobStatus {
  /** Id of the job. */
  job: string;
  /** Version of the cluster map. */
  epoch: number;
  redundancy: Redundancy;
  /** One line per reason why redundancy is not full. */
  reasons: string[];
  /** One line per reason why redundancy is worth less than it looks. */
  warnings: string[];
  /** Nodes that have joined and not left. */
  nodes: NodeStatus[];
  /** Pools with their code (`k+r`) and numbers of groups and of data shards. */
  pools: { name: string; code: string; groups: number; shards: number }[];
  /** Tables with float32 values per row (`dim`), kind of optimizer, and policy, if they have one. */
  tables: { name: string; pool: string; dim: number; optimizer: string; policy?: TablePolicy }[];
  /** Recoveries of data shards. */
  recoveries: RecoveryStats[];
  /**
   * Data shards (m of group g) that are beyond repair, with the blocks and rows that are lost. `checkpoint`:
   * the newest one with the shard; absent: this scheduler has made none.
   */
  unrecoverable: { g: number; m: number; blocks: number; rows: number; checkpoint?: SavedCopy }[];
  scaling: ScalingStatus;
  /** Save plans; absent: there was never one. */
  saving?: PlanStatus[];
  /** The restore that is under way; absent: none. */
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
