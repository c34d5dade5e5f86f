/** What a node reports to the scheduler about its shards and sinks. */
import type { Heartbeat, MessageOf } from '../../protocol/messages.js';
import type { Owner } from '../shard/owner.js';
import type { Sink } from '../sink/sink.js';

/** True if a shard or sink of this node lacks blocks. Targets of planned moves do not count. */
export function isLacking(owners: readonly Owner[], sinks: readonly Sink[]): boolean {
  return owners.some(({ complete }) => !complete) || sinks.some((sink) => !sink.complete && !sink.planned);
}

/** The number of blocks that each target of a move lacks. */
export function movesLeft(sinks: readonly Sink[]): MessageOf<'moveProgress'>['items'] {
  return sinks.flatMap((sink): [number, number][] => {
    const left = sink.planned && !sink.complete ? sink.blocksLeft : undefined;
    return left === undefined ? [] : [[sink.sid, left]];
  });
}

/** What is reported of a data shard or a sink. */
export type ReportedOwner = Pick<
  Owner,
  'group' | 'member' | 'gen' | 'complete' | 'requests' | 'recoveryStats'
> & {
  native: Pick<Owner['native'], 'rows' | 'bytes'>;
};
export type ReportedSink = Pick<Sink, 'sid' | 'complete' | 'followsOne' | 'groupId' | 'seat' | 'deltas'> & {
  native: Pick<Sink['native'], 'bytes'>;
};

/** In heartbeats: after how many a size or a count is reported again, and after how many everything is. */
const SIZES_AFTER = 5;
const EVERYTHING_AFTER = 15;

/** What the scheduler was told of a data shard or a sink of this process. */
interface Told {
  complete: boolean;
  rows: number;
  count: number;
  at: number;
}

/** A heartbeat without who sends it. */
export type Report = Pick<
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
  private told = new WeakMap<ReportedOwner | ReportedSink, Told>();
  private sentAt = Number.NEGATIVE_INFINITY;
  private everythingAt = Number.NEGATIVE_INFINITY;
  private recoveries = '';

  constructor(private readonly heartbeatMs: number) {}

  /** The next report has everything. */
  everything(): void {
    this.everythingAt = Number.NEGATIVE_INFINITY;
  }

  /** Undefined: it is not time. */
  report(now: number, owners: readonly ReportedOwner[], sinks: readonly ReportedSink[]): Report | undefined {
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
    const report: Report = { completeSinks: [], completeShards: [], owned: [], held: [], rows: 0 };
    for (const sink of sinks) this.addSink(sink, now, report);
    for (const owner of owners) this.addOwner(owner, now, report);
    const recoveries = owners.flatMap((owner) => owner.recoveryStats() ?? []);
    const text = JSON.stringify(recoveries);
    if (whole || text !== this.recoveries) report.recoveries = recoveries;
    this.recoveries = text;
    return report;
  }

  private addSink(sink: ReportedSink, now: number, report: Report): void {
    const { complete, deltas: count } = sink;
    const before = this.told.get(sink);
    if (complete && !before?.complete) report.completeSinks.push(sink.sid);
    if (!this.changed(before, complete, count, now)) return;
    this.told.set(sink, { complete, rows: 0, count, at: now });
    if (complete && !sink.followsOne) report.held!.push([sink.groupId, sink.seat, sink.native.bytes, count]);
  }

  private addOwner(owner: ReportedOwner, now: number, report: Report): void {
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
    // Statistics of an incomplete shard are too low.
    if (!complete) return;
    report.owned.push([group.id, member, rows]);
    report.held!.push([group.id, member, owner.native.bytes, count]);
  }

  private changed(before: Told | undefined, complete: boolean, count: number, now: number): boolean {
    if (!before || before.complete !== complete) return true;
    return (before.count !== count || !complete) && now - before.at >= SIZES_AFTER * this.heartbeatMs;
  }
}
