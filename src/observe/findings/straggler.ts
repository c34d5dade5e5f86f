/** A worker that is much slower than the others, again and again. */
import { median } from '../../statistics.js';
import type { WorkerRates } from '../rates.js';
import { type Check, times } from './finding.js';

/** So many times the median of all workers, in each of so many windows. */
const SLOW = 1.5;
const WINDOWS = 5;

/** Seconds that a sample takes. Time in which there is nothing to train does not count. */
const sampleSeconds = ({ samplesPerSecond, idleRatio }: WorkerRates): number =>
  samplesPerSecond > 0 ? Math.max(0, 1 - idleRatio) / samplesPerSecond : Number.NaN;

export const straggler: Check = ({ windows, newest }) => {
  // A worker reports every few seconds: looks in between have nothing new of it.
  const slowness = new Map<number, number[]>();
  for (const { workers } of windows) {
    const seconds = workers.map(sampleSeconds).filter((each) => Number.isFinite(each));
    if (seconds.length < 2) continue;
    const among = median(
      seconds.length % 2 === 1 ? seconds : [...seconds].sort((a, b) => a - b).slice(0, -1),
    );
    for (const worker of workers) {
      const own = sampleSeconds(worker);
      // One that is busy and gets nothing done is slower than any.
      const slow = Number.isFinite(own) ? own / among : worker.idleRatio < 0.5 ? Infinity : 1;
      slowness.set(worker.id, [...(slowness.get(worker.id) ?? []), slow]);
    }
  }
  return newest.workers.flatMap(({ id, name }) => {
    const last = (slowness.get(id) ?? []).slice(-WINDOWS);
    if (last.length < WINDOWS || last.some((slow) => slow <= SLOW)) return [];
    const typical = median(last);
    const how = Number.isFinite(typical)
      ? `a sample takes ${times(typical)} the median`
      : 'it trains nothing';
    return [
      {
        code: 'straggling-worker',
        severity: 'warning',
        subject: name,
        evidence: `${how} of all workers, in each of the last ${WINDOWS} reports`,
        advice: 'end it and start another one elsewhere: its range is done again, and no sample counts twice',
      },
    ];
  });
};
