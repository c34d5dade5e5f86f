/** The status of the cluster for people and launchers: pure functions of the map and the latest reports. */
import type { Life } from '../../protocol/liveness.js';
import { type ClusterMap, type Group, type PeerId, parities } from '../../protocol/map.js';
import type {
  Heartbeat,
  JobStatus,
  JobSummary,
  NodeStatus,
  RecoveryStats,
  Redundancy,
  ScalingStatus,
} from '../../protocol/messages.js';
import type { SavedCopy } from '../../protocol/status.js';
import { crowdingProblem } from '../placement/crowding.js';
import { domainsProblem } from '../placement/domains.js';
import {
  type ClusterView,
  canImprove,
  isHealthy,
  isMirrored,
  isSpread,
  shardsPerNode,
} from '../placement/health.js';
import type { LostShard } from './reports.js';
import type { DurableState } from './state.js';

/** The facts that the redundancy of the job follows from. */
export interface ConditionInput {
  state: DurableState;
  view: ClusterView;
  lost: LostShard[];
  /** Rows of a shard, by the last report of whoever owned it. */
  rows(g: number, m: number): number;
}

export interface StatusInput extends ConditionInput {
  reports: ReadonlyMap<PeerId, Required<Pick<Heartbeat, 'bytes' | 'rows' | 'recoveries'>>>;
  /** A shard in the newest checkpoint that is known to have it. */
  saved(g: number, m: number): SavedCopy | undefined;
  life(node: PeerId): Life;
  overloaded(node: PeerId): boolean;
  scaling(): ScalingStatus;
}

const ORDER: Redundancy[] = ['full', 'degraded', 'recovering', 'lost'];

/** The worse one. */
export const worse = (a: Redundancy, b: Redundancy): Redundancy =>
  ORDER.indexOf(b) > ORDER.indexOf(a) ? b : a;

/** Whether every group can lose r nodes, and if not, why. */
function redundancyOf(input: ConditionInput): { state: Redundancy; reasons: string[] } {
  const { map } = input.state;
  if (map.groups.length === 0) return { state: 'forming', reasons: [formingReason(input)] };
  const view = withMirrors(map.groups, input.view);
  const flaws = map.groups.flatMap((group) => flawOf(group, input, view) ?? []);
  return {
    state: flaws.reduce<Redundancy>((state, flaw) => worse(state, flaw.state), 'full'),
    reasons: flaws.map(({ reason }) => reason),
  };
}

export function formingReason({ state, view }: ConditionInput): string {
  return `${view.nodes.length} of ${state.nodesWanted} nodes have joined`;
}

/** Why a group cannot lose r nodes. */
export interface Flaw {
  state: Redundancy;
  reason: string;
}

/** Undefined if the group can lose r nodes. `view`: see `withMirrors`. */
export function flawOf(group: Group, input: ConditionInput, view: ClusterView): Flaw | undefined {
  const pool = input.state.map.pools[group.pool]!;
  const where = `${pool.name} group ${group.id - pool.firstGroup}`;
  const lost = input.lost.find((u) => u.g === group.id && u.v === group.version);
  if (lost) {
    const rows = input.rows(lost.g, lost.m);
    return { state: 'lost', reason: `${where}: shard ${lost.m} (${rows} rows) is beyond repair` };
  }
  if (!membersComplete(group, view)) return { state: 'recovering', reason: `${where}: recovering` };
  if (!isSpread(group, pool)) {
    const missing = parities(group).length < pool.r;
    const reason = `${where}: ${missing ? 'a parity is missing' : 'two members share a node'}`;
    return { state: canImprove(group, pool, view) ? 'recovering' : 'degraded', reason };
  }
  return isHealthy(group, pool, view) ? undefined : { state: 'recovering', reason: `${where}: recovering` };
}

/**
 * After a cut-over the mirror on the new owner's node has all of its bytes, so the shard counts as complete
 * while the owner takes them over.
 */
export function withMirrors(groups: readonly Group[], view: ClusterView): ClusterView {
  const shardComplete: ClusterView['shardComplete'] = (g, m, gen) =>
    view.shardComplete(g, m, gen) || isMirrored(groups[g]!, m, view);
  return { ...view, shardComplete };
}

/** True if every data shard and every parity in use is complete. Targets of moves do not count. */
function membersComplete(group: Group, view: ClusterView): boolean {
  for (const [m, entry] of group.data.entries()) {
    if (entry.node === 0 || !view.shardComplete(group.id, m, entry.gen)) return false;
  }
  return parities(group).every((sink) => view.sinkComplete(sink.sid));
}

/** The part of the status that changes only with an event; see `Scheduler.summary`. */
export interface Condition {
  readonly map: ClusterMap;
  readonly state: Redundancy;
  readonly reasons: readonly string[];
  /** Warning about host labels; undefined: nothing is wrong. */
  readonly hosts: string | undefined;
  /** Warning about the number of shards; undefined: nothing is wrong. */
  readonly shards: string | undefined;
  readonly nodesAlive: number;
}

/** The condition, computed from scratch; redundancy.ts keeps it up to date group by group. */
export function conditionOf(input: ConditionInput): Condition {
  return { map: input.state.map, ...redundancyOf(input), ...nodesOf(input) };
}

export function nodesOf({ state, view }: ConditionInput): Pick<Condition, 'hosts' | 'shards' | 'nodesAlive'> {
  const alive = state.map.nodes.filter(({ id, inc }) => view.alive(id, inc));
  const hosts = domainsProblem(alive);
  const formed = state.map.groups.length > 0;
  const shards = formed ? crowdingProblem(state.map.pools, alive) : undefined;
  return { hosts, shards, nodesAlive: alive.length };
}

export function summaryOf({ map, state, reasons, nodesAlive }: Condition): JobSummary {
  const [nodesKnown, tables] = [map.nodes.length, map.tables.length];
  return { epoch: map.epoch, redundancy: state, reasons, nodesAlive, nodesKnown, tables };
}

export function statusOf(input: StatusInput, { state, reasons, hosts, shards }: Condition): JobStatus {
  const { map } = input.state;
  const load = shardsPerNode(map.groups);
  const data = new Map<PeerId, number>();
  for (const group of map.groups)
    for (const { node } of group.data) data.set(node, (data.get(node) ?? 0) + 1);
  const nodes = map.nodes.map((node): NodeStatus => {
    const report = input.reports.get(node.id);
    const dataShards = data.get(node.id) ?? 0;
    return {
      id: node.id,
      name: node.name,
      host: node.host,
      address: node.address,
      alive: input.view.alive(node.id, node.inc),
      life: input.life(node.id),
      ...(input.overloaded(node.id) && { overloaded: true as const }),
      standby: (load.get(node.id) ?? 0) === 0,
      inc: node.inc,
      dataShards,
      parityShards: (load.get(node.id) ?? 0) - dataShards,
      bytes: report?.bytes ?? 0,
      rows: report?.rows ?? 0,
      ...(!report && { reported: false as const }),
    };
  });
  // The newest report of a node that was given up may be of shards that others own now.
  const isCurrent = ({ g, m, gen }: RecoveryStats) => map.groups[g]?.data[m]?.gen === gen;
  const recoveries = [...input.reports.values()].flatMap((report) => report.recoveries.filter(isCurrent));
  return {
    job: map.job,
    epoch: map.epoch,
    redundancy: state,
    reasons: [...reasons],
    warnings: [hosts, shards].filter((warning) => warning !== undefined),
    nodes,
    pools: map.pools.map((pool) => ({
      name: pool.name,
      code: `${pool.k}+${pool.r}`,
      groups: pool.groups,
      shards: pool.groups * pool.k,
    })),
    tables: map.tables.map(({ name, pool, dim, optimizer, policy }) => ({
      ...{ name, pool, dim, optimizer: optimizer.kind },
      ...(policy && { policy }),
    })),
    recoveries,
    unrecoverable: input.lost
      .filter((lost) => map.groups[lost.g]?.version === lost.v)
      .map(({ g, m, blocks }) => {
        const checkpoint = input.saved(g, m);
        return { g, m, blocks, rows: input.rows(g, m), ...(checkpoint && { checkpoint }) };
      }),
    scaling: input.scaling(),
  };
}
