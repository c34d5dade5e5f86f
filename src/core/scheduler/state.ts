/** The scheduler's durable state: what a restarted scheduler resumes from. */
import { KintsugiError } from '../../errors.js';
import type { CheckpointDraft, SavedDataset, SegmentRef } from '../../protocol/checkpoints.js';
import { shardKey } from '../../protocol/items.js';
import {
  CAPABILITIES,
  type ClusterMap,
  type Group,
  type NodeEntry,
  type PeerId,
  type Pool,
  type SinkEntry,
  seatOf,
} from '../../protocol/map.js';
import type { ChangeStatus } from '../../protocol/messages.js';
import type { SavePlan } from '../../protocol/saving.js';
import type { DatasetState } from './samples/state.js';

/**
 * An open session; a `leased` one ends when its client stays away, another when whoever opened it ends it.
 */
export interface SessionEntry {
  id: PeerId;
  leased: boolean;
}

export interface DurableState {
  map: ClusterMap;
  /** Nodes that must have joined before groups are formed. */
  nodesWanted: number;
  nextPeer: PeerId;
  nextSid: number;
  /**
   * Node names with their ids and newest incarnations, also of absent nodes (see names.ts). `left`: that
   * process was told to leave; `restart`: and that it is to be started again.
   */
  names: Record<string, { id: PeerId; inc: number; left?: boolean; restart?: boolean }>;
  /** By id, ascending: ids only grow. */
  sessions: Map<PeerId, SessionEntry>;
  /** Undefined until the first change. */
  scaling?: Scaling;
  datasets: DatasetState[];
  /** Undefined until the first save plan. */
  saving?: { nextAttempt: number; plans: Map<string, StoredPlan> };
  /** The job was made from this checkpoint, and some of it is not loaded yet. */
  restore?: Restore;
}

/** What is still to be loaded from a checkpoint. */
export interface Restore {
  url: string;
  number: number;
  /** Shards by `shardKey`. */
  shards: Map<number, ShardToLoad>;
}

/** Replaced and never changed in place. */
export interface ShardToLoad {
  readonly g: number;
  readonly m: number;
  readonly segments: readonly SegmentRef[];
}

/** Replaced and never changed in place. */
export interface StoredPlan extends SavePlan {
  readonly name: string;
  /** Number of its next checkpoint. */
  readonly next: number;
}

const NUMERIC = new Intl.Collator('en', { numeric: true });

/** The order of nodes in the map: ps-2 before ps-10. */
export function byName(a: NodeEntry, b: NodeEntry): number {
  return NUMERIC.compare(a.name, b.name) || a.id - b.id;
}

/** A change of the set of serving nodes. Its timeout counts from when this scheduler process first saw it. */
export interface Change {
  readonly id: number;
  readonly kind: ChangeStatus['kind'];
  readonly from: number;
  readonly to: number;
  /** 0 = no limit */
  readonly timeoutMs: number;
  readonly state: ChangeStatus['state'];
  readonly reason: string;
  /** Processes that it empties. A newer process of the same name is not emptied. */
  readonly leaving: readonly { node: PeerId; inc: number; name: string }[];
  /** Its emptied processes are to be started again. */
  readonly restart?: boolean;
  /** Its emptied processes were told to leave, so it cannot be taken back. */
  readonly released: boolean;
  readonly shardsMoved: number;
  readonly bytesMoved: number;
}

/** Replaced and never changed in place, as maps are. */
export interface Scaling {
  readonly wanted: number;
  readonly nextChange: number;
  readonly changes: readonly Change[];
}

/** The sessions that are open in a restored job are those of ranges. */
function restoredDataset(saved: SavedDataset, exact: boolean): DatasetState {
  const { open, samples, setAside, growth, ...rest } = saved;
  const ranges = [...open].sort((a, b) => a.number - b.number);
  return {
    ...{ ...rest, samples: [...samples], setAside: [...setAside] },
    open: new Map(ranges.map((range) => [range.number, { ...range, ...(!exact && { partial: true }) }])),
    ...(growth && { growth: growth.map((file) => ({ ...file })) }),
  };
}

/**
 * The state of a job that goes on from a checkpoint, in the same number of data shards.
 * @throws BAD_ARGUMENT when the pools differ in more than their parities, or the checkpoint is an export
 */
export function restoredJob(
  job: string,
  nodesWanted: number,
  pools: readonly Omit<Pool, 'firstGroup'>[],
  url: string,
  checkpoint: Pick<
    CheckpointDraft,
    'kind' | 'number' | 'barrier' | 'pools' | 'tables' | 'samples' | 'shards'
  >,
): DurableState {
  const { kind, number, barrier, tables, samples, shards } = checkpoint;
  const shapeOf = (list: readonly Omit<Pool, 'firstGroup'>[]) =>
    list.map(({ name, k, groups }) => `${name}: ${groups} groups of ${k}`).join(', ');
  const [wanted, saved] = [shapeOf(pools), shapeOf(checkpoint.pools)];
  if (kind !== 'full job') throw new KintsugiError('BAD_ARGUMENT', `checkpoint ${number} is an export`);
  if (wanted !== saved)
    throw new KintsugiError('BAD_ARGUMENT', `checkpoint ${number} has ${saved}, and the job ${wanted}`);
  const state = newJob(job, nodesWanted, [...pools]);
  state.map = { ...state.map, tables: tables.map((table, index) => ({ ...table, id: index + 1 })) };
  state.nextPeer = Math.max(1, samples?.nextPeer ?? 1);
  state.datasets = (samples?.datasets ?? []).map((dataset) => restoredDataset(dataset, barrier));
  for (const id of samples?.sessions ?? []) state.sessions.set(id, { id, leased: false });
  const toLoad = shards.map(({ group: g, member: m, segments }): [number, ShardToLoad] => [
    shardKey(g, m),
    { g, m, segments },
  ]);
  state.restore = { url, number, shards: new Map(toLoad) };
  return state;
}

/** The state of a new job. */
export function newJob(job: string, nodesWanted: number, pools: Omit<Pool, 'firstGroup'>[]): DurableState {
  let firstGroup = 0;
  const placed = pools.map((pool) => {
    const withFirst = { ...pool, firstGroup };
    firstGroup += pool.groups;
    return withFirst;
  });
  return {
    map: { epoch: 1, job, pools: placed, groups: [], nodes: [], tables: [] },
    nodesWanted,
    nextPeer: 1,
    nextSid: 1,
    names: {},
    sessions: new Map(),
    datasets: [],
  };
}

/** A state that was stored before sinks said what they are for: derived from kinds and the order of sids. */
export function withCapabilities(state: DurableState): DurableState {
  const groups = state.map.groups.map((group): Group => {
    if (group.sinks.every((sink) => sink.acknowledges !== undefined)) return group;
    return { ...group, sinks: group.sinks.map((sink) => capable(group, sink)) };
  });
  return { ...state, map: { ...state.map, groups } };
}

function capable(group: Group, sink: SinkEntry): SinkEntry {
  const older = group.sinks.some(
    ({ kind, index, sid }) => kind === sink.kind && index === sink.index && sid < sink.sid,
  );
  const moves = sink.kind === 'M' ? group.data[sink.index]?.node !== sink.node : older;
  return { ...sink, ...CAPABILITIES[sink.kind], ...(moves && { movesMember: seatOf(group, sink) }) };
}
