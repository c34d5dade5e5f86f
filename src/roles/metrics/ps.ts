/** The metrics of a PS, from what it tells to whoever observes it. */
import { EVICTION_REASONS, LIFE_REASONS, type LifeCounts, sumOfLives } from '../../engine/policies.js';
import { BLOCK_BYTES } from '../../protocol/blocks.js';
import type { ClusterMap } from '../../protocol/map.js';
import type { NodeTelemetry, TableTelemetry } from '../../protocol/telemetry.js';
import type { Labels, Readings } from './registry.js';

/** Counts that only the runtime of a PS has. */
export interface PsCounts {
  map: ClusterMap;
  engineBytes: number;
  schedulerConnected: boolean;
  sentMessages: number;
  sentFrames: number;
  refusedMessages: ReadonlyMap<string, number>;
  authFailures: number;
  checkpointFiles: number;
  checkpointFileBytes: number;
  checkpointFailedFiles: number;
}

/** Tables that have series of their own by reason. */
const MAX_LIVES = 100;
const OTHERS = '(others)';

const OPS = ['pull', 'push'] as const;

export function psReadings(told: NodeTelemetry, counts: PsCounts): Readings<'ps'> {
  const { ops, tables, memory, shards, sentBytes } = told;
  return {
    kintsugi_requests_total: OPS.flatMap((op) => {
      const { requests, failed } = ops[op];
      const refused = Object.entries(failed);
      const ok = requests - refused.reduce((sum, [, count]) => sum + count, 0);
      const all: [string, number][] = [['OK', Math.max(0, ok)], ...refused];
      return all.map(([code, count]): [Labels, number] => [{ op, code }, count]);
    }),
    kintsugi_request_rows_total: tables.flatMap(({ name: table, pulledRows, pushedRows }) => [
      [{ op: 'pull', table }, pulledRows] as const,
      [{ op: 'push', table }, pushedRows] as const,
    ]),
    kintsugi_request_duration_seconds: OPS.map((op) => [{ op }, ops[op].duration] as const),
    kintsugi_push_commit_duration_seconds: told.commit,
    kintsugi_table_rows: new Map(tables.map(({ name, rows }) => [name, rows])),
    kintsugi_table_removed_rows_total: livesOf(tables).flatMap(([table, life]) =>
      EVICTION_REASONS.map((name): [Labels, number] => [{ table, reason: label(name) }, life[name]]),
    ),
    kintsugi_table_dropped_gradients_total: livesOf(tables).map(([table, { refused }]) => [
      { table, reason: label('refused') },
      refused,
    ]),
    kintsugi_owners: told.dataShards,
    kintsugi_sinks: told.parityShards,
    kintsugi_recovering_shards: told.recoveringShards,
    kintsugi_recovery_blocks_total: new Map(Object.entries(told.recoveredBlocks)),
    kintsugi_move_bytes_total: told.movedBlocks * BLOCK_BYTES,
    kintsugi_memory_bytes: new Map(
      Object.entries({ ...memory.partBytes, unaccounted: memory.unaccountedBytes }),
    ),
    kintsugi_memory_limit_bytes: memory.limitBytes,
    kintsugi_memory_used_bytes: memory.usedBytes,
    kintsugi_engine_bytes: counts.engineBytes,
    kintsugi_uncommitted_bytes: told.uncommittedBytes,
    kintsugi_sink_lag_bytes: told.sinkLagBytes,
    kintsugi_parked_requests: told.parkedRequests,
    kintsugi_background_rate_bytes: new Map(Object.entries(told.paceBytes)),
    kintsugi_epoch: counts.map.epoch,
    kintsugi_scheduler_connected: Number(counts.schedulerConnected),
    kintsugi_network_sent_bytes_total: new Map(Object.entries(sentBytes)),
    kintsugi_sent_payload_bytes: Object.values(sentBytes).reduce((sum, bytes) => sum + bytes, 0),
    kintsugi_sent_messages_total: counts.sentMessages,
    kintsugi_sent_frames_total: counts.sentFrames,
    kintsugi_refused_messages_total: counts.refusedMessages,
    kintsugi_auth_failures_total: counts.authFailures,
    kintsugi_checkpoint_files_total: counts.checkpointFiles,
    kintsugi_checkpoint_file_bytes_total: counts.checkpointFileBytes,
    kintsugi_checkpoint_failed_files_total: counts.checkpointFailedFiles,
    kintsugi_shard_requests_total: shards?.map(({ g, m, requests }) => [place(counts.map, g, m), requests]),
    kintsugi_shard_bytes: shards?.map(({ g, m, bytes }) => [place(counts.map, g, m), bytes]),
  };
}

/** Counts of tables that have them, at most `MAX_LIVES` and one for the others: a job may have thousands. */
function livesOf(tables: readonly TableTelemetry[]): [table: string, LifeCounts][] {
  const known = tables.flatMap(({ name, life }): [string, LifeCounts][] => (life ? [[name, life]] : []));
  const others = sumOfLives(known.slice(MAX_LIVES).map(([, life]) => life));
  return others ? [...known.slice(0, MAX_LIVES), [OTHERS, others]] : known;
}

const label = (reason: keyof LifeCounts): string => LIFE_REASONS[reason].replaceAll(' ', '_');

/** A shard by its number in its pool. */
function place({ pools, groups }: ClusterMap, g: number, m: number): Labels {
  const pool = pools[groups[g]?.pool ?? 0];
  return { pool: pool?.name ?? '', shard: (g - (pool?.firstGroup ?? 0)) * (pool?.k ?? 1) + m };
}
