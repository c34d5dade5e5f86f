/**
 * Failures that are not the job's. Nothing is wrong with a process that a job refuses for its tokens, or with
 * a worker that finds no scheduler: the job waits for its user. If these counted, the job would fail
 * meanwhile, and what its PS hold would go.
 */
import type { TrainingJobStatus } from '../types.js';
import { type Census, inState, isLed, lastError, type Member } from './census.js';
import type { ObservedJob } from './observed.js';
import { refusedMembers } from './tokens.js';

/** Errors of a worker that finds no scheduler, or loses it. */
const AWAY = new Set(['UNREACHABLE', 'TIMEOUT', 'NOT_READY', 'CLOSED', 'SESSION_EXPIRED']);
/** So many Pods that are excused stay for their logs. The pause between two has its longest before. */
const KEPT = 10;

const foundNone = ({ ready, exit }: Member): boolean => !ready && AWAY.has(lastError(exit)?.code ?? '');

/** Members that have failed for no fault of theirs or of the job's, once it has formed. */
export function excusedMembers(
  observed: Pick<ObservedJob, 'report'>,
  census: Census,
  status: Pick<TrainingJobStatus, 'formed'>,
): Member[] {
  const alone = status.formed && !isLed(observed, census);
  const away = alone ? inState(census.worker, 'active', 'failed').filter(foundNone) : [];
  return [...refusedMembers(status, census), ...away];
}

/**
 * Restarts of workers in their Pods that do not count, by name. A process that is about to begin again has
 * one more then.
 */
export function excusedRestarts(
  census: Census,
  excused: readonly Member[],
  before: TrainingJobStatus['excusedRestarts'] = {},
): Pick<TrainingJobStatus, 'excusedRestarts'> {
  const found = inState(census.worker, 'active').flatMap((one) => {
    const count = excused.includes(one) ? one.restarts + (one.runs ? 0 : 1) : (before[one.name] ?? 0);
    return count > 0 ? [[one.name, count] as const] : [];
  });
  return found.length === 0 ? {} : { excusedRestarts: Object.fromEntries(found) };
}

/** Excused workers that have ended and are noted, but for the newest: there may be one a minute. */
export function forgotten(excused: readonly Member[], noted: ReadonlySet<string>): Member[] {
  const over = excused.filter((one) => one.state === 'failed' && noted.has(one.name));
  return over.sort((a, b) => a.index - b.index).slice(0, -KEPT);
}
