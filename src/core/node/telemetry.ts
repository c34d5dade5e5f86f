/** Telemetry of a node (src/protocol/telemetry.ts). */
import type { NativeMemory } from '../../engine/native.js';
import { addLife } from '../../engine/policies.js';
import type {
  MemoryPart,
  NodeTelemetry,
  ShardTelemetry,
  SinkTelemetry,
  TableTelemetry,
} from '../../protocol/telemetry.js';
import type { Owner } from '../shard/owner.js';
import type { Sink } from '../sink/sink.js';
import type { Surroundings } from './hooks.js';
import type { NodeHost } from './host.js';
import type { Owners } from './owners.js';
import type { Sinks } from './sinks.js';

/** The parts of a node that telemetry is read from. */
export interface ObservedParts {
  readonly host: NodeHost;
  readonly owners: Owners;
  readonly sinks: Sinks;
  readonly queue: { readonly count: number; readonly bytes: number };
  readonly memory: NativeMemory;
  /** Saves and loads hold bytes of files. */
  readonly saving: { readonly fileBytes: number };
  readonly loading: { readonly fileBytes: number };
}

/** Bytes by class (core/shared/memory-classes.ts). `readerBytes`: those of answers, too. */
export function partBytesOf(
  parts: ObservedParts,
  receivedBytes: number,
  readerBytes: number,
): Record<MemoryPart, number> {
  const { answers, waiting, deltaBytes, evicted } = parts.host;
  return {
    data: sum(parts.owners.all(), ({ native }) => native.bytes),
    parity: sum(parts.sinks.all(), ({ native }) => native.bytes),
    snapshots: sum(parts.owners.all(), ({ native }) => native.snapshotBytes),
    files: parts.saving.fileBytes + parts.loading.fileBytes,
    deltas: deltaBytes.uncommitted,
    sinkLogs: deltaBytes.logged,
    outgoing: deltaBytes.outgoing,
    waiting: waiting.used,
    answers: answers.bytes.used,
    received: receivedBytes,
    // Links to clients hold answers, too.
    readers: Math.max(0, readerBytes - answers.bytes.used),
    evicted: evicted.used,
  };
}

/** `shards`: also of each shard, and of each sink that lacks something. */
export function telemetryOf(
  parts: ObservedParts,
  surroundings: Surroundings,
  shards: boolean,
): NodeTelemetry {
  const { host, queue, memory } = parts;
  const { meter, waiting, deltaBytes } = host;
  const owners = parts.owners.all();
  const sinks = parts.sinks.all();
  const { sentBytes, startRssBytes, receivedBytes, readerBytes, ...own } = surroundings;
  const partBytes = partBytesOf(parts, receivedBytes, readerBytes);
  const known = startRssBytes + sum(Object.values(partBytes), (bytes) => bytes);
  return {
    ...own,
    memory: {
      limitBytes: memory.limitBytes,
      usedBytes: memory.usedBytes - partBytes.snapshots,
      partBytes,
      unaccountedBytes: Math.max(0, own.rssBytes - known),
    },
    ops: { pull: meter.pull.telemetry(), push: meter.push.telemetry() },
    commit: meter.commit.read(),
    tables: tablesOf(host, parts.owners),
    dataShards: owners.length,
    parityShards: sinks.length,
    recoveringShards: owners.filter(({ complete }) => !complete).length,
    uncommittedBytes: deltaBytes.uncommitted,
    sinkLagBytes: owners.reduce((most, { stream }) => Math.max(most, stream.uncommittedBytes), 0),
    parkedRequests: waiting.count + queue.count,
    parkedBytes: waiting.used + queue.bytes,
    recoveredBlocks: { ...meter.recoveredBlocks },
    movedBlocks: meter.movedBlocks,
    sentBytes,
    paceBytes: host.pace.rates(),
    ...(shards && { shards: owners.map(shardOf), sinks: sinks.flatMap(lackingOf) }),
  };
}

function tablesOf({ map, meter }: NodeHost, owners: Owners): TableTelemetry[] {
  const rows = new Map<number, number>();
  const lives = new Map(owners.livesThatWere);
  for (const { native } of owners.values())
    for (const { table, rows: count, life } of native.stats()) {
      rows.set(table, (rows.get(table) ?? 0) + count);
      addLife(lives, table, life);
    }
  return map.tables.map(({ id, name }) => {
    const life = lives.get(id);
    return {
      name,
      rows: rows.get(id) ?? 0,
      pulledRows: meter.pull.rowsOf[id] ?? 0,
      pushedRows: meter.push.rowsOf[id] ?? 0,
      ...(life && { life }),
    };
  });
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
