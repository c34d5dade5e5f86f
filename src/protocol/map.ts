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

/** A PS node. */
export interface NodeEntry {
  id: PeerId;
  /** New at every process start (rule 1). */
  inc: number;
  name: string;
  /** Failure domain; shards of a group go to different hosts where there are enough. */
  host: string;
  /** host:port that peers dial */
  address: string;
  /** Processes on one machine share it; undefined: unknown. */
  machine?: string;
  standby: boolean;
}

/** Where a data shard of a group is: its owner. */
export interface DataEntry {
  /** 0 = nobody yet */
  node: PeerId;
  /** Incarnation of the node. */
  inc: number;
  /** Generation of the ownership; older ones are fenced. */
  gen: number;
  /** Born empty with the group: nothing to recover. */
  init: boolean;
  /** It is to be loaded from a checkpoint: nobody has it, and its owner serves nothing yet. */
  restore?: true;
  /**
   * It was loaded from a checkpoint without all the numbers that clients have used. The owner tells clients
   * of a gap in these numbers with the field `rewound`, and a client closes the gap with `skipTo` (rule 41).
   */
  rewound?: true;
}

/** Where a parity of a group, or a mirror of one of its data shards, is. */
export interface SinkEntry {
  /** Never reused. */
  sid: number;
  /** P: parity `index` of all members. M: mirror of member `index`, coefficient 1. */
  kind: 'P' | 'M';
  index: number;
  node: PeerId;
  inc: number;
  init: boolean;
  /** It counts as redundancy: the group can lose another member when this sink is complete. */
  protects: boolean;
  /** A push is acknowledged only when this sink has it (rule 9). */
  acknowledges: boolean;
  /**
   * The seat that is moving to this sink's node. Undefined: the sink is not the target of a move, or the move
   * is over. A mirror hands over when it is promoted, a parity when the older parity of its index goes.
   */
  movesMember?: number;
}

/**
 * What each kind of sink follows. `all`: the streams of all members of its group, `index` is its number among
 * the parities. `one`: the stream of member `index`, with coefficient 1. The members that a sink follows, its
 * seat and the engine object behind it derive from this.
 */
export const FOLLOWS: Readonly<Record<SinkEntry['kind'], 'all' | 'one'>> = { P: 'all', M: 'one' };

/**
 * What a sink of each kind is for, when nothing moves. The order is that of the wire (pack.ts): a new kind
 * goes at the end.
 */
export const CAPABILITIES: Readonly<Record<SinkEntry['kind'], Pick<SinkEntry, 'protects' | 'acknowledges'>>> =
  {
    P: { protects: true, acknowledges: true },
    M: { protects: false, acknowledges: true },
  };

/** k data shards and r parities, on k+r nodes where there are so many. */
export interface Group {
  /** Its index in `ClusterMap.groups`. */
  id: number;
  /** Index in `ClusterMap.pools`. */
  pool: number;
  /** Epoch of the last change of this entry. */
  version: number;
  /** Index = number of the data shard in the group. */
  data: DataEntry[];
  sinks: SinkEntry[];
}

/** Shards with one code. */
export interface Pool {
  name: string;
  /** Data shards of a group. */
  k: number;
  /** Parities of a group: it can lose so many nodes. */
  r: number;
  /** Ids of its groups: firstGroup .. firstGroup + groups - 1. */
  firstGroup: number;
  groups: number;
}

/** A table of the job. */
export interface TableSpec extends EngineTable {
  name: string;
  /** Name of its pool. */
  pool: string;
}

/** Who holds what in a job. */
export interface ClusterMap {
  /** Its version; higher is newer. */
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

/** The other way round. */
export function shardAt(pool: Pool, group: number, member: number): number {
  return (group - pool.firstGroup) * pool.k + member;
}

export function poolOf(map: ClusterMap, name: string): Pool | undefined {
  return map.pools.find((pool) => pool.name === name);
}

export function tableByName(map: ClusterMap, name: string): TableSpec | undefined {
  return map.tables.find((table) => table.name === name);
}

/** The members whose streams a sink follows. */
export function followedBy({ data }: Group, { kind, index }: Pick<SinkEntry, 'kind' | 'index'>): number[] {
  return FOLLOWS[kind] === 'all' ? [...data.keys()] : [index];
}

/** The sinks that follow the stream of member `m`. */
export function followersOf(group: Group, m: number): SinkEntry[] {
  return group.sinks.filter((sink) => followedBy(group, sink).includes(m));
}

/** Number of a member's place in its group: data shards come first, then the parities. */
export function seatOf({ data }: Group, { kind, index }: Pick<SinkEntry, 'kind' | 'index'>): number {
  return FOLLOWS[kind] === 'one' ? index : data.length + index;
}

/** A parity that is not the target of a move. */
export function isInUse({ protects, movesMember }: SinkEntry): boolean {
  return protects && movesMember === undefined;
}

/** The parity in use of each index. One that is the target of a move is not in use yet. */
export function parities({ sinks }: Group): SinkEntry[] {
  return sinks.filter(isInUse);
}

/** The mirror of data shard `m`, before its cut-over or beside the new owner. */
export function mirrorOf({ sinks }: Group, m: number): SinkEntry | undefined {
  return sinks.find((sink) => sink.kind === 'M' && sink.index === m);
}

/** Something of the group moves: a sink is the target of a move, or a new owner takes over from a mirror. */
export function hasMove({ sinks }: Group): boolean {
  return sinks.some((sink) => sink.movesMember !== undefined || (sink.acknowledges && !sink.protects));
}

/** Every member has a home, and none shares its node with another member. */
export function isParted(group: Group): boolean {
  const nodes = [...group.data, ...parities(group)].map((entry) => entry.node);
  return new Set(nodes).size === nodes.length && !nodes.includes(0);
}

/** The same sink when its move is over. */
export function settled({ movesMember: _, ...sink }: SinkEntry): SinkEntry {
  return sink;
}

/** True if this sink exists only for a planned move: without it, every member already has its own node. */
export function isMoveTarget(group: Group, sink: SinkEntry): boolean {
  return sink.movesMember !== undefined && isParted(group);
}
