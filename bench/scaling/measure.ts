/** From the progress of a training client to the figures of a scaling: pure. */
import { worstWindow } from '../../src/fleet/local/scaling-report.js';
import { Throughput } from '../../src/fleet/local/throughput.js';

export const WINDOW_MS = 100;
const SECOND_MS = 1000;

export interface ScalingRunProgress {
  mono: number;
  samples: number;
  /** The slowest request that was answered since the last report. */
  slowestMs: number;
}

/** A time in which nothing happens but training. */
export interface Calm {
  from: number;
  to: number;
}

/** When a scaling ran, with the calm before anything was started for it, and the calm after it. */
export interface ScalingSpan {
  from: number;
  to: number;
  before: Calm;
  after: Calm;
  begun: number;
  ended: number;
  shardsMoved: number;
  bytesMoved: number;
}

export interface MeasuredScaling extends ScalingSpan {
  seconds: number;
  steadySamplesPerSecond: number;
  /** With as many PS as there are in the end: on one machine their number alone makes a difference. */
  steadyAfterSamplesPerSecond: number;
  /**
   * The slowest second of the calm before, and of the one after, of its own mean: what happens when nothing
   * happens.
   */
  worstSecondBefore: number;
  worstSecondAfter: number;
  /** The slowest second that touches the scaling, of steady before it. */
  worstSecond: number;
  /** The same of steady after it. */
  worstSecondOfAfter: number;
  mean: number;
  /** Requests answered while it was steady, and while it lasted. */
  slowestBeforeMs: number;
  slowestMs: number;
}

export function measureScaling(progress: readonly ScalingRunProgress[], span: ScalingSpan): MeasuredScaling {
  const throughput = new Throughput(
    progress.map(({ mono, samples }) => ({ mono, samples, worker: 'train' })),
  );
  const { before, after, begun, ended } = span;
  const steadyOf = ({ from, to }: Calm) => throughput.rate(from, to);
  const [steady, steadyAfter] = [steadyOf(before), steadyOf(after)];
  const slowestSecond = worstWindow(throughput, begun, ended)!;
  const worstOf = ({ from, to }: Calm) => worstWindow(throughput, from, Math.max(from, to - SECOND_MS))!;
  return {
    ...span,
    seconds: (ended - begun) / 1000,
    steadySamplesPerSecond: steady,
    steadyAfterSamplesPerSecond: steadyAfter,
    worstSecondBefore: worstOf(before) / steady,
    worstSecondAfter: worstOf(after) / steadyAfter,
    worstSecond: slowestSecond / steady,
    worstSecondOfAfter: slowestSecond / steadyAfter,
    mean: throughput.rate(begun, ended) / steady,
    slowestBeforeMs: slowest(progress, before.from, before.to),
    slowestMs: slowest(progress, begun, ended + SECOND_MS),
  };
}

function slowest(progress: readonly ScalingRunProgress[], from: number, to: number): number {
  let most = 0;
  for (const { mono, slowestMs } of progress)
    if (mono >= from && mono <= to) most = Math.max(most, slowestMs);
  return most;
}

/** Rates of windows of 100 ms. */
export function windowsOf(progress: readonly ScalingRunProgress[], from: number, to: number): number[] {
  const throughput = new Throughput(
    progress.map(({ mono, samples }) => ({ mono, samples, worker: 'train' })),
  );
  return throughput.windows(from, to, WINDOW_MS);
}
