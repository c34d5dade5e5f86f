/**
 * Ends of workers that are not the job's. Nothing is wrong with a worker that a job refuses for its token, or
 * that finds no scheduler: the job waits for its user. If these ends counted, the job would fail meanwhile,
 * and what its PS hold would go.
 */
import type { TrainingJobStatus } from '../types.js';
import {
  type Census,
  endedAt,
  inState,
  isLed,
  lastError,
  type Member,
  readySince,
  servedSince,
  servesSince,
} from './census.js';
import type { ObservedJob } from './observed.js';

/** Errors of a worker that finds no scheduler, or loses it. */
const AWAY = new Set(['UNREACHABLE', 'TIMEOUT', 'NOT_READY', 'CLOSED', 'SESSION_EXPIRED']);
/** So many Pods that are excused stay for their logs. The pause between two has its longest before. */
const KEPT = 10;

/** Whether a worker has ended while no scheduler led. The end may be seen when one leads again. */
function foundNone(observed: Pick<ObservedJob, 'report'>, census: Census, worker: Member): boolean {
  if (!AWAY.has(lastError(worker.exit)?.code ?? '')) return false;
  if (!isLed(observed, census)) return true;
  const leading = census.scheduler.filter(({ ready }) => ready);
  return leading.length > 0 && leading.every((one) => readySince(one) > endedAt(worker));
}

/** Workers of a job that has formed whose last end is not the job's. They may run again. */
function excusedWorkers(
  observed: Pick<ObservedJob, 'report'>,
  census: Census,
  { formed }: Pick<TrainingJobStatus, 'formed'>,
): Member[] {
  if (!formed) return [];
  const refused = ({ exit }: Member) => lastError(exit)?.code === 'UNAUTHORIZED';
  return inState(census.worker, 'active', 'failed').filter(
    (one) => refused(one) || foundNone(observed, census, one),
  );
}

/**
 * Names of failed workers that do not count, and ends of workers in their Pods (`workerEnds`). What was noted
 * before stays so: later nobody knows whether a scheduler led at the end. Ends that are seen together are
 * taken for what the last one was.
 */
export function excusedOf(
  observed: Pick<ObservedJob, 'report'>,
  census: Census,
  before: Pick<TrainingJobStatus, 'failedPods' | 'excusedPods' | 'workerEnds'>,
  status: Pick<TrainingJobStatus, 'formed'>,
): Pick<TrainingJobStatus, 'excusedPods' | 'workerEnds'> {
  const excused = excusedWorkers(observed, census, status);
  const [counted, noted] = [new Set(before.failedPods), new Set(before.excusedPods)];
  // The end of a process may be seen before its Pod is said to have failed.
  const wasExcused = ({ name, restarts }: Member) => {
    const was = before.workerEnds?.[name];
    return was !== undefined && was.excused > 0 && was.seen > restarts;
  };
  const pods = inState(census.worker, 'failed')
    .filter((one) => !one.disrupted)
    .filter((one) => noted.has(one.name) || wasExcused(one) || excused.includes(one))
    .map(({ name }) => name)
    .filter((name) => !counted.has(name));
  const ends = inState(census.worker, 'active').flatMap((one) => {
    const was = before.workerEnds?.[one.name] ?? { seen: 0, excused: 0 };
    const seen = Math.max(was.seen, one.restarts + (one.runs ? 0 : 1));
    const more = excused.includes(one) ? Math.max(0, seen - was.seen) : 0;
    return seen > 0 ? [[one.name, { seen, excused: was.excused + more }] as const] : [];
  });
  return {
    ...(pods.length > 0 ? { excusedPods: pods } : {}),
    ...(ends.length > 0 ? { workerEnds: Object.fromEntries(ends) } : {}),
  };
}

/** Times at which workers in their Pods have begun again and that count. */
export const countedRestarts = (
  census: Census,
  { workerEnds = {} }: Pick<TrainingJobStatus, 'workerEnds'>,
): number =>
  inState(census.worker, 'active').reduce(
    (sum, { name, restarts }) => sum + Math.max(0, restarts - (workerEnds[name]?.excused ?? 0)),
    0,
  );

const failedIn = (census: Census, names: readonly string[] = []): Member[] =>
  inState(census.worker, 'failed').filter(({ name }) => names.includes(name));

/** How many workers in a row were excused: none served that began later. */
export function excusedInRow(census: Census, names: readonly string[] = [], now: number): number {
  const others = inState(census.worker, 'failed').filter(({ name }) => !names.includes(name));
  const since = Math.max(servesSince(census.worker, now), ...others.map(servedSince));
  return failedIn(census, names).filter((one) => endedAt(one) >= since).length;
}

/** Excused workers that are noted, but for those that ended last: there may be more each minute. */
export function forgotten(census: Census, noted: readonly string[] | undefined): Member[] {
  return failedIn(census, noted)
    .sort((a, b) => endedAt(a) - endedAt(b) || a.index - b.index)
    .slice(0, -KEPT);
}
