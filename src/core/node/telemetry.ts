/** What a node tells of itself to whoever observes it (src/protocol/telemetry.ts). */
import type { NativeMemory } from '../../native.js';
import type { ClusterMap } from '../../protocol/map.js';
import type {
  NodeTelemetry,
  ProcessTelemetry,
  SentKind,
  ShardTelemetry,
  SinkTelemetry,
  TableTelemetry,
} from '../../protocol/telemetry.js';
import type { Owner } from '../shard/owner.js';
import type { DeltaBytes } from '../shared/delta-bytes.js';
import type { Meter } from '../shared/meter.js';
import type { Pace } from '../shared/pace.js';
import type { WaitingBytes } from '../shared/waiting-bytes.js';
import type { Sink } from '../sink/sink.js';

/** What its surroundings know: the process, and what it has sent. */
export interface Surroundings extends ProcessTelemetry {
  sentBytes: Record<SentKind, number>;
}

export const NOTHING_KNOWN: Surroundings = {
  upSeconds: 0,
  cpuSeconds: 0,
  rssBytes: 0,
  sentBytes: { answers: 0, deltas: 0, recovery: 0, replicas: 0, other: 0 },
};

/** Whose telemetry it is. */
export interface TelemetryHost {
  readonly map: ClusterMap;
  readonly memory: NativeMemory;
  readonly meter: Meter;
  readonly pace: Pace;
  readonly waiting: WaitingBytes;
  readonly deltaBytes: DeltaBytes;
  readonly owners: ReadonlyMap<number, Owner>;
  readonly sinks: { all(): readonly Sink[] };
}

/** `shards`: each of them, too. */
export function telemetryOf(host: TelemetryHost, surroundings: Surroundings, shards: boolean): NodeTelemetry {
  const { memory, meter, waiting, deltaBytes } = host;
  const owners = [...host.owners.values()];
  const sinks = host.sinks.all();
  const { sentBytes, ...own } = surroundings;
  const snapshots = sum(owners, ({ native }) => native.snapshotBytes);
  return {
    ...own,
    memory: {
      limitBytes: memory.limitBytes,
      usedBytes: memory.usedBytes - snapshots,
      partBytes: {
        data: sum(owners, ({ native }) => native.bytes),
        parity: sum(sinks, ({ native }) => native.bytes),
        snapshots,
        deltas: deltaBytes.used,
        waiting: waiting.used,
      },
    },
    ops: { pull: meter.pull.telemetry(), push: meter.push.telemetry() },
    commit: meter.commit.read(),
    tables: tablesOf(host, owners),
    dataShards: owners.length,
    parityShards: sinks.length,
    recoveringShards: owners.filter(({ complete }) => !complete).length,
    uncommittedBytes: deltaBytes.uncommitted,
    sinkLagBytes: owners.reduce((most, { stream }) => Math.max(most, stream.bufferBytes), 0),
    parkedRequests: waiting.count,
    parkedBytes: waiting.used,
    recoveredBlocks: { ...meter.recoveredBlocks },
    movedBlocks: meter.movedBlocks,
    sentBytes,
    paceBytes: host.pace.rates(),
    ...(shards && { shards: owners.map(shardOf), sinks: sinks.flatMap(lackingOf) }),
  };
}

function tablesOf({ map, meter }: TelemetryHost, owners: readonly Owner[]): TableTelemetry[] {
  const rows = new Map<number, number>();
  for (const { native } of owners)
    for (const { table, rows: count } of native.stats()) rows.set(table, (rows.get(table) ?? 0) + count);
  return map.tables.map(({ id, name }) => ({
    name,
    rows: rows.get(id) ?? 0,
    pulledRows: meter.pull.rowsOf[id] ?? 0,
    pushedRows: meter.push.rowsOf[id] ?? 0,
  }));
}

function shardOf({ group, member, requests, native }: Owner): ShardTelemetry {
  return { g: group.id, m: member, requests, rows: native.rows, bytes: native.bytes };
}

function lackingOf({ sid, complete, blocksLeft }: Sink): SinkTelemetry[] {
  return complete ? [] : [{ sid, ...(blocksLeft !== undefined && { blocksLeft }) }];
}

function sum<T>(list: readonly T[], of: (item: T) => number): number {
  return list.reduce((total, item) => total + of(item), 0);
}
