/** The report of scalings, from collected events: pure functions. What could not be measured is null. */
import type { RoleEvent } from './events.js';
import { progressPoints, round, type ScalingReport, trainingSpan, WARM_UP_MS, WINDOW_MS } from './report.js';
import type { ScalingRecord } from './scaling.js';
import { Throughput } from './throughput.js';

/** Distance between the beginnings of windows: the worst one is looked for, wherever it begins. */
const STEP_MS = 100;
/** A steady rate needs so much time to be one. */
const STEADY_MS = 1000;

/** One entry per scaling, in their order. `events` are in the order of their clocks. */
export function scalingsOf(events: readonly RoleEvent[], records: readonly ScalingRecord[]): ScalingReport[] {
  const span = trainingSpan(events) ?? { start: 0, end: 0 };
  const throughput = new Throughput(progressPoints(events));
  const calm = calmRate(throughput, span, records);
  let calmFrom = span.start;
  return records.map((record): ScalingReport => {
    const { from, to, begun, ended, bytesMoved, shardsMoved, shareMoved, problem, code } = record;
    const warm = calmFrom + WARM_UP_MS;
    calmFrom = ended;
    const steady = begun - warm >= STEADY_MS ? throughput.rate(warm, begun) : calm;
    const worst = worstWindow(throughput, begun, Math.min(ended, span.end - WINDOW_MS));
    return {
      from,
      to,
      at: round((begun - span.start) / 1000),
      seconds: round((ended - begun) / 1000),
      bytesMoved,
      shardsMoved,
      shareMoved: round(shareMoved),
      steadySamplesPerSecond: steady > 0 ? round(steady) : null,
      worstWindow: steady > 0 && worst !== undefined ? round(worst / steady) : null,
      ok: problem === undefined,
      problem: problem ?? null,
      code: code ?? null,
    };
  });
}

/**
 * Samples per second of the whole training but its scalings, where the time before one is too short; 0:
 * unknown.
 */
function calmRate(
  throughput: Throughput,
  span: { start: number; end: number },
  records: readonly ScalingRecord[],
): number {
  let samples = 0;
  let time = 0;
  let from = span.start + WARM_UP_MS;
  for (const { begun, ended } of [...records, { begun: span.end, ended: span.end }]) {
    if (begun > from) {
      samples += throughput.samplesAt(begun) - throughput.samplesAt(from);
      time += begun - from;
    }
    from = Math.max(from, ended + WARM_UP_MS);
  }
  return time >= STEADY_MS ? (samples / time) * 1000 : 0;
}

/**
 * The lowest rate of a second that begins between the two moments; undefined when training is over before.
 */
export function worstWindow(throughput: Throughput, from: number, to: number): number | undefined {
  let worst: number | undefined;
  for (let begin = from; begin <= to; begin += STEP_MS) {
    const rate = throughput.rate(begin, begin + WINDOW_MS);
    if (worst === undefined || rate < worst) worst = rate;
  }
  return worst;
}
