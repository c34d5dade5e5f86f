/**
 * The report of a local run, from collected events: pure functions, so that they can be tested without
 * processes. All times are counted from the SIGKILL on the launcher's monotonic clock; what did not happen is
 * null.
 */
import { ERROR_CODES, type ErrorCode } from '../../common/errors.js';
import { sumOf } from '../../common/statistics.js';
import type { LifeCounts } from '../../engine/policies.js';
import type { JobSnapshot } from '../../library/client/observe.js';
import type { ParityCheck } from '../../library/tools/parity.js';
import { livesOf } from '../../library/tools/tables.js';
import type { JobStatus } from '../../protocol/messages.js';
import type { AutoscaleReport } from './autoscale.js';
import type { CheckpointsReport, RestoredReport } from './checkpoints.js';
import { numberOf, type RoleEvent } from './events.js';
import type { GoodputReport } from './goodput.js';
import type { KillRole } from './kills.js';
import type { SamplesReport } from './samples.js';
import type { SavedReport } from './saving.js';
import { type ProgressPoint, Throughput } from './throughput.js';

export const WINDOW_MS = 1000;
/** Caches, code and connections warm up in the first second: it says nothing about steady throughput. */
export const WARM_UP_MS = 1000;
/** Ratios of fewer windows than this would be noise. */
const MIN_WINDOWS = 3;

/** A data shard at a moment. */
export interface ShardAt {
  group: number;
  member: number;
  gen: number;
}

/** A SIGKILL that was sent, with what the process held then. */
export interface KillRecord {
  role: KillRole;
  name: string;
  /** Incarnation of the node; of a worker its client id; 0 for a scheduler. */
  inc: number;
  mono: number;
  shards: ShardAt[];
}

export interface ReportedFailure {
  node: string;
  /** Seconds since training began. */
  atSeconds: number;
  detectedMs: number | null;
  keysReadyMs: number | null;
  firstServedMs: number | null;
  redundantMs: number | null;
  blocksLost: number;
  blocksDecodedOnDemand: number;
  /** Whole one-second windows from the kill to redundancy, or to the end of training. */
  windows: number;
  steadySamplesPerSecond: number | null;
  minThroughputRatio: number | null;
  meanThroughputRatio: number | null;
}

/** A process that ended unasked, and was started again. */
export interface CrashReport {
  process: string;
  /** Seconds since training began; negative before that. */
  atSeconds: number;
  code: number | null;
  signal: string | null;
  message: string;
}

export interface ScalingReport {
  from: number;
  to: number;
  /** Seconds since training began. */
  at: number;
  seconds: number;
  bytesMoved: number;
  shardsMoved: number;
  /** Share of all data and parity shards that moved. */
  shareMoved: number;
  steadySamplesPerSecond: number | null;
  /** The worst second while it lasted, relative to the steady rate before. */
  worstWindow: number | null;
  ok: boolean;
  /** Why it is not ok. */
  problem: string | null;
  code: ErrorCode | null;
}

/** `lost` and `duplicated` are null without an audit. */
export interface PushCheck {
  acked: number;
  lost: number | null;
  duplicated: number | null;
}

export interface NodeReport {
  id: string;
  host: string;
  dataShards: number;
  parityShards: number;
  bytes: number;
}

export interface TrainingSummary {
  /** Samples that workers trained; those that were begun twice count twice. */
  samples: number;
  seconds: number;
  samplesPerSecond: number;
  /** Mean loss of the workers that were not killed; null when there is none. */
  trainLoss: number | null;
}

export interface RunReport extends Omit<TrainingSummary, 'samples'> {
  samples: SamplesReport;
  goodput: GoodputReport;
  testAuc: number | null;
  testLogLoss: number | null;
  digest: string;
  /** Rows that the digest covers. */
  rows: number;
  pushes: PushCheck;
  parity: ParityCheck;
  /** State of the job at the end: full, degraded or lost. */
  redundancy: string;
  failures: ReportedFailure[];
  crashes: CrashReport[];
  scalings: ScalingReport[];
  /** Decisions of the autoscaler; null: there was none. */
  autoscale: AutoscaleReport[] | null;
  /** Null: the run made none. */
  checkpoints: CheckpointsReport | null;
  /** Null: the job began empty. */
  restored: RestoredReport | null;
  /** Null: the tables were not to be saved. */
  saved: SavedReport | null;
  nodes: NodeReport[];
  /** Tables with a policy, or of which rows were deleted. */
  tables: TableReport[];
}

/** Rows of a table, and those that went by reason, as PS counted them that are there at the end. */
export interface TableReport extends LifeCounts {
  name: string;
  rows: number;
}

/** The part of the report that nodes tell when a run is over. */
export function endOf({ status, nodes }: JobSnapshot): Pick<RunReport, 'nodes' | 'tables'> {
  const tables = [...livesOf(nodes)].map(([name, { nodes: _, ...life }]): TableReport => {
    const rows = nodes.map(({ telemetry }) => telemetry.tables.find((each) => each.name === name)?.rows ?? 0);
    return { name, rows: sumOf(rows, (count) => count), ...life };
  });
  return { nodes: nodesOf(status), tables };
}

/** Nodes that are alive. */
function nodesOf({ nodes }: JobStatus): NodeReport[] {
  return nodes
    .filter(({ alive }) => alive)
    .map(({ name: id, host, dataShards, parityShards, bytes }) => ({
      ...{ id, host, dataShards, parityShards, bytes },
    }));
}

/** When training began and ended on the monotonic clock; undefined before any worker has started. */
export function trainingSpan(events: readonly RoleEvent[]): { start: number; end: number } | undefined {
  let start = Number.POSITIVE_INFINITY;
  let end = Number.NEGATIVE_INFINITY;
  for (const event of events) {
    if (event.event === 'worker.training') start = Math.min(start, event.mono);
    // A worker that came when all was done has not trained.
    const trained = event.event === 'worker.progress' || event.event === 'worker.done';
    if (trained && event.samples !== 0) end = Math.max(end, event.mono);
  }
  return start <= end ? { start, end } : undefined;
}

/** Progress of the workers, from their events. */
export function progressPoints(events: readonly RoleEvent[]): ProgressPoint[] {
  const points: ProgressPoint[] = [];
  // A worker that was started again counts from 0: its points go on where the ones before ended.
  const totals = new Map<string, { before: number; now: number }>();
  for (const event of events) {
    const starts = event.event === 'worker.training';
    if (!starts && event.event !== 'worker.progress' && event.event !== 'worker.done') continue;
    const { before, now } = totals.get(event.source) ?? { before: 0, now: 0 };
    const total = starts ? { before: now, now } : { before, now: before + numberOf(event, 'samples') };
    totals.set(event.source, total);
    points.push({ mono: event.mono, worker: event.source, samples: total.now });
  }
  return points;
}

/** Samples and pace of the training: from the first worker's start to the last one's end. */
export function summarize(events: readonly RoleEvent[]): TrainingSummary {
  const span = trainingSpan(events);
  let told = 0;
  let lossSum = 0;
  for (const event of events) {
    if (event.event !== 'worker.done' || event.trainLoss === null) continue;
    told += numberOf(event, 'samples');
    lossSum += numberOf(event, 'trainLoss') * numberOf(event, 'samples');
  }
  const samples = new Throughput(progressPoints(events)).samplesAt(Number.POSITIVE_INFINITY);
  const seconds = span ? (span.end - span.start) / 1000 : 0;
  return {
    samples,
    seconds,
    samplesPerSecond: seconds > 0 ? samples / seconds : 0,
    trainLoss: told > 0 ? lossSum / told : null,
  };
}

/**
 * The first event of every lost shard in a later generation. One may be missing for ever: a second failure
 * can take the new home before it got so far, and then the home after that one counts.
 */
function firstPerShard(
  events: readonly RoleEvent[],
  name: string,
  kill: KillRecord,
): (RoleEvent | undefined)[] {
  return kill.shards.map(({ group, member, gen }) =>
    events.find(
      (event) =>
        event.event === name &&
        event.mono >= kill.mono &&
        event.group === group &&
        event.member === member &&
        numberOf(event, 'gen') > gen,
    ),
  );
}

/**
 * The first durable map without the dead process: it was noticed, or a newer process of the same name was
 * there first. A scheduler is in no map: its loss counts as noticed when it is back. A worker is lost when
 * its samples go to others.
 */
export function detectionOf(events: readonly RoleEvent[], kill: KillRecord): RoleEvent | undefined {
  return events.find((event) => {
    if (event.mono < kill.mono) return false;
    if (kill.role === 'scheduler') return event.event === 'scheduler.ready';
    if (kill.role === 'worker')
      return event.event === 'worker.lost' && numberOf(event, 'client') === kill.inc;
    if (event.event !== 'map.durable' || event.name !== kill.name) return false;
    const inc = numberOf(event, 'inc');
    return event.reason === 'lost' ? inc === kill.inc : event.reason === 'join' && inc > kill.inc;
  });
}

/** Throughput before and during a failure. `calmFrom` is where the steady state began. */
function throughputOf(points: Throughput, kill: KillRecord, until: number, calmFrom: number) {
  const steady = kill.mono > calmFrom ? points.rate(calmFrom, kill.mono) : 0;
  const windows = points.windows(kill.mono, until, WINDOW_MS);
  const ratios = steady > 0 && windows.length >= MIN_WINDOWS ? windows.map((rate) => rate / steady) : [];
  const mean = ratios.reduce((sum, ratio) => sum + ratio, 0) / ratios.length;
  return {
    windows: windows.length,
    steadySamplesPerSecond: steady > 0 ? steady : null,
    minThroughputRatio: ratios.length > 0 ? Math.min(...ratios) : null,
    meanThroughputRatio: ratios.length > 0 ? mean : null,
  };
}

/**
 * One entry per kill, in the order of the kills. `events` are in the order of their clocks (see `inOrder`).
 */
export function failuresOf(events: readonly RoleEvent[], kills: readonly KillRecord[]): ReportedFailure[] {
  const span = trainingSpan(events);
  const start = span?.start ?? 0;
  const throughput = new Throughput(progressPoints(events));
  const redundantAt: (number | undefined)[] = [];
  return kills.map((kill, index): ReportedFailure => {
    const since = (event: RoleEvent | undefined) => (event ? round(event.mono - kill.mono) : null);
    const detected = detectionOf(events, kill);
    const full = events.find(
      (event) =>
        kill.role !== 'worker' &&
        event.event === 'redundancy' &&
        event.state === 'full' &&
        detected &&
        event.mono >= detected.mono,
    );
    redundantAt.push(full?.mono);
    const keysReady = firstPerShard(events, 'shard.keysReady', kill);
    const served = firstPerShard(events, 'shard.served', kill).filter((event) => event !== undefined);
    const whole = firstPerShard(events, 'shard.complete', kill).filter((event) => event !== undefined);
    const allReady = keysReady.length > 0 && keysReady.every((event) => event !== undefined);
    const sum = (field: string) => whole.reduce((total, event) => total + (numberOf(event, field) || 0), 0);
    // Steady is what came before: after the warm-up, or after the recovery before this one, whichever is
    // later.
    const warm = kill.mono - start > 2 * WARM_UP_MS ? start + WARM_UP_MS : start;
    const before = redundantAt[index - 1];
    const calmFrom = before !== undefined && before < kill.mono ? Math.max(warm, before) : warm;
    const until = Math.min(full?.mono ?? Number.POSITIVE_INFINITY, span?.end ?? 0);
    return {
      node: kill.name,
      atSeconds: round((kill.mono - start) / 1000),
      detectedMs: since(detected),
      keysReadyMs: allReady ? since(latest(keysReady)) : null,
      firstServedMs: since(earliest(served)),
      redundantMs: since(full),
      blocksLost: sum('blocksLost'),
      blocksDecodedOnDemand: sum('blocksOnDemand'),
      ...throughputOf(throughput, kill, until, calmFrom),
    };
  });
}

/** Processes that ended unasked, in the order of `events`. */
export function crashesOf(events: readonly RoleEvent[]): CrashReport[] {
  const start = trainingSpan(events)?.start ?? 0;
  return events
    .filter(({ event, source }) => event === 'process.ended' && source === 'launcher')
    .map((event) => ({
      process: String(event.name),
      atSeconds: round((event.mono - start) / 1000),
      code: (event.code as number | null | undefined) ?? null,
      signal: (event.signal as string | null | undefined) ?? null,
      message: String(event.message),
    }));
}

/** Events of several processes arrive over several pipes: the clock, not the arrival, orders them. */
export function inOrder(events: readonly RoleEvent[]): RoleEvent[] {
  return [...events].sort((a, b) => a.mono - b.mono);
}

function latest(events: readonly (RoleEvent | undefined)[]): RoleEvent | undefined {
  return events.reduce((last, event) => ((event?.mono ?? 0) >= (last?.mono ?? 0) ? event : last));
}

function earliest(events: readonly RoleEvent[]): RoleEvent | undefined {
  return inOrder(events)[0];
}

/** To thousandths. */
export function round(value: number): number {
  return Math.round(value * 1000) / 1000;
}

/** Why a run is not clean, with the code of its cause. */
export interface RunProblem {
  code: ErrorCode;
  text: string;
}

/** Why a finished run is not clean, in one line; undefined when it is. */
export function problemOf(
  report: Pick<RunReport, 'pushes' | 'parity' | 'samples'> &
    Partial<Pick<RunReport, 'scalings' | 'checkpoints' | 'saved'>>,
): RunProblem | undefined {
  const { pushes, parity, samples, scalings = [], checkpoints, saved } = report;
  const problems: RunProblem[] = [];
  const broken = (text: string) => problems.push({ code: 'INTERNAL', text });
  if ((pushes.lost ?? 0) > 0) broken(`${pushes.lost} acknowledged pushes are lost`);
  if ((pushes.duplicated ?? 0) > 0) broken(`${pushes.duplicated} pushes were applied twice`);
  if (parity.mismatched > 0) broken(`${parity.mismatched} blocks do not match their parity`);
  for (const { to, problem, code } of scalings)
    if (problem !== null) problems.push({ code: codeOf(code), text: `no scaling to ${to} PS: ${problem}` });
  // A failed checkpoint matters only if it was the last: a later one has what the failed one could not have.
  const last = checkpoints?.failed.at(-1);
  const lastIsMade = (last?.number ?? 0) <= (checkpoints?.made.at(-1)?.number ?? 0);
  if (last && !lastIsMade) {
    const text = `there is no checkpoint of the end: ${last.code}: ${last.message}`;
    problems.push({ code: codeOf(last.code), text });
  }
  if (saved && saved.code !== null) {
    const { code, place, message } = saved;
    const way =
      checkpoints && checkpoints.newest !== null && lastIsMade
        ? `load the last checkpoint and save that: --restore ${checkpoints.place} --save PLACE`
        : 'train again';
    problems.push({ code, text: `nothing is saved in ${place}: ${code}: ${message}; ${way}` });
  }
  for (const text of samples.problems) broken(text);
  if (problems.length === 0) return undefined;
  // A broken invariant is what matters most; otherwise the cause that came first.
  const worst = problems.find(({ code }) => code === 'INTERNAL') ?? problems[0]!;
  return { code: worst.code, text: problems.map(({ text }) => text).join('; ') };
}

/** The code from a text; INTERNAL where it is none. */
function codeOf(code: string | null | undefined): ErrorCode {
  return code != null && Object.hasOwn(ERROR_CODES, code) ? (code as ErrorCode) : 'INTERNAL';
}
