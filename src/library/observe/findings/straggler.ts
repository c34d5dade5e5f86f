/** A worker that is much slower than the others, again and again, and one that is not heard of. */
import { median } from '../../../common/statistics.js';
import type { WorkerRates } from '../rates.js';
import { type FindingRule, times } from './finding.js';

/** So many times the median of all workers, in each of so many windows. */
const SLOW = 1.5;
const WINDOWS = 5;
const ADVICE = 'end it and start another one elsewhere: its range is done again, and no sample counts twice';

/** Seconds that a sample takes. Time in which there is nothing to train does not count. */
const sampleSeconds = ({ samplesPerSecond, idleRatio }: WorkerRates): number =>
  samplesPerSecond > 0 ? Math.max(0, 1 - idleRatio) / samplesPerSecond : Number.NaN;

export const straggler: FindingRule = ({ windows, newest }) => {
  const slowness = new Map<number, number[]>();
  /** By the newest report of each: they do not report at the same time. */
  const newestOf = new Map<number, number>();
  for (const { workers } of windows) {
    // A look between two reports has nothing new of a worker.
    for (const worker of workers) newestOf.set(worker.id, sampleSeconds(worker));
    if (newestOf.size < 2) continue;
    const among = typical([...newestOf.values()].filter((each) => Number.isFinite(each)));
    for (const worker of workers) {
      const own = sampleSeconds(worker);
      // A worker that is busy and gets nothing done is slower than any.
      const slow = Number.isFinite(own) ? own / among : worker.idleRatio < 0.5 ? Infinity : 1;
      slowness.set(worker.id, [...(slowness.get(worker.id) ?? []), slow]);
    }
  }
  return newest.workers.flatMap(({ id, name }) => {
    const last = (slowness.get(id) ?? []).slice(-WINDOWS);
    if (last.length < WINDOWS || last.some((slow) => slow <= SLOW)) return [];
    const factor = median(last);
    const how = Number.isFinite(factor) ? `a sample takes ${times(factor)} the median` : 'it trains nothing';
    return [
      {
        code: 'straggling-worker',
        severity: 'warning',
        subject: name,
        evidence: `${how} of all workers, in each of the last ${WINDOWS} reports`,
        advice: ADVICE,
      },
    ];
  });
};

/** The median; of an even number without the slowest, so that one of two can be slow. */
function typical(seconds: readonly number[]): number {
  const sorted = [...seconds].sort((a, b) => a - b);
  return median(sorted.length % 2 === 1 ? sorted : sorted.slice(0, -1));
}

/** Stopped, swapped out, or cut off from the scheduler in a way that its machine does not notice. */
export const silentWorker: FindingRule = ({ newest }) =>
  (newest.scheduler.silent ?? []).map(({ name, agoMs }) => ({
    code: 'silent-worker',
    severity: 'warning',
    subject: name,
    evidence: `it has not reported for ${Math.round(agoMs / 1000)} s`,
    advice: ADVICE,
  }));
