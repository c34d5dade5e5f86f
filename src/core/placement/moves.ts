/**
 * The beginning of planned moves. Rule 28: data moves as a mirror that becomes the owner when it is complete
 * and the group is healthy, and a parity as a second parity of its index.
 */
import type { Group, NodeEntry, Pool, SinkEntry } from '../../protocol/map.js';
import { CAPABILITIES, mirrorOf, seatOf } from '../../protocol/map.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import { type ClusterView, isHealthy } from './health.js';

/** A wish to move data shard `member`, or parity `index`, to `node`. */
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
  const movesMember = seatOf(group, { kind, index: number });
  const moving = group.sinks.some((sink) => sink.movesMember === movesMember);
  if (moving || (kind === 'M' && mirrorOf(group, number))) return undefined;
  const target = { kind, index: number, node: node.id, inc: node.inc, init: false } as const;
  return { ...target, ...CAPABILITIES[kind], movesMember };
}

/** Most moves at once: every extra sink costs throughput. */
export function movesAtOnce(groups: number, { maxMoves, groupsPerMove }: SchedulerPolicy): number {
  return Math.min(maxMoves, Math.max(1, Math.floor(groups / groupsPerMove)));
}
