/**
 * The cluster map: who holds what. Only the scheduler makes a new one, durably, before anyone sees it (rule
 * 2); every receiver only moves to higher epochs. A group's entry has its own `version` (the epoch that
 * changed it last), because recovery operations are tied to their group, not to changes elsewhere.
 */
import type { EngineTable } from '../native.js';

/** The scheduler is peer 0; node and client ids come from one durable counter and are never reused. */
export type PeerId = number;
export const SCHEDULER: PeerId = 0;

/**
 * The generation of every data shard that was born with its group; later ones are epochs, so they are larger.
 */
export const INITIAL_GENERATION = 1;

export interface NodeEntry {
  id: PeerId;
  /** New at every process start (rule 1). */
  inc: number;
  name: string;
  /** Failure domain; shards of a group go to different hosts where there are enough. */
  host: string;
  /** host:port that peers dial */
  address: string;
  standby: boolean;
}

export interface DataEntry {
  /** 0 = nobody yet */
  node: PeerId;
  inc: number;
  gen: number;
  /** Born empty with the group: nothing to recover. */
  init: boolean;
}

export interface SinkEntry {
  sid: number;
  /** P: parity `index` of all members. M: mirror of member `index`, coefficient 1. */
  kind: 'P' | 'M';
  index: number;
  node: PeerId;
  inc: number;
  init: boolean;
}

export interface Group {
  id: number;
  pool: number;
  /** Epoch of the last change of this entry. */
  version: number;
  data: DataEntry[];
  sinks: SinkEntry[];
}

export interface Pool {
  name: string;
  k: number;
  r: number;
  /** Ids of its groups: firstGroup .. firstGroup + groups - 1. */
  firstGroup: number;
  groups: number;
}

export interface TableSpec extends EngineTable {
  name: string;
  pool: string;
}

export interface ClusterMap {
  epoch: number;
  /** Made at job creation; a node or client of another job is refused. */
  job: string;
  pools: Pool[];
  /** Index = group id. Empty until enough nodes have joined. */
  groups: Group[];
  nodes: NodeEntry[];
  tables: TableSpec[];
}

export const EMPTY_MAP: ClusterMap = { epoch: 0, job: '', pools: [], groups: [], nodes: [], tables: [] };

/** Number of data shards of a pool: its keys are split into so many hash ranges. */
export function shardCount(pool: Pool): number {
  return pool.groups * pool.k;
}

/** Shard number within a pool -> (group id, member). */
export function locate(pool: Pool, shard: number): { group: number; member: number } {
  return { group: pool.firstGroup + Math.floor(shard / pool.k), member: shard % pool.k };
}

export function poolOf(map: ClusterMap, name: string): Pool | undefined {
  return map.pools.find((pool) => pool.name === name);
}

export function tableByName(map: ClusterMap, name: string): TableSpec | undefined {
  return map.tables.find((table) => table.name === name);
}

/** Tables whose rows live in this group. */
export function tablesOf(map: ClusterMap, group: Group): TableSpec[] {
  const pool = map.pools[group.pool]?.name;
  return map.tables.filter((table) => table.pool === pool);
}
