/**
 * A scheduler whose volume is gone would begin its job anew, and checkpoints of that would take the place of
 * those that there are. So a ConfigMap says which lives have formed. A scheduler that is about to start reads
 * it as a variable, and ends where it must resume a job that is not there. The ConfigMap is written before
 * the status says that the life has formed. The template of the scheduler stays the same, because another one
 * would start it again.
 */
import type { EnvVar, ObjectManifest } from '../objects.js';
import type { TrainingJob, TrainingJobStatus } from '../types.js';
import { type Census, refusalWords } from './census.js';
import { metaOf } from './names.js';
import { type Action, type ObservedJob, refusedConfigMap } from './observed.js';

const guardName = ({ metadata }: TrainingJob): string => `${metadata.name}-begun`;
/** An earlier job of this name has other keys. */
const keyOf = ({ metadata }: TrainingJob, life: number): string => `${metadata.uid ?? ''}.life-${life}`;

/** The variable that tells a scheduler whether its life has formed. An older image ignores it. */
export const guardEnvironment = (job: TrainingJob, life: number): EnvVar => ({
  name: 'KINTSUGI_MUST_RESUME',
  valueFrom: { configMapKeyRef: { name: guardName(job), key: keyOf(job, life), optional: true } },
});

const guardOf = (job: TrainingJob, life: number): ObjectManifest => ({
  ...{ apiVersion: 'v1', kind: 'ConfigMap', metadata: metaOf(job, guardName(job)) },
  data: { [keyOf(job, life)]: 'yes' },
});

const isRefused = (observed: ObservedJob): boolean =>
  refusedConfigMap(observed, guardName(observed.job)) !== undefined;

/** Whether this pass tells the scheduler of a life that has formed, before it writes the status. */
export const tellsGuard = (observed: ObservedJob, formed: boolean): boolean =>
  formed && !observed.job.status?.guarded && !isRefused(observed);

/** Actions that come before the status, which says so from this pass on. */
export const firstGuard = ({ job }: ObservedJob, { guarded, life = 1 }: TrainingJobStatus): Action[] =>
  guarded && !job.status?.guarded ? [{ kind: 'report', object: guardOf(job, life) }] : [];

/** Actions at the end of a pass, where it was refused before: then that keeps nothing else from the job. */
export function lateGuard(observed: ObservedJob, status: TrainingJobStatus): Action[] {
  const { formed = false, guarded = false, life = 1 } = status;
  if (!formed || guarded || !isRefused(observed)) return [];
  return [
    { kind: 'report', object: guardOf(observed.job, life) },
    { kind: 'status', status: { ...status, guarded: true } },
  ];
}

/** The words of a scheduler that has not found its state, with what to do. Undefined: none has said so. */
export function lostState(observed: ObservedJob, census: Census): string | undefined {
  const words = refusalWords(observed, census, 'STATE_LOST');
  if (words === undefined) return undefined;
  return (
    `${words} Bring back the volume of the scheduler, or its keys in etcd, and it goes on. Without them ` +
    'make the job again, with [--restore, PLACE] in replicaSpecs.scheduler.args for its newest checkpoint'
  );
}
