/**
 * What processes tell of their work: `observe` asks a PS or the scheduler, `observed` answers, and a worker,
 * which nobody can call, reports to the scheduler now and then.
 *
 * Counters count since the start of their process and only grow. Whoever looks asks twice and subtracts
 * (src/observe/rates.ts). So nothing is counted twice, nobody keeps state for somebody else, and a job at
 * which nobody looks tells nothing. A counter that is lower than before is that of another process.
 */
import type { Allocation } from './goodput.js';
import type { PeerId } from './map.js';

/** Upper bounds of the buckets of all durations. The last bucket has what is longer. */
export const DURATION_BOUNDS_SECONDS: readonly number[] = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
];

/** Durations. */
export interface Histogram {
  /** How many are at most each bound and above the one before it; one more at the end: above all bounds. */
  counts: number[];
  sumSeconds: number;
}

/** Of any process. */
export interface ProcessTelemetry {
  /** Since its start. */
  upSeconds: number;
  /** Of all its threads, in user and in kernel mode. */
  cpuSeconds: number;
  rssBytes: number;
  /** Of the package that it runs. */
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
   * From the arrival of a request to its answer (pull), or to its being applied or refused (push). Of each
   * request, so that a message counts as often as it names shards.
   */
  duration: Histogram;
}

/** A part of the memory of a PS: what it is used for. */
export type MemoryPart = 'data' | 'parity' | 'snapshots' | 'deltas' | 'waiting';

/** Memory of a PS. */
export interface MemoryTelemetry {
  /** 0: no limit. */
  limitBytes: number;
  /** What counts against the limit. */
  usedBytes: number;
  /**
   * `data` and `parity` are what shards and sinks hold, `snapshots` rows that are kept for a checkpoint,
   * `deltas` batches that are not durable everywhere, `waiting` requests that wait.
   */
  partBytes: Record<MemoryPart, number>;
}

/** A table on one node. */
export interface TableTelemetry {
  name: string;
  /** Rows in the data shards of this node. */
  rows: number;
  pulledRows: number;
  pushedRows: number;
}

/** A data shard on the node that owns it. */
export interface ShardTelemetry {
  g: number;
  m: number;
  /** Since this node owns it. */
  requests: number;
  rows: number;
  bytes: number;
}

/** A parity or a mirror that lacks blocks. */
export interface SinkTelemetry {
  sid: number;
  /** Blocks of its members, each about 4 KiB, that it does not have yet; absent: it has not begun. */
  blocksLeft?: number;
}

/** What a PS sends. */
export const SENT_KINDS: readonly SentKind[] = ['answers', 'deltas', 'recovery', 'replicas', 'other'];
/** What a PS sends. */
export type SentKind = 'answers' | 'deltas' | 'recovery' | 'replicas' | 'other';

/** Background work of a PS: what it does beside its requests. */
export type BackgroundKind = 'recovery' | 'moves' | 'saves';

export interface NodeTelemetry extends ProcessTelemetry {
  memory: MemoryTelemetry;
  ops: { pull: OpTelemetry; push: OpTelemetry };
  /** Of pushes that were applied: until all sinks have them. */
  commit: Histogram;
  tables: TableTelemetry[];
  dataShards: number;
  parityShards: number;
  /** Data shards that lack blocks. */
  recoveringShards: number;
  /** Bytes of batches that are not durable. */
  uncommittedBytes: number;
  /** The same of the shard that has most of them: how far its slowest sink is behind. */
  sinkLagBytes: number;
  parkedRequests: number;
  parkedBytes: number;
  /** Lost blocks that are here again: those that requests waited for, and others. */
  recoveredBlocks: { demand: number; background: number };
  /** Blocks, each about 4 KiB, that planned moves brought here. */
  movedBlocks: number;
  /** Payload, by what it was for. */
  sentBytes: Record<SentKind, number>;
  /** Bytes per second that background work may use while there are requests. */
  paceBytes: Record<BackgroundKind, number>;
  /** Only for who asks for it. */
  shards?: ShardTelemetry[];
  /** With `shards`: those that are not complete. */
  sinks?: SinkTelemetry[];
}

/** What a worker does in turn. */
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
   * What its training loop waited for or did: samples to be read, rows to come, the model, room for another
   * push. What overlaps with the model's work is not waited for and does not count.
   */
  phaseSeconds: Record<WorkerPhase, number>;
  /** Of `read`: there was nothing to train, because all ranges of samples were given out. */
  idleSeconds: number;
  /** Of `compute`: batches that nobody had begun before. */
  productiveSeconds: number;
  /** Batches that are begun and not durable: pulls may miss their gradients. */
  stalenessBatches: number;
  /** Over the newest batches; absent before the first one. */
  loss?: number;
  /** It trains no more: this is its last report. */
  over?: boolean;
}

export interface WorkerTelemetry extends WorkerReport {
  id: PeerId;
  /** Milliseconds since it reported. */
  agoMs: number;
}

/** All workers of a run, also those that are gone. */
export interface RunTelemetry extends Allocation {
  run: string;
  /** That report now. */
  workers: number;
  samples: number;
  /** Of `samples`: what workers had done before this scheduler first heard of them. */
  inheritedSamples?: number;
  batches: number;
  phaseSeconds: Record<WorkerPhase, number>;
  idleSeconds: number;
}

export interface SchedulerTelemetry extends ProcessTelemetry {
  workers: WorkerTelemetry[];
  runs: RunTelemetry[];
  /** Workers that are connected, have not said that they end, and have not reported for a while. */
  silent?: { id: PeerId; name: string; run: string; agoMs: number }[];
}

/** A question to a PS or to the scheduler. */
export interface Observe {
  t: 'observe';
  id: number;
  /** Of the map by which a node is asked. */
  epoch?: number;
  /** Each shard, too. */
  shards?: boolean;
}

export interface Observed {
  t: 'observed';
  id: number;
  /** Of a node. */
  node?: NodeTelemetry;
  /** Of the scheduler. */
  scheduler?: SchedulerTelemetry;
}

/** One way; the next report replaces one that is lost. */
export interface WorkerReportMessage {
  t: 'workerReport';
  report: WorkerReport;
}

export type TelemetryMessage = Observe | Observed | WorkerReportMessage;
