/** What becomes of a job that has ended. */
import { TRAINING_JOB, type TrainingJobStatus } from '../types.js';
import { type Census, inState } from './census.js';
import { deletion } from './deletion.js';
import type { Action, Observed } from './observed.js';

/** A process of a job that has ended has nothing to hand over. */
const ENDED_GRACE_SECONDS = 1;

/** A job that has ended: first the scheduler, which saves what there is, then the PS. */
export function cleaning({ job }: Observed, census: Census): Action[] {
  const policy = job.spec.runPolicy.cleanPodPolicy;
  if (policy === 'None' || keptForRescue(job.status)) return [];
  const running = inState(census.worker, 'active', 'lost');
  const gone = policy === 'All' ? inState(census.worker, 'succeeded', 'failed') : [];
  const saved = inState(census.scheduler, 'active', 'ending').length === 0;
  return [...running, ...gone, ...(saved ? census.ps.filter(({ state }) => state !== 'ending') : [])].map(
    (one) => deletion(one, ENDED_GRACE_SECONDS),
  );
}

/** More was lost than the code restores: what is left can still be saved, or restored from a checkpoint. */
export function keptForRescue(status: TrainingJobStatus | undefined): boolean {
  const failed = status?.conditions?.find(({ type }) => type === 'Failed');
  return failed?.reason === 'Unrecoverable';
}

/** It is deleted after its time. */
export function ageing({ job, now }: Observed): Action[] {
  const { completionTime } = job.status ?? {};
  const seconds = job.spec.runPolicy.ttlSecondsAfterFinished;
  if (seconds === undefined || completionTime === undefined) return [];
  const at = Date.parse(completionTime) + seconds * 1000;
  if (now < at) return [{ kind: 'wake', at }];
  const { apiVersion, metadata } = job;
  return [{ kind: 'delete', object: { apiVersion, kind: TRAINING_JOB.kind, metadata } }];
}
