/** Cleans up a job that has ended. */
import { TRAINING_JOB, type TrainingJob, type TrainingJobStatus } from '../types.js';
import { type Census, inState, type Member } from './census.js';
import { deletion } from './deletion.js';
import type { Action, ObservedJob } from './observed.js';

/** Seconds in which a process of an ended job ends: it has nothing to hand over. */
const ENDED_GRACE_SECONDS = 1;

/** Whether the scheduler of a job that has ended is gone, which saves at its end what there is. */
const isSaved = (census: Census): boolean => inState(census.scheduler, 'active', 'ending').length === 0;

/**
 * Whether evictions still have to leave the PS of a job that has ended: there is something to be saved, or to
 * be rescued. PS that only stay to be looked at hold up no drain.
 */
export const isGuarded = ({ spec, status }: TrainingJob, census: Census): boolean =>
  keptForRescue(status) || (spec.runPolicy.cleanPodPolicy !== 'None' && !isSaved(census));

/** Deletes Pods of a job that has ended: first the scheduler ends, which saves what there is, then the PS. */
export function cleaning({ job }: ObservedJob, census: Census): Action[] {
  const policy = job.spec.runPolicy.cleanPodPolicy;
  if (policy === 'None' || keptForRescue(job.status)) return [];
  const goes = ({ state, lingers }: Member): boolean =>
    state === 'active' || state === 'lost' || (state !== 'ending' && (lingers || policy === 'All'));
  // A program of the user's own may have something to do at its end.
  const { terminationGracePeriodSeconds } = job.spec.replicaSpecs.worker.template?.spec ?? {};
  const grace = terminationGracePeriodSeconds == null ? ENDED_GRACE_SECONDS : undefined;
  return [
    ...census.worker.filter(goes).map((one) => deletion(one, grace)),
    ...(isSaved(census) ? census.ps.filter(goes) : []).map((one) => deletion(one, ENDED_GRACE_SECONDS)),
  ];
}

/**
 * Whether Pods stay because more was lost than the code restores. What is left can still be saved, or
 * restored from a checkpoint.
 */
export function keptForRescue(status: TrainingJobStatus | undefined): boolean {
  const failed = status?.conditions?.find(({ type }) => type === 'Failed');
  return failed?.reason === 'Unrecoverable';
}

/** Deletes the job after its time. */
export function ageing({ job, now }: ObservedJob): Action[] {
  const { completionTime } = job.status ?? {};
  const seconds = job.spec.runPolicy.ttlSecondsAfterFinished;
  if (seconds === undefined || completionTime === undefined) return [];
  const at = Date.parse(completionTime) + seconds * 1000;
  if (now < at) return [{ kind: 'wake', at }];
  const { apiVersion, metadata } = job;
  return [{ kind: 'delete', object: { apiVersion, kind: TRAINING_JOB.kind, metadata } }];
}
