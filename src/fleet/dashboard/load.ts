/** Load of a job, from counters that were read at two moments or more: pure functions of snapshots. */

import type { JobSnapshot } from '../../library/client/observe.js';
import { type JobRates, type OpRates, ratesBetween } from '../../library/observe/rates.js';
import { goodputOf } from '../../protocol/goodput.js';
import type { FrozenMap } from '../../protocol/map.js';
import type { DatasetStatus, SetAside } from '../../protocol/samples.js';

/** Rates of all pulls, or of all pushes. */
export type OpView = Pick<OpRates, 'requestsPerSecond' | 'rowsPerSecond' | 'failedRatio'> & {
  /** Milliseconds; absent: there were no requests. */
  p50Ms?: number;
  p99Ms?: number;
};

export interface LoadView {
  pull: OpView;
  push: OpView;
  /** Milliseconds within which 99 % of pushes are durable. */
  commitP99Ms?: number;
  sentBytesPerSecond: number;
  /** Cores that all PS keep busy. */
  cpus: number;
  /** Absent: no worker has reported. */
  training?: TrainingView;
  /** Names of nodes that are up and have not answered in time. */
  missing: string[];
}

export interface TrainingView {
  workers: number;
  samples: number;
  samplesPerSecond: number;
  /** Seconds of compute in batches that counted / seconds of all workers, from 0 to 1. */
  goodput: number;
  /** Mean loss of the workers that report one. */
  loss?: number;
  list: WorkerView[];
}

export interface WorkerView {
  name: string;
  run: string;
  samplesPerSecond: number;
  /** Milliseconds of a step, by phase. */
  stepMs: { read: number; pull: number; compute: number; push: number };
  productiveRatio: number;
  idleRatio: number;
  staleness: number;
}

/** Load of a node, and how full it is. */
export interface ShownLoad {
  /** This and the next are rates; absent: not known yet. */
  cpus?: number;
  requestsPerSecond?: number;
  usedBytes: number;
  /** 0: there is no limit. */
  limitBytes: number;
}

export interface HotShard {
  pool: string;
  group: number;
  index: number;
  node: string;
  requestsPerSecond: number;
  /** Requests per second, divided by the mean of all shards. */
  timesMean: number;
  rows: number;
  bytes: number;
}

/** A run over data. */
export interface RunView extends Omit<DatasetStatus, 'samples' | 'setAside'> {
  samples: number;
  setAside: number;
  /** The first ranges that were set aside, at most {@link MAX_SET_ASIDE}. */
  aside: SetAside[];
}

const HOT_SHARDS = 10;
const MAX_SET_ASIDE = 20;
const MAX_WORKERS = 50;
/** Rates of requests are taken over at least this time. */
const SPAN_MS = 1900;
/** Rates of workers are taken over at least this time, because they report only every few seconds. */
const TRAINING_SPAN_MS = 14_000;

/** The youngest of the snapshots that is at least so much older than the newest one, or the oldest one. */
function before(history: readonly JobSnapshot[], spanMs: number): JobSnapshot | undefined {
  const now = history.at(-1);
  if (!now || history.length < 2) return undefined;
  return history.findLast((each) => now.at - each.at >= spanMs) ?? history[0];
}

/** Rates by the later snapshot and the earlier one: several views of one look need the same. */
const remembered = new WeakMap<JobSnapshot, Map<JobSnapshot, JobRates>>();

function between(earlier: JobSnapshot, now: JobSnapshot): JobRates {
  const known = remembered.get(now) ?? new Map<JobSnapshot, JobRates>();
  remembered.set(now, known);
  const rates = known.get(earlier) ?? ratesBetween(earlier, now);
  known.set(earlier, rates);
  return rates;
}

/** Rates of the last moments; undefined before there are two snapshots. */
export function ratesOf(history: readonly JobSnapshot[]): JobRates | undefined {
  const earlier = before(history, SPAN_MS);
  return earlier && between(earlier, history.at(-1)!);
}

/** Load between an earlier snapshot and the newest one; undefined before there are two. */
export function loadOf(history: readonly JobSnapshot[]): LoadView | undefined {
  const earlier = before(history, SPAN_MS);
  const now = history.at(-1);
  if (!earlier || !now) return undefined;
  const { job } = between(earlier, now);
  const load: LoadView = {
    pull: opView(job.pull),
    push: opView(job.push),
    sentBytesPerSecond: job.sentBytesPerSecond,
    cpus: job.cpus,
    missing: now.missing,
  };
  if (job.commitP99Seconds !== undefined) load.commitP99Ms = job.commitP99Seconds * 1000;
  const training = trainingOf(before(history, TRAINING_SPAN_MS)!, now);
  return training ? { ...load, training } : load;
}

function opView({ requestsPerSecond, rowsPerSecond, failedRatio, p50Seconds, p99Seconds }: OpRates): OpView {
  return {
    requestsPerSecond,
    rowsPerSecond,
    failedRatio,
    ...(p50Seconds !== undefined && { p50Ms: p50Seconds * 1000 }),
    ...(p99Seconds !== undefined && { p99Ms: p99Seconds * 1000 }),
  };
}

function trainingOf(earlier: JobSnapshot, now: JobSnapshot): TrainingView | undefined {
  const { runs } = now.scheduler;
  if (runs.length === 0) return undefined;
  const { job, workers } = between(earlier, now);
  const sum = (of: (run: (typeof runs)[number]) => number) => runs.reduce((all, run) => all + of(run), 0);
  const losses = now.workers.flatMap(({ loss }) => loss ?? []);
  const staleness = new Map(now.workers.map(({ id, stalenessBatches }) => [id, stalenessBatches]));
  return {
    workers: sum((run) => run.workers),
    samples: sum((run) => run.samples),
    samplesPerSecond: job.samplesPerSecond,
    goodput: goodputOf(runs) ?? 0,
    ...(losses.length > 0 && { loss: losses.reduce((all, loss) => all + loss, 0) / losses.length }),
    list: workers
      .toSorted((a, b) => byName(a.name, b.name))
      .slice(0, MAX_WORKERS)
      .map(({ id, name, run, samplesPerSecond, stepSeconds, productiveRatio, idleRatio }) => ({
        ...{ name, run, samplesPerSecond, productiveRatio, idleRatio },
        stepMs: {
          read: stepSeconds.read * 1000,
          pull: stepSeconds.pull * 1000,
          compute: stepSeconds.compute * 1000,
          push: stepSeconds.push * 1000,
        },
        staleness: staleness.get(id) ?? 0,
      })),
  };
}
const byName = new Intl.Collator('en', { numeric: true }).compare;

/** Loads by the id of the node. */
export function nodeLoads(history: readonly JobSnapshot[]): Record<number, ShownLoad> {
  const earlier = before(history, SPAN_MS);
  const now = history.at(-1);
  if (!now) return {};
  const rates = new Map(earlier ? between(earlier, now).nodes.map((node) => [node.id, node]) : []);
  return Object.fromEntries(
    now.nodes.map(({ id, telemetry: { memory } }): [number, ShownLoad] => {
      const rate = rates.get(id);
      const { usedBytes, limitBytes } = memory;
      if (!rate) return [id, { usedBytes, limitBytes }];
      const requestsPerSecond = rate.pull.requestsPerSecond + rate.push.requestsPerSecond;
      return [id, { cpus: rate.cpus, requestsPerSecond, usedBytes, limitBytes }];
    }),
  );
}

/** The shards with most requests, the busiest first; undefined before there are two snapshots. */
export function hotShards(history: readonly JobSnapshot[], map: FrozenMap): HotShard[] | undefined {
  const earlier = before(history, SPAN_MS);
  const now = history.at(-1);
  if (!earlier || !now) return undefined;
  const { shards } = between(earlier, now);
  const total = shards.reduce((all, shard) => all + shard.requestsPerSecond, 0);
  if (total === 0) return [];
  const names = new Map(map.nodes.map((node) => [node.id, node.name]));
  return shards
    .filter((shard) => shard.requestsPerSecond > 0)
    .sort((a, b) => b.requestsPerSecond - a.requestsPerSecond)
    .slice(0, HOT_SHARDS)
    .flatMap(({ g, m, node, requestsPerSecond, rows, bytes }) => {
      const pool = map.pools[map.groups[g]?.pool ?? -1];
      if (!pool) return [];
      return {
        ...{ pool: pool.name, group: g - pool.firstGroup, index: m, node: names.get(node) ?? '' },
        ...{ requestsPerSecond, timesMean: requestsPerSecond / (total / shards.length), rows, bytes },
      };
    });
}

export function runView({ samples, setAside, ...status }: DatasetStatus): RunView {
  return {
    ...status,
    samples: samples.reduce((all, each) => all + each, 0),
    setAside: setAside.length,
    aside: setAside.slice(0, MAX_SET_ASIDE),
  };
}
