/**
 * What happened between two looks at a job: counters are subtracted, per process and for the whole job. A
 * process that was started again has lower counters, and counts from its start.
 */
import type { JobSnapshot } from '../client/observe.js';
import type { PeerId } from '../protocol/map.js';
import {
  DURATION_BOUNDS_SECONDS,
  type Histogram,
  type NodeTelemetry,
  type OpTelemetry,
  SENT_KINDS,
  WORKER_PHASES,
  type WorkerPhase,
} from '../protocol/telemetry.js';
import { sumOf } from '../statistics.js';

/** Of pulls, or of pushes. */
export interface OpRates {
  requestsPerSecond: number;
  rowsPerSecond: number;
  /** Requests that were refused, as a part of all. */
  failedRatio: number;
  /** Durations that 50 % and 99 % of the requests did not exceed; undefined: there were none. */
  p50Seconds: number | undefined;
  p99Seconds: number | undefined;
}

/** Of a node, or of all. */
export interface ServingRates {
  pull: OpRates;
  push: OpRates;
  /** Until a push is durable. */
  commitP50Seconds: number | undefined;
  commitP99Seconds: number | undefined;
  sentBytesPerSecond: number;
}

/** A PS. */
export interface NodeRates extends ServingRates {
  id: PeerId;
  name: string;
  host: string;
  /** Cores that it keeps busy. */
  cpus: number;
}

/** A worker, between its last two reports. */
export interface WorkerRates {
  id: PeerId;
  name: string;
  run: string;
  samplesPerSecond: number;
  batchesPerSecond: number;
  /** Seconds of its loop for each batch. */
  stepSeconds: Record<WorkerPhase, number>;
  cpus: number;
  /** Part of its time in which it computed batches that counted. */
  productiveRatio: number;
  /** Part of its time in which there was nothing to train. */
  idleRatio: number;
}

/** A table, all its shards together. */
export interface TableRates {
  name: string;
  rows: number;
  /** New rows. */
  rowsPerSecond: number;
  pulledRowsPerSecond: number;
  pushedRowsPerSecond: number;
}

/** A data shard on its owner. */
export interface ShardRates {
  g: number;
  m: number;
  /** Its owner. */
  node: PeerId;
  requestsPerSecond: number;
  rows: number;
  bytes: number;
}

/** What happened between two snapshots of a job. */
export interface JobRates {
  seconds: number;
  job: ServingRates & { samplesPerSecond: number; cpus: number };
  nodes: NodeRates[];
  workers: WorkerRates[];
  tables: TableRates[];
  /** Empty unless both snapshots have shards. */
  shards: ShardRates[];
}

/** Rates of the time between two snapshots of one job. */
export function ratesBetween(earlier: JobSnapshot, later: JobSnapshot): JobRates {
  const seconds = Math.max((later.at - earlier.at) / 1000, 1e-9);
  const before = new Map(earlier.nodes.map(({ id, telemetry }) => [id, telemetry]));
  const pairs = later.nodes.flatMap((node) => {
    const known = before.get(node.id);
    // Of a process that was not seen before it is unknown what was earlier.
    return known ? [{ ...node, known: sameProcess(known, node.telemetry, seconds) }] : [];
  });
  const nodes = pairs.map(({ id, name, host, telemetry, known }): NodeRates => {
    const rates = servingRates([growth(known, telemetry)], seconds);
    return { id, name, host, ...rates, cpus: grown(known?.cpuSeconds, telemetry.cpuSeconds) / seconds };
  });
  const workers = workerRates(earlier, later);
  return {
    seconds,
    job: {
      ...servingRates(
        pairs.map(({ known, telemetry }) => growth(known, telemetry)),
        seconds,
      ),
      samplesPerSecond: samplesBetween(earlier, later) / seconds,
      cpus: sumOf(nodes, ({ cpus }) => cpus),
    },
    nodes,
    workers,
    tables: tableRates(earlier, later, seconds),
    shards: shardRates(earlier, later, seconds),
  };
}

/**
 * The duration that `part` of the observations between two readings did not exceed, in seconds; undefined
 * when there were none. Within a bucket they count as evenly spread; beyond the last bound it is that bound.
 */
export function quantile(
  part: number,
  later: Histogram,
  earlier: Histogram = EMPTY_HISTOGRAM,
): number | undefined {
  const counts = later.counts.map((count, i) => Math.max(0, count - (earlier.counts[i] ?? 0)));
  const total = sumOf(counts, (count) => count);
  if (total === 0) return undefined;
  let left = part * total;
  for (const [i, count] of counts.entries()) {
    const from = DURATION_BOUNDS_SECONDS[i - 1] ?? 0;
    const to = DURATION_BOUNDS_SECONDS[i] ?? from;
    if (count > 0 && left <= count) return from + ((to - from) * left) / count;
    left -= count;
  }
  return DURATION_BOUNDS_SECONDS.at(-1);
}

const EMPTY_HISTOGRAM: Histogram = { counts: [], sumSeconds: 0 };

/** `known` if it is of the same process as `now`, which is `seconds` later. */
function sameProcess(known: NodeTelemetry, now: NodeTelemetry, seconds: number): NodeTelemetry | undefined {
  return now.upSeconds + 1e-3 >= known.upSeconds + Math.min(seconds, 1e-3) ? known : undefined;
}

const grown = (before: number | undefined, now: number): number => Math.max(0, now - (before ?? 0));

/** What a node did between two looks. */
interface Growth {
  pull: OpTelemetry;
  push: OpTelemetry;
  commit: Histogram;
  sentBytes: number;
}

function growth(known: NodeTelemetry | undefined, now: NodeTelemetry): Growth {
  return {
    pull: opGrowth(known?.ops.pull, now.ops.pull),
    push: opGrowth(known?.ops.push, now.ops.push),
    commit: histogramGrowth(known?.commit, now.commit),
    sentBytes: sumOf(SENT_KINDS, (kind) => grown(known?.sentBytes[kind], now.sentBytes[kind])),
  };
}

function opGrowth(known: OpTelemetry | undefined, now: OpTelemetry): OpTelemetry {
  const failed = Object.entries(now.failed).map(([code, count]): [string, number] => [
    code,
    grown(known?.failed[code], count),
  ]);
  return {
    requests: grown(known?.requests, now.requests),
    rows: grown(known?.rows, now.rows),
    failed: Object.fromEntries(failed),
    duration: histogramGrowth(known?.duration, now.duration),
  };
}

function histogramGrowth(known: Histogram | undefined, now: Histogram): Histogram {
  return {
    counts: now.counts.map((count, i) => grown(known?.counts[i], count)),
    sumSeconds: grown(known?.sumSeconds, now.sumSeconds),
  };
}

function merged(histograms: readonly Histogram[]): Histogram {
  const buckets = DURATION_BOUNDS_SECONDS.length + 1;
  return {
    counts: Array.from({ length: buckets }, (_, i) => sumOf(histograms, ({ counts }) => counts[i] ?? 0)),
    sumSeconds: sumOf(histograms, ({ sumSeconds }) => sumSeconds),
  };
}

function servingRates(all: readonly Growth[], seconds: number): ServingRates {
  const commit = merged(all.map((each) => each.commit));
  return {
    pull: opRates(
      all.map(({ pull }) => pull),
      seconds,
    ),
    push: opRates(
      all.map(({ push }) => push),
      seconds,
    ),
    commitP50Seconds: quantile(0.5, commit),
    commitP99Seconds: quantile(0.99, commit),
    sentBytesPerSecond: sumOf(all, ({ sentBytes }) => sentBytes) / seconds,
  };
}

function opRates(all: readonly OpTelemetry[], seconds: number): OpRates {
  const requests = sumOf(all, (op) => op.requests);
  const failed = sumOf(all, (op) => sumOf(Object.values(op.failed), (count) => count));
  const duration = merged(all.map((op) => op.duration));
  return {
    requestsPerSecond: requests / seconds,
    rowsPerSecond: sumOf(all, ({ rows }) => rows) / seconds,
    failedRatio: requests > 0 ? Math.min(1, failed / requests) : 0,
    p50Seconds: quantile(0.5, duration),
    p99Seconds: quantile(0.99, duration),
  };
}

/** Samples of all runs, those of workers that are gone included. Workers report every few seconds. */
function samplesBetween(earlier: JobSnapshot, later: JobSnapshot): number {
  const before = new Map(earlier.scheduler.runs.map(({ run, samples }) => [run, samples]));
  return sumOf(later.scheduler.runs, ({ run, samples }) => grown(before.get(run), samples));
}

/** A worker's counters are those of its newest report, so its rates are of the time between two reports. */
function workerRates(earlier: JobSnapshot, later: JobSnapshot): WorkerRates[] {
  const before = new Map(earlier.workers.map((worker) => [worker.id, worker]));
  return later.workers.flatMap((now): WorkerRates[] => {
    const known = before.get(now.id);
    const seconds = now.upSeconds - (known?.upSeconds ?? 0);
    if (!known || seconds <= 0) return [];
    const batches = grown(known.batches, now.batches);
    const step = (phase: WorkerPhase): [WorkerPhase, number] => [
      phase,
      batches > 0 ? grown(known.phaseSeconds[phase], now.phaseSeconds[phase]) / batches : 0,
    ];
    return [
      {
        id: now.id,
        name: now.name,
        run: now.run,
        samplesPerSecond: grown(known.samples, now.samples) / seconds,
        batchesPerSecond: batches / seconds,
        stepSeconds: Object.fromEntries(WORKER_PHASES.map(step)) as Record<WorkerPhase, number>,
        cpus: grown(known.cpuSeconds, now.cpuSeconds) / seconds,
        productiveRatio: grown(known.productiveSeconds, now.productiveSeconds) / seconds,
        idleRatio: grown(known.idleSeconds, now.idleSeconds) / seconds,
      },
    ];
  });
}

/** Tables of all nodes, in the order in which they were made. */
function tableRates(earlier: JobSnapshot, later: JobSnapshot, seconds: number): TableRates[] {
  const before = totals(earlier);
  return [...totals(later)].map(([name, now]) => {
    const known = before.get(name);
    return {
      name,
      rows: now.rows,
      rowsPerSecond: grown(known?.rows ?? now.rows, now.rows) / seconds,
      pulledRowsPerSecond: grown(known?.pulledRows ?? now.pulledRows, now.pulledRows) / seconds,
      pushedRowsPerSecond: grown(known?.pushedRows ?? now.pushedRows, now.pushedRows) / seconds,
    };
  });
}

type TableTotals = Record<'rows' | 'pulledRows' | 'pushedRows', number>;

function totals({ nodes }: JobSnapshot): Map<string, TableTotals> {
  const all = new Map<string, TableTotals>();
  for (const { telemetry } of nodes)
    for (const { name, rows, pulledRows, pushedRows } of telemetry.tables) {
      const known = all.get(name) ?? { rows: 0, pulledRows: 0, pushedRows: 0 };
      all.set(name, {
        rows: known.rows + rows,
        pulledRows: known.pulledRows + pulledRows,
        pushedRows: known.pushedRows + pushedRows,
      });
    }
  return all;
}

function shardRates(earlier: JobSnapshot, later: JobSnapshot, seconds: number): ShardRates[] {
  const key = (node: PeerId, g: number, m: number) => `${node}/${g}/${m}`;
  const before = new Map(
    earlier.nodes.flatMap(({ id, telemetry }) =>
      (telemetry.shards ?? []).map(({ g, m, requests }): [string, number] => [key(id, g, m), requests]),
    ),
  );
  return later.nodes.flatMap(({ id, telemetry }) =>
    (telemetry.shards ?? []).map(({ g, m, requests, rows, bytes }) => {
      // A new owner counts from zero, and so does one that lost the shard and has it again.
      const known = before.get(key(id, g, m)) ?? 0;
      const more = requests >= known ? requests - known : requests;
      return { g, m, node: id, requestsPerSecond: more / seconds, rows, bytes };
    }),
  );
}
