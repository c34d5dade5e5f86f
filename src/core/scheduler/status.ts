/** What a person and a launcher are told of the cluster: pure functions of the map and the latest reports. */
import { type ClusterMap, type Group, mirrorOf, type PeerId, parities } from '../../protocol/map.js';
import type {
  Heartbeat,
  JobStatus,
  JobSummary,
  NodeStatus,
  RecoveryStats,
  Redundancy,
  ScalingStatus,
} from '../../protocol/messages.js';
import { domainsProblem } from '../placement/domains.js';
import { type ClusterView, canImprove, isHealthy, isSpread, shardsPerNode } from '../placement/health.js';
import type { LostShard } from './reports.js';
import type { DurableState } from './state.js';

export interface StatusInput {
  state: DurableState;
  view: ClusterView;
  lost: LostShard[];
  reports: ReadonlyMap<PeerId, Pick<Heartbeat, 'bytes' | 'rows' | 'recoveries'>>;
  /** Rows of a shard, by the last report of whoever owned it. */
  rows(g: number, m: number): number;
  scaling(): ScalingStatus;
}

const ORDER: Redundancy[] = ['full', 'degraded', 'recovering', 'lost'];

/** Whether every group can lose r nodes, and if not, why. */
function redundancyOf(input: StatusInput): { state: Redundancy; reasons: string[] } {
  const { state: durable } = input;
  const { map, nodesWanted } = durable;
  const view = withMirrors(map.groups, input.view);
  if (map.groups.length === 0) {
    return {
      state: 'forming',
      reasons: [`${view.nodes.length} of ${nodesWanted} nodes have joined`],
    };
  }
  const reasons: string[] = [];
  let state: Redundancy = 'full';
  const worsen = (next: Redundancy) => {
    if (ORDER.indexOf(next) > ORDER.indexOf(state)) state = next;
  };
  for (const group of map.groups) {
    const pool = map.pools[group.pool]!;
    const where = `${pool.name} group ${group.id - pool.firstGroup}`;
    const lost = input.lost.find((u) => u.g === group.id && u.v === group.version);
    if (lost) {
      worsen('lost');
      reasons.push(`${where}: shard ${lost.m} (${input.rows(lost.g, lost.m)} rows) is beyond repair`);
    } else if (!membersComplete(group, view)) {
      worsen('recovering');
      reasons.push(`${where}: recovering`);
    } else if (!isSpread(group, pool)) {
      worsen(canImprove(group, pool, view) ? 'recovering' : 'degraded');
      reasons.push(
        `${where}: ${parities(group).length < pool.r ? 'a parity is missing' : 'two members share a node'}`,
      );
    } else if (!isHealthy(group, pool, view)) {
      worsen('recovering');
      reasons.push(`${where}: recovering`);
    }
  }
  return { state, reasons };
}

/**
 * After a cut-over the mirror on the new owner's node has all of its bytes, so the shard counts as complete
 * while the owner takes them over.
 */
function withMirrors(groups: readonly Group[], view: ClusterView): ClusterView {
  const mirrored = (g: number, m: number): boolean => {
    const group = groups[g];
    const mirror = group && mirrorOf(group, m);
    return mirror?.node === group?.data[m]?.node && mirror !== undefined && view.sinkComplete(mirror.sid);
  };
  return { ...view, shardComplete: (g, m, gen) => view.shardComplete(g, m, gen) || mirrored(g, m) };
}

/** True if every data shard and every parity in use is complete. Targets of moves do not count. */
function membersComplete(group: Group, view: ClusterView): boolean {
  for (const [m, entry] of group.data.entries()) {
    if (entry.node === 0 || !view.shardComplete(group.id, m, entry.gen)) return false;
  }
  return parities(group).every((sink) => view.sinkComplete(sink.sid));
}

/** What is known of the cluster that changes only with an event; see `Scheduler.summary`. */
export interface Condition {
  readonly map: ClusterMap;
  readonly state: Redundancy;
  readonly reasons: readonly string[];
  readonly warnings: readonly string[];
  readonly nodesAlive: number;
}

export function conditionOf(input: StatusInput): Condition {
  const { state, view } = input;
  const alive = state.map.nodes.filter(({ id, inc }) => view.alive(id, inc));
  const problem = domainsProblem(alive);
  const warnings = problem === undefined ? [] : [problem];
  return { map: state.map, ...redundancyOf(input), warnings, nodesAlive: alive.length };
}

export function summaryOf({ map, state, reasons, nodesAlive }: Condition): JobSummary {
  const [nodesKnown, tables] = [map.nodes.length, map.tables.length];
  return { epoch: map.epoch, redundancy: state, reasons, nodesAlive, nodesKnown, tables };
}

export function statusOf(input: StatusInput, { state, reasons, warnings }: Condition): JobStatus {
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
      standby: (load.get(node.id) ?? 0) === 0,
      inc: node.inc,
      dataShards,
      parityShards: (load.get(node.id) ?? 0) - dataShards,
      bytes: report?.bytes ?? 0,
      rows: report?.rows ?? 0,
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
    warnings: [...warnings],
    nodes,
    pools: map.pools.map((pool) => ({
      name: pool.name,
      code: `${pool.k}+${pool.r}`,
      groups: pool.groups,
      shards: pool.groups * pool.k,
    })),
    tables: map.tables.map(({ name, pool, dim, optimizer }) => ({
      name,
      pool,
      dim,
      optimizer: optimizer.kind,
    })),
    recoveries,
    unrecoverable: input.lost
      .filter((lost) => map.groups[lost.g]?.version === lost.v)
      .map(({ g, m, blocks }) => ({ g, m, blocks, rows: input.rows(g, m) })),
    scaling: input.scaling(),
  };
}
