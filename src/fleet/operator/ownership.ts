/**
 * Owners say what belongs to a job. Labels alone do not: anybody may give them to an object, and an earlier
 * job of the same name has given the same ones.
 */
import type { KubeObject, OwnerReference, Pod } from './objects.js';
import { JOB_UID_ENV } from './reconcile/foreign.js';
import { CONTAINER, JOB_LABEL, ROLE_LABEL, schedulerName } from './reconcile/names.js';
import { isRemoval } from './reconcile/remains.js';
import { GROUP, TRAINING_JOB, type TrainingJob } from './types.js';

export const ownedBy = ({ metadata }: KubeObject, job: TrainingJob): boolean =>
  metadata.ownerReferences?.some(({ uid }) => uid === job.metadata.uid) ?? false;

const isJob = ({ apiVersion, kind }: OwnerReference): boolean =>
  apiVersion.startsWith(`${GROUP}/`) && kind === TRAINING_JOB.kind;

/** Whether a job of this name owns the object, or did. */
export const isOfName = ({ metadata }: KubeObject, name: string): boolean =>
  metadata.ownerReferences?.some((one) => isJob(one) && one.name === name) ?? false;

/** Whether another job of the same name owns the object. It goes with that one, or has to be waited for. */
export const isOfEarlier = (object: KubeObject, job: TrainingJob): boolean =>
  !ownedBy(object, job) && isOfName(object, job.metadata.name);

/** Whether a Pod is one of the job's StatefulSet. That of an earlier job has the same name. */
function isScheduler({ metadata, spec }: Pod, job: TrainingJob): boolean {
  const name = schedulerName(job);
  const owned = metadata.ownerReferences?.some((one) => one.kind === 'StatefulSet' && one.name === name);
  const env = spec.containers?.find((one) => one.name === CONTAINER)?.env ?? [];
  const uid = env.find((one) => one.name === JOB_UID_ENV)?.value;
  return owned === true && (uid === undefined || uid === job.metadata.uid);
}

/**
 * Whether a Pod belongs to the job. The Pod of a scheduler is owned by its StatefulSet, and the one that
 * removes its state by nobody.
 */
export function isPodOf(pod: Pod, job: TrainingJob): boolean {
  const { labels } = pod.metadata;
  if (labels?.[JOB_LABEL] !== job.metadata.name) return false;
  if (ownedBy(pod, job) || isRemoval(pod, job.metadata.name)) return true;
  return labels[ROLE_LABEL] === 'scheduler' && isScheduler(pod, job);
}
