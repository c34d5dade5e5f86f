/**
 * What may be given up and what may be moved, by the latest reports: pure functions for the scheduler (rules
 * 28 and 30).
 */
import type { Group, NodeEntry, PeerId, Pool, SinkEntry } from '../../protocol/map.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import { type ClusterView, isHealthy, lackingMembers, parities } from './placement.js';

/**
 * A node that did not restart may only be slow: where r members lack already, giving up on it would lose data
 * that it still has. A group that is beyond repair (`lost`) has nothing left to wait for.
 */
export function isIndispensable(
  node: PeerId,
  groups: readonly Group[],
  pools: readonly Pool[],
  view: ClusterView,
  lost: (group: Group) => boolean,
): boolean {
  return groups.some((group) => {
    const pool = pools[group.pool]!;
    const holds = [...group.data, ...group.sinks].some((entry) => entry.node === node);
    return holds && !lost(group) && lackingMembers(group, pool, view, node) > pool.r;
  });
}

/** Without this sink still no more than r members lack, as far as we can tell. */
export function canDoWithout(group: Group, sink: SinkEntry, pool: Pool, view: ClusterView): boolean {
  const others = { ...group, sinks: group.sinks.filter((entry) => entry !== sink) };
  return lackingMembers(others, pool, view) <= pool.r;
}

/** Data shard `member`, or parity `index`, is to go to `node`. */
export interface MoveRequest {
  member: number | undefined;
  index: number | undefined;
  node: NodeEntry;
}

/** The sink that a move begins with, without its number; undefined when the move does not fit now. */
export function sinkForMove(
  group: Group,
  pool: Pool,
  view: ClusterView,
  { member, index, node }: MoveRequest,
): Omit<SinkEntry, 'sid'> | undefined {
  if (!view.alive(node.id, node.inc) || !isHealthy(group, pool, view)) return undefined;
  if ([...group.data, ...group.sinks].some((other) => other.node === node.id)) return undefined;
  const kind = member === undefined ? 'P' : 'M';
  const number = member ?? index ?? 0;
  const busy = group.sinks.filter((sink) => sink.kind === kind && sink.index === number).length;
  if (busy > (kind === 'P' ? 1 : 0)) return undefined;
  return { kind, index: number, node: node.id, inc: node.inc, init: false };
}

/**
 * The sink is where a shard is moving to, and the group could do without it: every member has a node of its
 * own already.
 */
export function isPlanned(group: Group, sid: number): boolean {
  const sink = group.sinks.find((entry) => entry.sid === sid);
  if (!sink) return false;
  const used = [...group.data, ...parities(group)];
  if (used.includes(sink)) return false;
  const nodes = used.map((entry) => entry.node);
  return new Set(nodes).size === nodes.length && !nodes.includes(0);
}

/** Few groups move one shard at a time: every extra sink costs throughput. */
export function movesAtOnce(groups: number, { maxMoves, groupsPerMove }: SchedulerPolicy): number {
  return Math.min(maxMoves, Math.max(1, Math.floor(groups / groupsPerMove)));
}
