/** What the scheduler tells of a job, for people and launchers. */
import type { PeerId } from './map.js';

export interface RecoveryStats {
  g: number;
  m: number;
  gen: number;
  blocksLost: number;
  blocksPresent: number;
  blocksOnDemand: number;
}

export type Redundancy = 'forming' | 'full' | 'recovering' | 'degraded' | 'lost';

export interface NodeStatus {
  id: PeerId;
  name: string;
  host: string;
  address: string;
  alive: boolean;
  standby: boolean;
  inc: number;
  dataShards: number;
  parityShards: number;
  bytes: number;
  rows: number;
}

/** Data shard m, or parity j of a group, goes from one node (name) to another. */
export interface MoveStatus {
  group: number;
  kind: 'data' | 'parity';
  index: number;
  from: string;
  to: string;
  bytes: number;
}

export interface ChangeStatus {
  id: number;
  kind: 'scale' | 'drain' | 'rebalance' | 'join';
  /** PS that served before, and that are to serve afterwards. */
  from: number;
  to: number;
  state: 'running' | 'done' | 'cancelled';
  /** Why it was cancelled, or what it waits for. */
  reason: string;
  /** Names of the nodes that it empties. */
  leaving: string[];
  shardsMoved: number;
  bytesMoved: number;
  /** Moves that have begun and not ended, and those that are still to begin. */
  shardsMoving: number;
  shardsLeft: number;
}

export interface ScalingStatus {
  /** PS that are to serve when no change is under way. */
  wanted: number;
  serving: number;
  /** The newest ones, oldest first. */
  changes: ChangeStatus[];
}

export interface JobStatus {
  job: string;
  epoch: number;
  redundancy: Redundancy;
  /** One line per reason why redundancy is not full. */
  reasons: string[];
  nodes: NodeStatus[];
  pools: { name: string; code: string; groups: number; shards: number }[];
  tables: { name: string; pool: string; dim: number; optimizer: string }[];
  recoveries: RecoveryStats[];
  unrecoverable: { g: number; m: number; blocks: number; rows: number }[];
  scaling: ScalingStatus;
}
