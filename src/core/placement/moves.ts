/**
 * The beginning of planned moves. Rule 28: data moves as a mirror that becomes the owner when it is complete
 * and the group is healthy, and a parity as a second parity of its index. Rule 48: two such moves in opposite
 * directions are a swap, and end in one map.
 */
import type { Group, NodeEntry, Pool, SinkEntry } from '../../protocol/map.js';
import { CAPABILITIES, hasMove, isInUse, isParted, mirrorOf, parities, seatOf } from '../../protocol/map.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import { type ClusterView, isHealthy } from './health.js';

/** A sink without its number. */
export type NewSink = Omit<SinkEntry, 'sid'>;

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
): NewSink | undefined {
  if (!view.alive(node.id, node.inc) || !isHealthy(group, pool, view)) return undefined;
  if ([...group.data, ...group.sinks].some((other) => other.node === node.id)) return undefined;
  const kind = member === undefined ? 'P' : 'M';
  const number = member ?? index ?? 0;
  const movesMember = seatOf(group, { kind, index: number });
  const moving = group.sinks.some((sink) => sink.movesMember === movesMember);
  if (moving || (kind === 'M' && mirrorOf(group, number))) return undefined;
  return targetOf(group, kind, number, node);
}

function targetOf(
  group: Group,
  kind: SinkEntry['kind'],
  index: number,
  { id, inc }: Pick<NodeEntry, 'id' | 'inc'>,
): NewSink {
  const movesMember = seatOf(group, { kind, index });
  return { kind, index, node: id, inc, init: false, ...CAPABILITIES[kind], movesMember };
}

/** The data shard and the parity that a move to a node of the group would swap; undefined: it would not. */
export function swapTo(
  { data, sinks }: Group,
  { member, index, node }: MoveRequest,
): { member: number; index: number } | undefined {
  const parity = sinks.find((sink) => isInUse(sink) && sink.node === node.id);
  if (member !== undefined) return parity && { member, index: parity.index };
  const there = data.findIndex((entry) => entry.node === node.id);
  return there < 0 || index === undefined ? undefined : { member: there, index };
}

/**
 * The two sinks that a swap of data shard `member` and parity `index` begins with, without their numbers;
 * undefined when the swap does not fit now.
 */
export function sinksForSwap(
  group: Group,
  pool: Pool,
  view: ClusterView,
  { member, index }: { member: number; index: number },
): [NewSink, NewSink] | undefined {
  if (hasMove(group) || !isParted(group) || !isHealthy(group, pool, view)) return undefined;
  const shard = group.data[member];
  const parity = parities(group).find((sink) => sink.index === index);
  return (
    shard &&
    parity && [
      targetOf(group, 'M', member, { id: parity.node, inc: parity.inc }),
      targetOf(group, 'P', index, { id: shard.node, inc: shard.inc }),
    ]
  );
}

/** Most moves at once: every extra sink costs throughput. */
export function movesAtOnce(groups: number, { maxMoves, groupsPerMove }: SchedulerPolicy): number {
  return Math.min(maxMoves, Math.max(1, Math.floor(groups / groupsPerMove)));
}
