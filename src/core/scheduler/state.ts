/** The scheduler's durable state: what a restarted scheduler resumes from. */
import type { JobEvent } from '../../protocol/events.js';
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
import type { SavedPart, SavePlan } from '../../protocol/saving.js';
import type { PlanStatus } from '../../protocol/status.js';
import type { RunTelemetry } from '../../protocol/telemetry.js';
import type { DatasetState } from './samples/state.js';
import type { SettingQuestions } from './setting-questions.js';

/**
 * An open session; a `leased` one ends when its client stays away, another when whoever opened it ends it.
 * Replaced and never changed in place.
 */
export interface SessionEntry {
  readonly id: PeerId;
  readonly leased: boolean;
}

export interface DurableState {
  map: ClusterMap;
  /** Whose job it is: an id that whoever starts its schedulers gives. Undefined: nobody has said. */
  owner?: string;
  /** Nodes that must have joined before groups are formed. */
  nodesWanted: number;
  /** The next id of a node or a session. Ids are never given twice. */
  nextPeer: PeerId;
  /** Ids below it belong to the job whose checkpoint this job began with. Undefined: it began with none. */
  firstPeer?: PeerId;
  /** The next id of a sink. Ids are never given twice. */
  nextSid: number;
  /**
   * Node names with their ids and newest incarnations, also of absent nodes (see names.ts). `left`: that
   * process was told to leave; `restart`: and that it is to be started again.
   */
  names: Record<string, { id: PeerId; inc: number; left?: boolean; restart?: boolean }>;
  /** By id, ascending: ids only grow. */
  sessions: Map<PeerId, SessionEntry>;
  /** Open sessions have their questions here. */
  settingQuestions: SettingQuestions;
  /** Undefined until the first change. */
  scaling?: Scaling;
  datasets: DatasetState[];
  /** Undefined until the first save plan. */
  saving?: { nextAttempt: number; plans: Map<string, StoredPlan> };
  /** The job was made from this checkpoint, or lost shards of it are, and some of it is not loaded yet. */
  restore?: Restore;
  /** Sums of the workers that are gone, by run (see workers.ts). Entries are replaced, never changed. */
  runs: Map<string, RunTelemetry>;
  /** The newest events, by their place in the ring (see events.ts). */
  events: Map<number, JobEvent>;
}

/** The shards that are still to be loaded from a checkpoint. */
export interface Restore {
  url: string;
  number: number;
  /** A running job loads shards that it had lost. */
  onlyLost?: true;
  /**
   * Some shards may hold batches that were trained after the queue of samples was copied, and these batches
   * are trained again.
   */
  atLeastOnce?: true;
  /** Shards by `shardKey`. */
  shards: Map<number, ShardToLoad>;
}

/** Replaced and never changed in place. */
export interface ShardToLoad {
  readonly g: number;
  readonly m: number;
  readonly parts: readonly SavedPart[];
  /** See `LoadShard`. */
  readonly reshaped: boolean;
  readonly sessionsBelow?: PeerId;
}

/** Replaced and never changed in place. */
export interface StoredPlan extends SavePlan {
  readonly name: string;
  /** Number of its next checkpoint. */
  readonly next: number;
  /** The newest checkpoint; `at`: milliseconds since 1970. Nothing waits for it to be written. */
  readonly last?: Omit<NonNullable<PlanStatus['last']>, 'agoMs'> & { readonly at: number };
  /** The failure of its newest attempt; undefined: it has not failed. Written as `last` is. */
  readonly failure?: PlanStatus['failure'];
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
  /** Processes that the change empties. A newer process of the same name is not emptied. */
  readonly leaving: readonly { node: PeerId; inc: number; name: string }[];
  /** The processes that it empties are to be started again. */
  readonly restart?: boolean;
  /** The emptied processes were told to leave, so the change cannot be taken back. */
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
    settingQuestions: new Map(),
    datasets: [],
    runs: new Map(),
    events: new Map(),
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
