/** What a node reports to the scheduler about its shards and sinks. */
import type { Heartbeat, MessageOf, RecoveryStats } from '../../protocol/messages.js';
import type { Owner } from '../shard/owner.js';
import type { Sink } from '../sink/sink.js';

/** What the scheduler decides on: it is told at once when this changes. */
export function completeness(
  owners: Iterable<Owner>,
  sinks: Iterable<Sink>,
): Pick<Heartbeat, 'completeSinks' | 'completeShards'> {
  const completeSinks: number[] = [];
  for (const sink of sinks) if (sink.complete) completeSinks.push(sink.sid);
  const completeShards: Heartbeat['completeShards'] = [];
  for (const owner of owners)
    if (owner.complete) completeShards.push([owner.group.id, owner.member, owner.gen]);
  return { completeSinks, completeShards };
}

/** Something that belongs on this node is not there yet, and not because of a planned move. */
export function isLacking(owners: readonly Owner[], sinks: readonly Sink[]): boolean {
  return owners.some(({ complete }) => !complete) || sinks.some((sink) => !sink.complete && !sink.planned);
}

/** What targets of moves do not have yet. */
export function movesLeft(sinks: readonly Sink[]): MessageOf<'moveProgress'>['items'] {
  return sinks.flatMap((sink): [number, number][] => {
    const left = sink.planned && !sink.complete ? sink.blocksLeft : undefined;
    return left === undefined ? [] : [[sink.sid, left]];
  });
}

export function holdings(
  owners: Iterable<Owner>,
  sinks: Iterable<Sink>,
): Pick<Heartbeat, 'recoveries' | 'owned' | 'rows' | 'held'> {
  const recoveries: RecoveryStats[] = [];
  const owned: Heartbeat['owned'] = [];
  const held: NonNullable<Heartbeat['held']> = [];
  let rows = 0;
  for (const owner of owners) {
    const stats = owner.recoveryStats();
    if (stats) recoveries.push(stats);
    let shardRows = 0;
    for (const table of owner.native.stats()) shardRows += table.rows;
    rows += shardRows;
    // Statistics of an incomplete shard are too low.
    if (!owner.complete) continue;
    owned.push([owner.group.id, owner.member, shardRows]);
    held.push([owner.group.id, owner.member, owner.native.bytes, owner.requests]);
  }
  for (const sink of sinks) {
    if (!sink.followsOne && sink.complete)
      held.push([sink.groupId, sink.seat, sink.native.bytes, sink.deltas]);
  }
  return { recoveries, owned, rows, held };
}
