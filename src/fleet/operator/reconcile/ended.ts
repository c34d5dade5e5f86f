/** Cleans up a job that has ended. */
import { TRAINING_JOB, type TrainingJobStatus } from '../types.js';
import { type Census, inState } from './census.js';
import { deletion } from './deletion.js';
import type { Action, ObservedJob } from './observed.js';

/** Seconds in which a process of an ended job ends: it has nothing to hand over. */
const ENDED_GRACE_SECONDS = 1;

/** Deletes Pods of a job that has ended: first the scheduler ends, which saves what there is, then the PS. */
export function cleaning({ job }: ObservedJob, census: Census): Action[] {
  const policy = job.spec.runPolicy.cleanPodPolicy;
  if (policy === 'None' || keptForRescue(job.status)) return [];
  const running = inState(census.worker, 'active', 'lost');
  const gone = policy === 'All' ? inState(census.worker, 'succeeded', 'failed') : [];
  const saved = inState(census.scheduler, 'active', 'ending').length === 0;
  return [...running, ...gone, ...(saved ? census.ps.filter(({ state }) => state !== 'ending') : [])].map(
    (one) => deletion(one, ENDED_GRACE_SECONDS),
  );
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
