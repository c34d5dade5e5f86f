/** Reports of a node to the scheduler about its shards and sinks. */
import type { Heartbeat, MessageOf } from '../../protocol/messages.js';
import type { Owner } from '../shard/owner.js';
import type { Sink } from '../sink/sink.js';

/** True if a shard or sink of this node lacks blocks. Targets of planned moves do not count. */
export function isLacking(owners: readonly Owner[], sinks: readonly Sink[]): boolean {
  return owners.some(({ complete }) => !complete) || sinks.some((sink) => !sink.complete && !sink.moveTarget);
}

/** The number of blocks that each target of a move lacks. */
export function movesLeft(sinks: readonly Sink[]): MessageOf<'moveProgress'>['items'] {
  return sinks.flatMap((sink): [number, number][] => {
    const left = sink.moveTarget && !sink.complete ? sink.blocksLeft : undefined;
    return left === undefined ? [] : [[sink.sid, left]];
  });
}

/** The fields of a data shard that reports are made from. */
export type ReportedOwner = Pick<
  Owner,
  'group' | 'member' | 'gen' | 'complete' | 'requests' | 'recoveryStats'
> & {
  native: Pick<Owner['native'], 'rows' | 'bytes'>;
};
/** The fields of a sink that reports are made from. */
export type ReportedSink = Pick<Sink, 'sid' | 'complete' | 'followsOne' | 'groupId' | 'seat' | 'deltas'> & {
  native: Pick<Sink['native'], 'bytes'>;
};

/** Heartbeats after which a changed size or count of a shard is reported again. */
const SIZES_AFTER = 5;
/** Heartbeats after which everything is reported again. */
const EVERYTHING_AFTER = 15;

/** The newest report of a data shard or a sink of this process. */
interface ReportedState {
  complete: boolean;
  rows: number;
  count: number;
  at: number;
}

/** A heartbeat without the fields that name its sender. */
export type NodeStanding = Pick<
  Heartbeat,
  'completeSinks' | 'completeShards' | 'recoveries' | 'owned' | 'held' | 'rows'
>;

/**
 * Makes heartbeats, which have the changes since the last one. Completeness is reported at once. Sizes and
 * counts are reported some heartbeats apart, and only of shards and sinks that were used. Every
 * `EVERYTHING_AFTER` heartbeats, and after a call of `everything`, a heartbeat has everything, because a
 * restarted scheduler knows nothing.
 */
export class Reporter {
  /** Shards and sinks that were reported since the last report of everything. */
  private told = new WeakMap<ReportedOwner | ReportedSink, ReportedState>();
  /** Milliseconds of the newest heartbeat, and of the newest one that had everything. */
  private sentAt = Number.NEGATIVE_INFINITY;
  private everythingAt = Number.NEGATIVE_INFINITY;
  /** The recoveries of the newest heartbeat, as text: they are reported again when the text changes. */
  private recoveries = '';

  constructor(private readonly heartbeatMs: number) {}

  /** The next report has everything. */
  everything(): void {
    this.everythingAt = Number.NEGATIVE_INFINITY;
  }

  /** Undefined: no heartbeat is due. */
  report(
    now: number,
    owners: readonly ReportedOwner[],
    sinks: readonly ReportedSink[],
  ): NodeStanding | undefined {
    const whole = now - this.everythingAt >= EVERYTHING_AFTER * this.heartbeatMs;
    const differs = (holder: ReportedOwner | ReportedSink) =>
      holder.complete !== (this.told.get(holder)?.complete ?? false);
    const due = whole || now - this.sentAt >= this.heartbeatMs;
    if (!due && !owners.some(differs) && !sinks.some(differs)) return undefined;
    this.sentAt = now;
    if (whole) {
      this.everythingAt = now;
      this.told = new WeakMap();
    }
    const report: NodeStanding = { completeSinks: [], completeShards: [], owned: [], held: [], rows: 0 };
    for (const sink of sinks) this.addSink(sink, now, report);
    for (const owner of owners) this.addOwner(owner, now, report);
    const recoveries = owners.flatMap((owner) => owner.recoveryStats() ?? []);
    const text = JSON.stringify(recoveries);
    if (whole || text !== this.recoveries) report.recoveries = recoveries;
    this.recoveries = text;
    return report;
  }

  private addSink(sink: ReportedSink, now: number, report: NodeStanding): void {
    const { complete, deltas: count } = sink;
    const before = this.told.get(sink);
    if (complete && !before?.complete) report.completeSinks.push(sink.sid);
    if (!this.changed(before, complete, count, now)) return;
    this.told.set(sink, { complete, rows: 0, count, at: now });
    if (complete && !sink.followsOne) report.held!.push([sink.groupId, sink.seat, sink.native.bytes, count]);
  }

  private addOwner(owner: ReportedOwner, now: number, report: NodeStanding): void {
    const { complete, requests: count, group, member } = owner;
    const before = this.told.get(owner);
    if (complete && !before?.complete) report.completeShards.push([group.id, member, owner.gen]);
    if (!this.changed(before, complete, count, now)) {
      report.rows += before!.rows;
      return;
    }
    const { rows } = owner.native;
    this.told.set(owner, { complete, rows, count, at: now });
    report.rows += rows;
    // The rows and bytes of an incomplete shard are too low.
    if (!complete) return;
    report.owned.push([group.id, member, rows]);
    report.held!.push([group.id, member, owner.native.bytes, count]);
  }

  private changed(before: ReportedState | undefined, complete: boolean, count: number, now: number): boolean {
    if (!before || before.complete !== complete) return true;
    return (before.count !== count || !complete) && now - before.at >= SIZES_AFTER * this.heartbeatMs;
  }
}
