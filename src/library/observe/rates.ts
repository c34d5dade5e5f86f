/**
 * Rates between two looks at a job: counters are subtracted, per process and for the whole job. A
 * process that was started again has lower counters, and counts from its start.
 */

import { KintsugiError } from '../../common/errors.js';
import { sumOf } from '../../common/statistics.js';
import type { PeerId } from '../../protocol/map.js';
import {
  DURATION_BOUNDS_SECONDS,
  type Histogram,
  type NodeTelemetry,
  type OpTelemetry,
  type RunTelemetry,
  SENT_KINDS,
  WORKER_PHASES,
  type WorkerPhase,
} from '../../protocol/telemetry.js';
import type { JobSnapshot, ObservedNode } from '../client/observe.js';

/** Rates of pulls, or of pushes. */
export interface OpRates {
  requestsPerSecond: number;
  rowsPerSecond: number;
  /** Requests that were refused, as a part of all. */
  failedRatio: number;
  /** Durations that 50 % and 99 % of the requests did not exceed; undefined: there were none. */
  p50Seconds: number | undefined;
  p99Seconds: number | undefined;
}

/** Rates of one node, or of all nodes together. */
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
  /** Owner of the shard. */
  node: PeerId;
  requestsPerSecond: number;
  rows: number;
  bytes: number;
}

/** Rates between two snapshots of a job. */
export interface JobRates {
  seconds: number;
  job: ServingRates & { samplesPerSecond: number; cpus: number };
  nodes: NodeRates[];
  workers: WorkerRates[];
  tables: TableRates[];
  /** Empty unless both snapshots have shards. */
  shards: ShardRates[];
}

/** Rates of the time between two snapshots of one job. @throws BAD_ARGUMENT for anything but snapshots */
export function ratesBetween(earlier: JobSnapshot, later: JobSnapshot): JobRates {
  for (const each of [earlier, later])
    if (!Array.isArray(each?.nodes) || !Array.isArray(each.workers))
      throw new KintsugiError(
        'BAD_ARGUMENT',
        'ratesBetween: earlier and later must be what observe has given',
      );
  if (earlier.status?.job !== later.status?.job)
    throw new KintsugiError('BAD_ARGUMENT', 'ratesBetween: the snapshots are of two jobs');
  if (!(later.at >= earlier.at))
    throw new KintsugiError('BAD_ARGUMENT', 'ratesBetween: later was taken before earlier');
  const seconds = Math.max((later.at - earlier.at) / 1000, 1e-9);
  const pairs = pairsOf(earlier, later);
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
    tables: tableRates(earlier, later, pairs, seconds),
    shards: shardRates(later, pairs, seconds),
  };
}

/** A PS that was seen twice. `known`: what the same process told in the earlier look. */
type LookPair = ObservedNode & { known: NodeTelemetry | undefined };

/**
 * Pairs of looks at one process. A PS that is in one look only is left out: its work between them is unknown.
 */
function pairsOf(earlier: JobSnapshot, later: JobSnapshot): LookPair[] {
  const before = new Map(earlier.nodes.map((node) => [node.id, node]));
  return later.nodes.flatMap((node) => {
    const known = before.get(node.id);
    return known ? [{ ...node, known: sameProcess(known, node) }] : [];
  });
}

/**
 * The duration that `part` of the observations between two readings did not exceed, in seconds; undefined
 * when there were none. Within a bucket they count as evenly spread; beyond the last bound it is that bound.
 * @throws BAD_ARGUMENT
 */
export function quantile(
  part: number,
  later: Histogram,
  earlier: Histogram = EMPTY_HISTOGRAM,
): number | undefined {
  if (typeof part !== 'number' || !(part >= 0 && part <= 1))
    throw new KintsugiError(
      'BAD_ARGUMENT',
      `quantile: part must be a number from 0 to 1, not ${String(part)}`,
    );
  if (!Array.isArray(later?.counts) || !Array.isArray(earlier?.counts))
    throw new KintsugiError('BAD_ARGUMENT', 'quantile: later and earlier must be histograms');
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

/**
 * The telemetry of `known`, if it is the same process. The status may be older than the answer of the
 * process.
 */
function sameProcess(known: ObservedNode, { inc, telemetry }: ObservedNode): NodeTelemetry | undefined {
  const isSame = known.inc === inc && telemetry.upSeconds >= known.telemetry.upSeconds;
  return isSame ? known.telemetry : undefined;
}

const grown = (before: number | undefined, now: number): number => Math.max(0, now - (before ?? 0));

/** The growth of a node's counters between two looks. */
interface CounterGrowth {
  pull: OpTelemetry;
  push: OpTelemetry;
  commit: Histogram;
  sentBytes: number;
}

function growth(known: NodeTelemetry | undefined, now: NodeTelemetry): CounterGrowth {
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

function servingRates(all: readonly CounterGrowth[], seconds: number): ServingRates {
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

/**
 * Samples of all runs, those of workers that are gone included. Workers report every few seconds. A scheduler
 * that is new is told of all that they ever did, which is not of this time.
 */
function samplesBetween(earlier: JobSnapshot, later: JobSnapshot): number {
  const own = ({ samples, inheritedSamples = 0 }: RunTelemetry): number => samples - inheritedSamples;
  const before = new Map(earlier.scheduler.runs.map((run) => [run.run, own(run)]));
  return sumOf(later.scheduler.runs, (run) => grown(before.get(run.run), own(run)));
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
function tableRates(
  earlier: JobSnapshot,
  later: JobSnapshot,
  pairs: readonly LookPair[],
  seconds: number,
): TableRates[] {
  const [before, after] = [rowsOf(earlier), rowsOf(later)];
  const isWhole = holdsAll(earlier, later);
  const moved = new Map<string, { pulled: number; pushed: number }>();
  for (const { known, telemetry } of pairs) {
    const old = new Map(known?.tables.map((table) => [table.name, table]));
    for (const { name, pulledRows, pushedRows } of telemetry.tables) {
      const { pulled, pushed } = moved.get(name) ?? { pulled: 0, pushed: 0 };
      moved.set(name, {
        pulled: pulled + grown(old.get(name)?.pulledRows, pulledRows),
        pushed: pushed + grown(old.get(name)?.pushedRows, pushedRows),
      });
    }
  }
  return [...after].map(([name, rows]) => ({
    name,
    rows,
    rowsPerSecond: isWhole ? grown(before.get(name) ?? rows, rows) / seconds : 0,
    pulledRowsPerSecond: (moved.get(name)?.pulled ?? 0) / seconds,
    pushedRowsPerSecond: (moved.get(name)?.pushed ?? 0) / seconds,
  }));
}

function rowsOf({ nodes }: JobSnapshot): Map<string, number> {
  const all = new Map<string, number>();
  for (const { telemetry } of nodes)
    for (const { name, rows } of telemetry.tables) all.set(name, (all.get(name) ?? 0) + rows);
  return all;
}

/** Both looks have every row. Those of a PS that is away or recovers would seem new when they are back. */
function holdsAll(earlier: JobSnapshot, later: JobSnapshot): boolean {
  const ids = new Set(earlier.nodes.map(({ id }) => id));
  const isSame = ids.size === later.nodes.length && later.nodes.every(({ id }) => ids.has(id));
  return isSame && [...earlier.nodes, ...later.nodes].every(({ telemetry }) => !telemetry.recoveringShards);
}

function shardRates(later: JobSnapshot, pairs: readonly LookPair[], seconds: number): ShardRates[] {
  const key = ({ g, m }: { g: number; m: number }) => `${g}/${m}`;
  const before = new Map(
    pairs.map(({ id, known }) => [
      id,
      new Map(known?.shards?.map((shard): [string, number] => [key(shard), shard.requests])),
    ]),
  );
  return later.nodes.flatMap(({ id, telemetry }) =>
    (telemetry.shards ?? []).map((shard) => {
      const { g, m, requests, rows, bytes } = shard;
      // A new owner counts from zero, and so does one that lost the shard and has it again.
      const known = before.get(id)?.get(key(shard)) ?? 0;
      const more = !before.has(id) ? 0 : requests >= known ? requests - known : requests;
      return { g, m, node: id, requestsPerSecond: more / seconds, rows, bytes };
    }),
  );
}
