/**
 * From the events of a run to its figures: pure. All modes are measured the same way, on one clock, from the
 * SIGKILL. Only progress counts as throughput: samples that are trained a second time are not.
 */

import { numberOf, type RoleEvent } from '../../src/fleet/local/events.js';
import { detectionOf, failuresOf, inOrder, type KillRecord } from '../../src/fleet/local/report.js';
import { worstWindow } from '../../src/fleet/local/scaling-report.js';
import { type ProgressPoint, Throughput } from '../../src/fleet/local/throughput.js';
import { BLOCK_BYTES } from '../../src/protocol/blocks.js';

export const WINDOW_MS = 100;
const SECOND_MS = 1000;
/** Training goes on when a window has at least this share of the steady throughput. */
const GOING_ON = 0.5;

export interface RunRecord {
  events: readonly RoleEvent[];
  kill: KillRecord;
  /** Cumulative samples of the training client, of all its lives. */
  progress: readonly { mono: number; samples: number }[];
  /** Steady training began; the run was watched until `endedAt`. */
  calmFrom: number;
  endedAt: number;
}

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
}: RunRecord): MeasuredRecovery {
  const events = inOrder(unordered);
  const throughput = new Throughput(newSamples(progress));
  const steady = throughput.rate(calmFrom, kill.mono);
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
    worstSecond: keysReady === null ? null : worst(kill.mono + keysReady, Math.min(until, endedAt)),
    mean:
      keysReady === null
        ? null
        : round(throughput.rate(kill.mono + keysReady, Math.min(until, endedAt)) / steady),
    worstSecondFromKill: worst(kill.mono, endedAt),
    windows: throughput.windows(firstWindow, endedAt, WINDOW_MS).map(round),
    firstWindowMs: round(firstWindow - kill.mono),
  };
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
