/**
 * Pauses a job. First its workers hand their samples back and end. Then a checkpoint is made, which therefore
 * has everything that was trained. It is noted before anything else goes. Then the scheduler ends, and the PS
 * last. When all are gone the job is suspended. It goes on as a new life of the scheduler, which begins with
 * that checkpoint.
 */
import type { TrainingJobStatus } from '../types.js';
import { type Census, isReady, type Member } from './census.js';
import { deletion } from './deletion.js';
import type { Action, ObservedJob } from './observed.js';
import { isPlanned, planning } from './plan.js';

/**
 * Stage of a pause:
 *
 * - `none`: the job is to run, and does.
 * - `stopping`: workers hand back.
 * - `saving`: a checkpoint is made.
 * - `held`: there is no place for one, so the PS keep what they hold.
 * - `ending`: the rest goes.
 * - `suspended`: nothing of it is left.
 * - `returning`: it is to begin its next life.
 */
export type Stage = 'none' | 'stopping' | 'saving' | 'held' | 'ending' | 'suspended' | 'returning';

/** Whether no process of the job is to run. */
export const isPaused = (stage: Stage): boolean =>
  stage === 'ending' || stage === 'suspended' || stage === 'returning';

/** Seconds in which a process of a saved job ends: it has nothing to hand over. */
const ENDED_GRACE_SECONDS = 1;
/** Milliseconds until a checkpoint that failed is asked for again. */
const ASK_AGAIN_MS = 15_000;

/** Pods without those that end on a machine that does not answer, which may stay for ever. */
export function here(members: readonly Member[]): Member[] {
  return members.filter(({ state, reachable }) => state !== 'ending' || reachable);
}

function anythingHere(census: Census): boolean {
  // The next scheduler has the name of this one, which must be gone first.
  if (census.scheduler.length > 0) return true;
  const done = new Set(['succeeded', 'failed']);
  const members = [...here(census.ps), ...here(census.worker)];
  return members.some(({ state, lingers }) => lingers || !done.has(state));
}

export function stageOf({ job }: ObservedJob, census: Census): Stage {
  const wanted = job.spec.runPolicy.suspend;
  const { startPs, suspended } = job.status ?? {};
  if (suspended) {
    if (anythingHere(census)) return 'ending';
    return wanted ? 'suspended' : 'returning';
  }
  if (!wanted) return 'none';
  if (startPs === undefined && !anythingHere(census)) return 'suspended';
  if (here(census.worker).some(({ state }) => state !== 'succeeded' && state !== 'failed')) return 'stopping';
  return job.spec.checkpoint ? 'saving' : 'held';
}

/**
 * Whether this life has formed, or may have, as far as this pass sees. Scheduler and PS become ready when the
 * job forms, and a PS stays so while its scheduler is away. A report knows better.
 */
export function hasFormed({ job, report }: ObservedJob, census: Census): boolean {
  const { phase, formed = false } = job.status ?? {};
  if (formed || phase === 'Running' || phase === 'Scaling') return true;
  if (report) return report.redundancy !== 'forming';
  return [...census.scheduler, ...census.ps].some(({ pod }) => isReady(pod.status?.conditions ?? []));
}

/**
 * Whether this life has trained nothing: its scheduler says that it has not formed, or it never did, as the
 * status has it. A scheduler that is away for a moment says nothing.
 */
function neverTrained(observed: ObservedJob, census: Census): boolean {
  const { job, report, asking } = observed;
  if (job.status?.phase !== 'Pending' || asking) return false;
  return report ? report.redundancy === 'forming' : !hasFormed(observed, census);
}

/**
 * The checkpoint with which the job can go on; undefined while there is none. A life that has trained nothing
 * needs none of its own: the next one begins with that of this life, or anew (an empty place).
 */
export function savedFor(
  observed: ObservedJob,
  stage: Stage,
  census: Census,
): TrainingJobStatus['suspended'] {
  const { job, report, saved } = observed;
  const plan = job.spec.checkpoint;
  if ((stage === 'saving' || stage === 'held') && neverTrained(observed, census))
    return { place: job.status?.restore ?? '' };
  if (stage !== 'saving' || !plan || !isPlanned({ job, report })) return undefined;
  const fresh = saved?.generation === job.metadata.generation ? saved?.number : undefined;
  const number = fresh ?? (plan.onSuspend ? undefined : report?.lastCheckpoint?.number);
  return number === undefined ? undefined : { place: plan.url, checkpoint: number };
}

/** Actions for a pause, besides noting the checkpoint. Workers go because none are wanted. */
export function suspending(observed: ObservedJob, census: Census, stage: Stage): Action[] {
  const { job, report, saved, now } = observed;
  if (stage === 'saving') {
    // The checkpoint goes to the place of the present plan, which the job must have.
    if (savedFor(observed, stage, census)) return [];
    if (!isPlanned(observed)) return planning(observed);
    if (!report || saved?.underWay) return [];
    const generation = job.metadata.generation ?? 0;
    if (saved?.problem && saved.generation === generation && now < saved.at + ASK_AGAIN_MS)
      return [{ kind: 'wake', at: saved.at + ASK_AGAIN_MS }];
    return [{ kind: 'checkpoint', generation }];
  }
  if (stage === 'ending') {
    const saving = census.scheduler.length > 0;
    const rest = [...(saving ? [] : census.ps), ...census.worker];
    return rest
      .filter(({ state }) => state !== 'ending')
      .map((member) => deletion(member, ENDED_GRACE_SECONDS));
  }
  return [];
}
