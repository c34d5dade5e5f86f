/**
 * Data of the page: named sections of plain JSON. A section is sent when it differs from what was sent
 * before, so a quiet job sends almost nothing, and each host is a section of its own.
 */

import type { JobEvent } from '../../protocol/events.js';
import type {
  ChangeStatus,
  PlanStatus,
  Redundancy,
  ReplicaStatus,
  RestoreStatus,
} from '../../protocol/messages.js';
import type { HotShard, LoadView, RunView, ShownLoad } from './load.js';
import type { OutlookView } from './outlook.js';
import type { TablesView } from './tables.js';

/**
 * State of a shard or sink: `whole` lacks nothing; `recovering` is being decoded or built again; `moving`
 * leaves for another node; `arriving` is the copy that a move fills; `waiting` has a home that is down or
 * none; `lost` is beyond repair.
 */
export type CellState = 'whole' | 'recovering' | 'moving' | 'arriving' | 'waiting' | 'lost';
export const CELL_STATES: readonly CellState[] = [
  'whole',
  'recovering',
  'moving',
  'arriving',
  'waiting',
  'lost',
];

/** A data shard, a parity or a mirror on one node. Absent fields: there is nothing to say. */
export interface Cell {
  kind: 'data' | 'parity' | 'mirror';
  /** Name of the pool. */
  pool: string;
  /** Number of the group in its pool. */
  group: number;
  /** Number of the data shard, of the parity, or of the mirrored shard in its group. */
  index: number;
  state: CellState;
  /** Percent of what it lacked that is here, 0 to 100. */
  percent?: number;
  /** Percent of a data shard that came because a request waited for it, 0 to 100. */
  demand?: number;
  /** Name of the node that it moves to, or comes from. */
  other?: string;
}

export interface NodeView {
  id: number;
  name: string;
  address: string;
  state: 'alive' | 'down' | 'leaving' | 'standby';
  /** Absent: not known yet, because the node has not reported to this scheduler. */
  rows?: number;
  bytes?: number;
  cells: Cell[];
}

/** How many shards and sinks are in each state. */
export type ViewCounts = Record<CellState, number>;

/** A failure domain with its nodes. */
export interface HostView {
  name: string;
  nodes: NodeView[];
  /** Nodes that are down. */
  down: number;
  counts: ViewCounts;
  rows: number;
  bytes: number;
}

/** The job as a whole. */
export interface JobView {
  job: string;
  epoch: number;
  redundancy: Redundancy;
  /** At most {@link MAX_REASONS}. */
  reasons: string[];
  warnings: string[];
  pools: { name: string; code: string; groups: number; shards: number }[];
  hosts: number;
  nodes: number;
  nodesAlive: number;
  /** PS that are to serve when no change is under way. */
  wanted: number;
  serving: number;
  /** Living nodes that have not reported to this scheduler: it does not know yet how redundant the job is. */
  unreported: number;
  /** Absent: not known yet, because nodes have not reported. */
  rows?: number;
  bytes?: number;
  counts: ViewCounts;
}

/** A data shard that is being decoded. */
export interface RecoveryView {
  pool: string;
  group: number;
  index: number;
  /** Name of its new home. */
  node: string;
  /** 0: not known before its keys are there. */
  blocks: number;
  present: number;
  onDemand: number;
}

/** The recovery that ended last. */
export interface LastRecoveryView {
  /** Number of the recovery: the epoch of the map that it began with. */
  recovery: number;
  /** When the recovery ended, in milliseconds of the epoch. */
  at: number;
  shards: number;
  tookMs: number;
  /** Blocks that it decoded; absent: not known, because shards moved on before the page's server looked. */
  blocks?: number;
  /** Blocks that requests waited for. */
  onDemand?: number;
}

/** Whether the job can be reached. */
export interface LinkView {
  state: 'connecting' | 'up' | 'down';
  /** Why the job cannot be reached. */
  problem?: string;
  /** Beginning of this state, in milliseconds of the epoch. */
  since: number;
}

/** Something that somebody asked for with a button. */
export interface ActionView {
  id: number;
  /** Milliseconds of the epoch. */
  at: number;
  /** The command that does the same. */
  command: string;
  state: 'running' | 'done' | 'failed';
  /** Progress, result, or why it failed. */
  text: string;
}

export const MAX_REASONS = 20;
export const MAX_REPLICAS = 100;

/** All sections by name; those of hosts are `host/NAME`. None is null, which says that a section has gone. */
export interface View {
  link: LinkView;
  job?: JobView;
  recoveries?: RecoveryView[];
  /** `none`: none has ended, as far as events are kept. Absent: not known yet. */
  lastRecovery?: LastRecoveryView | 'none';
  /** Newest first; absent: not known yet. */
  events?: readonly JobEvent[];
  changes?: ChangeStatus[];
  /** `last`: also those of earlier schedulers, by the events. */
  saving?: PlanStatus[];
  restoring?: RestoreStatus | undefined;
  /** At most {@link MAX_REASONS}. */
  lost?: { pool: string; group: number; index: number; rows: number; saved?: string }[];
  tables?: TablesView | undefined;
  /** At most {@link MAX_REPLICAS}. `unfit`: why it is not ready, whatever it holds. */
  replicas?: (ReplicaStatus & { unfit?: string })[];
  /** This and what follows, absent: not known yet, because rates need two looks. */
  load?: LoadView | undefined;
  nodeLoads?: Record<number, ShownLoad>;
  hot?: HotShard[] | undefined;
  runs?: RunView[] | undefined;
  /** `none`: there are no rows to plan for. */
  outlook?: OutlookView | 'none' | undefined;
  actions: ActionView[];
  hosts: HostView[];
}

/** The sections of a view, as they are compared and sent. */
export function sectionsOf({ hosts, ...sections }: View): Map<string, string> {
  const texts = new Map<string, string>();
  for (const [name, value] of Object.entries(sections))
    if (value !== undefined) texts.set(name, JSON.stringify(value));
  for (const host of hosts) texts.set(`host/${host.name}`, JSON.stringify(host));
  return texts;
}

/**
 * Fields of a JSON object that turn the sections `before` into those of `now`. A section that is gone is
 * null.
 */
export function patchOf(before: ReadonlyMap<string, string>, now: ReadonlyMap<string, string>): string[] {
  const parts: string[] = [];
  for (const [name, text] of now)
    if (before.get(name) !== text) parts.push(`${JSON.stringify(name)}:${text}`);
  for (const name of before.keys()) if (!now.has(name)) parts.push(`${JSON.stringify(name)}:null`);
  return parts;
}
