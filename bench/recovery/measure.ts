/**
 * From the events of a run to its figures: pure. All modes are measured the same way, on one clock, from the
 * SIGKILL. Only progress counts as throughput: samples that are trained a second time are not.
 */

import { numberOf, type RoleEvent } from '../../src/fleet/local/events.js';
import { detectionOf, failuresOf, inOrder, type KillRecord } from '../../src/fleet/local/report.js';
import { worstWindow } from '../../src/fleet/local/scaling-report.js';
import { type ProgressPoint, Throughput } from '../../src/fleet/local/throughput.js';
import { BLOCK_BYTES } from '../../src/protocol/blocks.js';
import { quantile } from '../common/statistics.js';

export const WINDOW_MS = 100;
const SECOND_MS = 1000;
/** Training goes on when a window has at least this share of the steady throughput. */
const GOING_ON = 0.5;

export interface RunRecord {
  events: readonly RoleEvent[];
  kill: KillRecord;
  /** Cumulative samples of the training client, of all its lives. */
  progress: readonly { mono: number; samples: number }[];
  /** Steps of training with a pace; none without. */
  steps?: readonly TrainedStep[];
  /** Samples per second that were due; undefined: as many as there could be. */
  offered?: number | undefined;
  /** Steady training began; the run was watched until `endedAt`. */
  calmFrom: number;
  endedAt: number;
}

/** When a step was due, and how long after that its push was acknowledged. */
export type TrainedStep = readonly [due: number, ms: number];

/** Milliseconds since the kill; null: it did not happen. Ratios are of the steady throughput. */
export interface MeasuredRecovery {
  steadySamplesPerSecond: number;
  detectedMs: number | null;
  firstServedMs: number | null;
  keysReadyMs: number | null;
  /** From detection to the last lost shard that can serve. */
  keysReadyAfterDetectionMs: number | null;
  decodedMs: number | null;
  redundantMs: number | null;
  /** Training is where it was at the kill, and goes on. */
  backMs: number | null;
  backAfterDetectionMs: number | null;
  blocksLost: number;
  blocksOnDemand: number;
  /** Rate at which lost rows were rebuilt, from the first active new owner to the last complete one. */
  rebuildGBPerSecond: number | null;
  /** The slowest second of steady training: what the machine itself does. */
  worstSecondBefore: number | null;
  /** Slowest second and mean from when every lost shard can serve to full redundancy (at least a second). */
  worstSecond: number | null;
  mean: number | null;
  /** The mean until all lost rows are there. */
  meanUntilDecoded: number | null;
  /**
   * Whole seconds of that time, against the worst of as many steady ones; with a pace, steps that ended
   * against those that were due, where one more or less is a matter of when the second begins.
   */
  firstTwoSeconds: number | null;
  otherSeconds: number | null;
  /** With a pace: 99 % of the steps ended so long after they were due, before the kill and in that time. */
  calmP99Ms: number | null;
  p99Ms: number | null;
  p99OfCalm: number | null;
  /** The slowest second from the kill on: detection is in it. */
  worstSecondFromKill: number | null;
  /** Rates of windows of 100 ms, from `firstWindowMs` before or after the kill. */
  windows: number[];
  firstWindowMs: number;
}

/** Samples that were not there before: what is trained again after a restore is flat. */
export function newSamples(progress: RunRecord['progress']): ProgressPoint[] {
  let most = 0;
  return progress.map(({ mono, samples }) => {
    most = Math.max(most, samples);
    return { mono, worker: 'train', samples: most };
  });
}

export function measure({
  events: unordered,
  kill,
  progress,
  calmFrom,
  endedAt,
  steps = [],
  offered,
}: RunRecord): MeasuredRecovery {
  const events = inOrder(unordered);
  const throughput = new Throughput(newSamples(progress));
  const steady = offered ?? throughput.rate(calmFrom, kill.mono);
  const [failure] = failuresOf(events, [kill]);
  const detected = detectionOf(events, kill)?.mono;
  const since = (mono: number | undefined) => (mono === undefined ? null : round(mono - kill.mono));
  const keysReady = failure?.keysReadyMs ?? null;
  const span = rebuildSpan(events, kill);
  const backAt = backTime(throughput, kill.mono, detected ?? kill.mono, endedAt, steady);
  const until = kill.mono + Math.max(failure?.redundantMs ?? 0, (keysReady ?? 0) + SECOND_MS);
  /**
   * Slowest whole second between the two, of the steady rate; 1e-6 keeps a rounding error from dropping the
   * last.
   */
  const worst = (from: number, to: number) => {
    const rate = worstWindow(throughput, from, to - SECOND_MS + 1e-6);
    return rate === undefined ? null : round(rate / steady);
  };
  const ready = kill.mono + (keysReady ?? 0);
  const ends = Math.min(until, endedAt);
  const seconds = offered
    ? pacedSeconds(steps, ready, ends)
    : saturatedSeconds(throughput, { calmFrom, kill: kill.mono, ready, ends });
  const least = (values: readonly number[]) =>
    keysReady === null || values.length === 0 ? null : round(Math.min(...values));
  const meanTo = (end: number) =>
    keysReady === null ? null : round(throughput.rate(ready, Math.max(end, ready + SECOND_MS)) / steady);
  const [calmP99, p99] = [p99Of(steps, calmFrom, kill.mono), p99Of(steps, ready, ends)];
  const firstWindow = Math.max(calmFrom, kill.mono - 3 * SECOND_MS);
  return {
    steadySamplesPerSecond: round(steady),
    detectedMs: since(detected),
    firstServedMs: failure?.firstServedMs ?? null,
    keysReadyMs: keysReady,
    keysReadyAfterDetectionMs:
      keysReady === null || detected === undefined ? null : round(keysReady - (detected - kill.mono)),
    decodedMs: since(span?.end),
    redundantMs: failure?.redundantMs ?? null,
    backMs: since(backAt),
    backAfterDetectionMs: backAt === undefined || detected === undefined ? null : round(backAt - detected),
    blocksLost: failure?.blocksLost ?? 0,
    blocksOnDemand: failure?.blocksDecodedOnDemand ?? 0,
    rebuildGBPerSecond:
      span && span.end > span.start && failure
        ? round((failure.blocksLost * BLOCK_BYTES) / (span.end - span.start) / 1e6)
        : null,
    worstSecondBefore: worst(calmFrom, kill.mono),
    worstSecond: keysReady === null ? null : worst(ready, ends),
    mean: meanTo(ends),
    meanUntilDecoded: span ? meanTo(Math.min(span.end, ends)) : null,
    firstTwoSeconds: least(seconds.slice(0, 2)),
    otherSeconds: least(seconds.slice(2)),
    calmP99Ms: calmP99,
    p99Ms: p99,
    p99OfCalm: p99 === null || calmP99 === null ? null : round(p99 / calmP99),
    worstSecondFromKill: worst(kill.mono, endedAt),
    windows: throughput.windows(firstWindow, endedAt, WINDOW_MS).map(round),
    firstWindowMs: round(firstWindow - kill.mono),
  };
}

/** Rates of whole seconds, of that of the worst of as many before the kill. */
function saturatedSeconds(
  throughput: Throughput,
  { calmFrom, kill, ready, ends }: { calmFrom: number; kill: number; ready: number; ends: number },
): number[] {
  const after = throughput.windows(ready, ends + 1e-6, SECOND_MS);
  const count = Math.min(after.length, Math.floor((kill - calmFrom) / SECOND_MS));
  const calm = throughput.windows(kill - count * SECOND_MS, kill + 1e-6, SECOND_MS);
  return after.map((rate) => rate / Math.min(...calm));
}

/** Steps that ended in each whole second and one more, of those that were due in it: at most 1. */
function pacedSeconds(steps: readonly TrainedStep[], ready: number, ends: number): number[] {
  const ratios: number[] = [];
  for (let from = ready; from + SECOND_MS <= ends; from += SECOND_MS) {
    const isIn = (mono: number) => mono >= from && mono < from + SECOND_MS;
    const due = steps.filter(([at]) => isIn(at)).length;
    const ended = steps.filter(([at, ms]) => isIn(at + ms)).length;
    ratios.push(Math.min(1, (ended + 1) / Math.max(1, due)));
  }
  return ratios;
}

function p99Of(steps: readonly TrainedStep[], from: number, to: number): number | null {
  const times = steps.filter(([due]) => due >= from && due < to).map(([, ms]) => ms);
  return times.length === 0
    ? null
    : round(
        quantile(
          times.sort((a, b) => a - b),
          0.99,
        ),
      );
}

/** From the first new owner that knows what it lacks to the last that lacks nothing. */
function rebuildSpan(
  events: readonly RoleEvent[],
  kill: KillRecord,
): { start: number; end: number } | undefined {
  const ours = events.filter(
    (event) =>
      event.mono > kill.mono &&
      kill.shards.some(
        ({ group, member, gen }) =>
          event.group === group && event.member === member && numberOf(event, 'gen') > gen,
      ),
  );
  const start = ours.find((event) => event.event === 'shard.active')?.mono;
  const end = ours.findLast((event) => event.event === 'shard.complete')?.mono;
  return start === undefined || end === undefined ? undefined : { start, end };
}

/**
 * The end of the first window after detection that begins where training was at the kill, and in which it
 * goes on.
 */
function backTime(
  throughput: Throughput,
  kill: number,
  detected: number,
  endedAt: number,
  steady: number,
): number | undefined {
  const before = throughput.samplesAt(kill);
  for (let start = detected; start + WINDOW_MS <= endedAt; start += WINDOW_MS / 10) {
    if (throughput.samplesAt(start) < before) continue;
    if (throughput.rate(start, start + WINDOW_MS) >= GOING_ON * steady) return start + WINDOW_MS;
  }
  return undefined;
}

function round(value: number): number {
  return Math.round(value * 1000) / 1000;
}
