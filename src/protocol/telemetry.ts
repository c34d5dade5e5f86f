/**
 * Telemetry: counters and sizes of processes. `observe` asks a PS or the scheduler, `observed` answers. A
 * worker, which nobody can call, reports to the scheduler every 5 s.
 *
 * Counters count since the start of their process and only grow. An observer asks twice and subtracts
 * (src/library/observe/rates.ts). So nothing is counted twice, nobody keeps state for an observer, and a job
 * without observers sends nothing. A counter that is lower than before is that of another process.
 */
import type { LifeCounts } from '../engine/policies.js';
import type { Allocation } from './goodput.js';
import type { PeerId } from './map.js';

/** Upper bounds of the buckets of all durations. One more bucket has longer durations. */
export const DURATION_BOUNDS_SECONDS: readonly number[] = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
];

/** Durations in buckets. */
export interface Histogram {
  /**
   * Durations in each bucket: above the bound before it and at most its own; the last is above all bounds.
   */
  counts: number[];
  sumSeconds: number;
}

/** Telemetry of any process. */
export interface ProcessTelemetry {
  /** Time since the start of the process. */
  upSeconds: number;
  /** Processor time of all threads, in user and in kernel mode. */
  cpuSeconds: number;
  rssBytes: number;
  /** Version of the package that the process runs. */
  version?: string;
  /** Milliseconds since 1970, by the clock of its machine. */
  clockMs?: number;
}

/** A pull or a push of one message is one request for each shard that it names. */
export interface OpTelemetry {
  requests: number;
  rows: number;
  /** Requests that were refused, by code. */
  failed: Record<string, number>;
  /**
   * From the arrival of a request to its answer (pull), or until it is applied or refused (push). A message
   * counts once for each shard that it names.
   */
  duration: Histogram;
}

/** A use of the memory of a PS. */
export type MemoryPart =
  | 'data'
  | 'parity'
  | 'snapshots'
  | 'files'
  | 'deltas'
  | 'sinkLogs'
  | 'outgoing'
  | 'waiting'
  | 'answers'
  | 'received'
  | 'readers'
  | 'evicted';

/** Memory of a PS. */
export interface MemoryTelemetry {
  /** 0: no limit. */
  limitBytes: number;
  /** Bytes that count against the limit. */
  usedBytes: number;
  /**
   * Bytes by use. `data`: data shards. `parity`: sinks, with what they compute for recoveries. `snapshots`:
   * rows that are kept for a checkpoint. `files`: files of checkpoints on their way to or from their place.
   * `deltas`: batches that are not durable everywhere. `sinkLogs`: deltas that sinks may roll back.
   * `outgoing`: bytes that nodes have not taken. `waiting`: requests that wait. `answers`: rows that
   * clients have asked for and not read. `received`: frames that are not complete. `readers`: other bytes
   * that clients and replicas have not taken. `evicted`: evictions that are kept for who asks for them.
   */
  partBytes: Record<MemoryPart, number>;
  /** Resident memory beyond all parts and beyond what the process had when it began to serve. */
  unaccountedBytes: number;
}

/** A table on one node. */
export interface TableTelemetry {
  name: string;
  /** Rows in the data shards of this node. */
  rows: number;
  pulledRows: number;
  pushedRows: number;
  /** For a table with a policy, or of which rows were deleted; of shards that have moved away, too. */
  life?: LifeCounts;
}

/** A data shard on the node that owns it. */
export interface ShardTelemetry {
  g: number;
  m: number;
  /** Requests since this node owns the shard. */
  requests: number;
  rows: number;
  bytes: number;
}

/** A parity or a mirror that lacks blocks. */
export interface SinkTelemetry {
  sid: number;
  /** Blocks of its members, each about 4 KiB, that the sink lacks; absent: a stream has not begun. */
  blocksLeft?: number;
}

/** All kinds of bytes that a PS sends. */
export const SENT_KINDS: readonly SentKind[] = ['answers', 'deltas', 'recovery', 'replicas', 'other'];
/** A kind of bytes that a PS sends. */
export type SentKind = 'answers' | 'deltas' | 'recovery' | 'replicas' | 'other';

/** A kind of background work of a PS: work beside its requests. */
export type BackgroundKind = 'recovery' | 'moves' | 'saves';

export interface NodeTelemetry extends ProcessTelemetry {
  memory: MemoryTelemetry;
  ops: { pull: OpTelemetry; push: OpTelemetry };
  /** From the flush of an applied push until all sinks have it. */
  commit: Histogram;
  tables: TableTelemetry[];
  dataShards: number;
  parityShards: number;
  /** Data shards that lack blocks. */
  recoveringShards: number;
  /** Bytes of batches that are not durable. */
  uncommittedBytes: number;
  /** Uncommitted bytes of the shard with the most: the distance of its slowest sink. */
  sinkLagBytes: number;
  parkedRequests: number;
  parkedBytes: number;
  /** Lost blocks that are here again: blocks that requests waited for, and others. */
  recoveredBlocks: { demand: number; background: number };
  /** Blocks, each about 4 KiB, that planned moves brought here. */
  movedBlocks: number;
  /** Bytes of payload by kind. */
  sentBytes: Record<SentKind, number>;
  /** Bytes per second that background work may use while there are requests. */
  paceBytes: Record<BackgroundKind, number>;
  /** Each data shard; only if the question asked for it. */
  shards?: ShardTelemetry[];
  /** Each incomplete sink; only if the question asked for `shards`. */
  sinks?: SinkTelemetry[];
}

/** All parts of a training step, in order. */
export const WORKER_PHASES: readonly WorkerPhase[] = ['read', 'pull', 'compute', 'push'];
/** A part of a training step. */
export type WorkerPhase = 'read' | 'pull' | 'compute' | 'push';

/** A worker, by its newest report. */
export interface WorkerReport extends ProcessTelemetry {
  name: string;
  /** Name of the data set that it trains. */
  run: string;
  samples: number;
  batches: number;
  /**
   * Time that the training loop spent in each part: waiting for samples, waiting for rows, in the model, and
   * waiting for room for another push. Reading, pulls and pushes beside the model's work do not count.
   */
  phaseSeconds: Record<WorkerPhase, number>;
  /** Part of `read` in which there was nothing to train, because all ranges of samples were given out. */
  idleSeconds: number;
  /** Part of `compute` in batches that nobody had begun before. */
  productiveSeconds: number;
  /** Batches that are begun and not durable: pulls may miss their gradients. */
  stalenessBatches: number;
  /** Loss over the newest batches; absent before the first one. */
  loss?: number;
  /** True: the worker trains no more, and this is its last report. */
  over?: boolean;
}

export interface WorkerTelemetry extends WorkerReport {
  id: PeerId;
  /** Milliseconds since it reported. */
  agoMs: number;
}

/** All workers of a run, also workers that are gone. */
export interface RunTelemetry extends Allocation {
  run: string;
  /** Number of workers that report now. */
  workers: number;
  samples: number;
  /** Part of `samples` that workers had trained before this scheduler first heard of them. */
  inheritedSamples?: number;
  batches: number;
  phaseSeconds: Record<WorkerPhase, number>;
  idleSeconds: number;
}

export interface SchedulerTelemetry extends ProcessTelemetry {
  workers: WorkerTelemetry[];
  runs: RunTelemetry[];
  /** Workers that are connected, have not told that they end, and have not reported for a while. */
  silent?: { id: PeerId; name: string; run: string; agoMs: number }[];
}

/** A question to a PS or to the scheduler. */
export interface Observe {
  t: 'observe';
  id: number;
  /** Epoch of the map by which a node is asked. */
  epoch?: number;
  /** True: the answer has each shard, too. */
  shards?: boolean;
}

export interface ObservedProcess {
  t: 'observed';
  id: number;
  /** The answer of a node. */
  node?: NodeTelemetry;
  /** The answer of the scheduler. */
  scheduler?: SchedulerTelemetry;
}

/** Report of a worker, without an answer. The next report replaces a lost one. */
export interface WorkerReportMessage {
  t: 'workerReport';
  report: WorkerReport;
}

export type TelemetryMessage = Observe | ObservedProcess | WorkerReportMessage;
