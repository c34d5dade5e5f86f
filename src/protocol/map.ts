/**
 * The cluster map: the node of every shard and sink. Rule 2: only the scheduler makes a new map, which is
 * durable before anyone sees it, and every receiver only moves to higher epochs. A group's entry has its own
 * `version` (the epoch that changed it last), because recovery operations are tied to their group, not to
 * changes elsewhere.
 */
import type { EngineTable } from '../engine/native.js';
import type { TablePolicy } from '../engine/policies.js';
import type { ScheduleSpec } from '../engine/schedules.js';

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
  /** Incarnation: new at every start of the process and never reused (rule 1). */
  inc: number;
  name: string;
  /** Failure domain. Seats of a group go to different hosts where there are enough. */
  host: string;
  /** Address that peers dial: host:port. */
  address: string;
  /** Name of the machine, which its processes share; undefined: unknown. */
  machine?: string;
  standby: boolean;
}

/** The owner of a data shard of a group. */
export interface DataEntry {
  /** Node of the owner; 0: no node has the shard yet. */
  node: PeerId;
  /** Incarnation of the node. */
  inc: number;
  /** Generation of the ownership; older ones are fenced. */
  gen: number;
  /** True: the shard was born empty with the group, so there is nothing to recover. */
  init: boolean;
  /**
   * The shard is to be loaded from a checkpoint: its owner serves nothing before the mark is gone (rule 37).
   */
  restore?: true;
  /**
   * The shard was loaded from a checkpoint without all the numbers that clients have used. Rule 41: the owner
   * tells clients of a gap in these numbers with the field `rewound`, and a client closes the gap with
   * `skipTo`.
   */
  rewound?: true;
}

/** A parity of a group, or a mirror of one of its data shards. */
export interface SinkEntry {
  /** Id of the sink, never reused (rule 1). */
  sid: number;
  /** P: parity `index` of all members. M: mirror of member `index`, coefficient 1. */
  kind: 'P' | 'M';
  /** Index of the parity among the parities, or of the mirrored member among the members. */
  index: number;
  node: PeerId;
  /** Incarnation of the node. */
  inc: number;
  /** True: the sink was born empty with the group, so it has followed every stream from the beginning. */
  init: boolean;
  /** True: the sink counts as redundancy. The group can lose another member when it is complete. */
  protects: boolean;
  /** True: a push is acknowledged only when this sink has it (rule 9). */
  acknowledges: boolean;
  /**
   * Number of the seat that is moving to this sink's node. Undefined: the sink is not the target of a move,
   * or the move is over. A mirror hands over when it is promoted, a parity when the older parity of its index
   * goes.
   */
  movesMember?: number;
}

/**
 * The streams that a sink of each kind follows. `all`: the streams of all members of its group, and `index`
 * is its number among the parities. `one`: the stream of member `index`, with coefficient 1. The members that
 * a sink follows, its seat and the engine object behind it derive from this.
 */
export const FOLLOWS: Readonly<Record<SinkEntry['kind'], 'all' | 'one'>> = { P: 'all', M: 'one' };

/**
 * The capabilities of a sink of each kind, when nothing moves. The order is that of the wire (pack.ts): a new
 * kind goes at the end.
 */
export const CAPABILITIES: Readonly<Record<SinkEntry['kind'], Pick<SinkEntry, 'protects' | 'acknowledges'>>> =
  {
    P: { protects: true, acknowledges: true },
    M: { protects: false, acknowledges: true },
  };

/** k data shards and r parities, on k+r different nodes where the job has them. */
export interface Group {
  /** Index of the group in `ClusterMap.groups`. */
  id: number;
  /** Index in `ClusterMap.pools`. */
  pool: number;
  /** Epoch of the last change of this entry. */
  version: number;
  /** The owner of each data shard, by member. */
  data: DataEntry[];
  sinks: SinkEntry[];
}

/** Shards with one code. */
export interface Pool {
  name: string;
  /** Data shards of a group. */
  k: number;
  /** Parities of a group, and the number of nodes that it can lose. */
  r: number;
  /** Id of its first group: its groups are firstGroup .. firstGroup + groups - 1. */
  firstGroup: number;
  groups: number;
}

/**
 * Values that each setting of a table had before, each once, oldest first, the first `MAX_EARLIER` of them.
 * Null: none. A worker that is started again with one of them changes nothing. Undefined: the setting was
 * never changed.
 */
export interface EarlierSettings {
  earlierRates?: readonly number[];
  earlierClips?: readonly (number | null)[];
  earlierSchedules?: readonly (ScheduleSpec | null)[];
  earlierPolicies?: readonly TablePolicy[];
  /** The policy has changed so often, plus one. Undefined: it is that of the table's creation. */
  policyVersion?: number;
}

/** A table of the job. */
export interface TableSpec extends EngineTable, EarlierSettings {
  name: string;
  /** Name of its pool. */
  pool: string;
}

/** The cluster map of a job. */
export interface ClusterMap {
  /** Version of the map; higher is newer. */
  epoch: number;
  /** Id of the job, made at its creation. A node or client of another job is refused. */
  job: string;
  pools: Pool[];
  /** The groups by id. Empty until enough nodes have joined. */
  groups: Group[];
  nodes: NodeEntry[];
  /** By their ids, ascending. */
  tables: TableSpec[];
  /**
   * No table has an id up to this one, but for those in `tables`, and none ever will (rule 47). Each drop of
   * a table raises it, so it tells one drop from the next. Undefined: the job has dropped none.
   */
  lastTable?: number;
}

/** A map for those who only look at it. */
export interface FrozenMap extends Readonly<Pick<ClusterMap, 'epoch' | 'job' | 'lastTable'>> {
  readonly pools: readonly Pool[];
  /** By their ids. Empty until enough nodes have joined. */
  readonly groups: readonly Group[];
  readonly nodes: readonly NodeEntry[];
  /** By their ids, ascending. */
  readonly tables: readonly TableSpec[];
}

export const EMPTY_MAP: ClusterMap = { epoch: 0, job: '', pools: [], groups: [], nodes: [], tables: [] };

/** Number of data shards of a pool, which is the number of its hash ranges of keys. */
export function shardCount(pool: Pool): number {
  return pool.groups * pool.k;
}

/** Shard number within a pool -> (group id, member). */
export function locate(pool: Pool, shard: number): { group: number; member: number } {
  return { group: pool.firstGroup + Math.floor(shard / pool.k), member: shard % pool.k };
}

/** (group id, member) -> shard number within a pool. */
export function shardAt(pool: Pool, group: number, member: number): number {
  return (group - pool.firstGroup) * pool.k + member;
}

export function poolOf(map: FrozenMap, name: string): Pool | undefined {
  return map.pools.find((pool) => pool.name === name);
}

/** The highest id that is used up. */
export function lastTableOf({ tables, lastTable = 0 }: Pick<ClusterMap, 'tables' | 'lastTable'>): number {
  return Math.max(lastTable, tables.at(-1)?.id ?? 0);
}

export function tableByName(map: FrozenMap, name: string): TableSpec | undefined {
  return map.tables.find((table) => table.name === name);
}

/** The node that a text names: an id counts where no node has that name, for a name may be a number. */
export function nodeNamed<T extends Pick<NodeEntry, 'id' | 'name'>>(
  nodes: readonly T[],
  text: string,
): T | undefined {
  return nodes.find(({ name }) => name === text) ?? nodes.find(({ id }) => `${id}` === text);
}

/** The members whose streams a sink follows. */
export function followedBy({ data }: Group, { kind, index }: Pick<SinkEntry, 'kind' | 'index'>): number[] {
  return FOLLOWS[kind] === 'all' ? [...data.keys()] : [index];
}

/** The sinks that follow the stream of member `m`. */
export function followersOf(group: Group, m: number): SinkEntry[] {
  return group.sinks.filter((sink) => followedBy(group, sink).includes(m));
}

/**
 * Number of a seat in its group: data shards come first, then the parities. A mirror has its member's seat.
 */
export function seatOf({ data }: Group, { kind, index }: Pick<SinkEntry, 'kind' | 'index'>): number {
  return FOLLOWS[kind] === 'one' ? index : data.length + index;
}

/** True for a parity that is not the target of a move. */
export function isInUse({ protects, movesMember }: SinkEntry): boolean {
  return protects && movesMember === undefined;
}

/** The parity in use of each index. A parity that is the target of a move is not in use yet. */
export function parities({ sinks }: Group): SinkEntry[] {
  return sinks.filter(isInUse);
}

/** The mirror of data shard `m`, before its cut-over or beside the new owner. */
export function mirrorOf({ sinks }: Group, m: number): SinkEntry | undefined {
  return sinks.find((sink) => sink.kind === 'M' && sink.index === m);
}

/** True if a sink of the group is the target of a move, or a new owner takes over from a mirror. */
export function hasMove({ sinks }: Group): boolean {
  return sinks.some((sink) => sink.movesMember !== undefined || (sink.acknowledges && !sink.protects));
}

/** True if every data shard and parity in use has a node of its own. */
export function isParted(group: Group): boolean {
  const nodes = [...group.data, ...parities(group)].map((entry) => entry.node);
  return new Set(nodes).size === nodes.length && !nodes.includes(0);
}

/** The same sink when its move is over. */
export function settled({ movesMember: _, ...sink }: SinkEntry): SinkEntry {
  return sink;
}

/** True if this sink exists only for a planned move: without it, every seat has a node of its own. */
export function isMoveTarget(group: Group, sink: SinkEntry): boolean {
  return sink.movesMember !== undefined && isParted(group);
}
