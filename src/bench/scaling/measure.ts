/** From the progress of a training client to the figures of a scaling: pure. */
import { worstWindow } from '../../local/scaling-report.js';
import { Throughput } from '../../local/throughput.js';

export const WINDOW_MS = 100;
const SECOND_MS = 1000;

export interface Progress {
  mono: number;
  samples: number;
  /** The slowest request that was answered since the last report. */
  slowestMs: number;
}

/** When a scaling ran; it is steady from `calmFrom` to `calmTo`, before anything is started for it. */
export interface ScalingSpan {
  from: number;
  to: number;
  calmFrom: number;
  calmTo: number;
  begun: number;
  ended: number;
  shardsMoved: number;
  bytesMoved: number;
}

export interface MeasuredScaling extends ScalingSpan {
  seconds: number;
  steadySamplesPerSecond: number;
  /** The slowest second while it was steady, of steady: what the machine itself does. */
  worstSecondBefore: number;
  /** The slowest second that touches the scaling, of steady. */
  worstSecond: number;
  mean: number;
  /** Requests answered while it was steady, and while it lasted. */
  slowestBeforeMs: number;
  slowestMs: number;
}

export function measureScaling(progress: readonly Progress[], span: ScalingSpan): MeasuredScaling {
  const throughput = new Throughput(
    progress.map(({ mono, samples }) => ({ mono, samples, worker: 'train' })),
  );
  const { calmFrom, calmTo, begun, ended } = span;
  const steady = throughput.rate(calmFrom, calmTo);
  const worst = (first: number, last: number) => worstWindow(throughput, first, last)! / steady;
  return {
    ...span,
    seconds: (ended - begun) / 1000,
    steadySamplesPerSecond: steady,
    worstSecondBefore: worst(calmFrom, Math.max(calmFrom, calmTo - SECOND_MS)),
    worstSecond: worst(begun, ended),
    mean: throughput.rate(begun, ended) / steady,
    slowestBeforeMs: slowest(progress, calmFrom, calmTo),
    slowestMs: slowest(progress, begun, ended + SECOND_MS),
  };
}

function slowest(progress: readonly Progress[], from: number, to: number): number {
  let most = 0;
  for (const { mono, slowestMs } of progress)
    if (mono >= from && mono <= to) most = Math.max(most, slowestMs);
  return most;
}

/** Rates of windows of 100 ms. */
export function windowsOf(progress: readonly Progress[], from: number, to: number): number[] {
  const throughput = new Throughput(
    progress.map(({ mono, samples }) => ({ mono, samples, worker: 'train' })),
  );
  return throughput.windows(from, to, WINDOW_MS);
}
