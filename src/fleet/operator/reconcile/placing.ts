/** Fields for software that places Pods: queues and gangs, besides the scheduler of Kubernetes itself. */
import type { ObjectManifest } from '../objects.js';
import type { TrainingJob } from '../types.js';
import { metaOf } from './names.js';

const policyOf = ({ spec }: TrainingJob) => spec.runPolicy.schedulingPolicy ?? {};
const isGang = (job: TrainingJob): boolean => policyOf(job).minAvailable !== undefined;

/** Kueue admits a Pod by the queue that its label names. */
export function queueLabels(job: TrainingJob): Record<string, string> {
  const { queue } = policyOf(job);
  return queue === undefined ? {} : { 'kueue.x-k8s.io/queue-name': queue };
}

/** Volcano places a Pod with its group, or else by the queue that its annotation names. */
export function gangAnnotations(job: TrainingJob): Record<string, string> {
  const { queue } = policyOf(job);
  return {
    ...(queue === undefined ? {} : { 'scheduling.volcano.sh/queue-name': queue }),
    ...(isGang(job) ? { 'scheduling.k8s.io/group-name': job.metadata.name } : {}),
  };
}

/** Fields of the spec of every Pod. */
export function placement(job: TrainingJob): { priorityClassName?: string; schedulerName?: string } {
  const { priorityClass, schedulerName } = policyOf(job);
  return {
    ...(priorityClass === undefined ? {} : { priorityClassName: priorityClass }),
    ...(schedulerName === undefined ? {} : { schedulerName }),
  };
}

/** The PodGroup of Volcano: none of the Pods is placed before there is room for so many of them. */
export function podGroupsOf(job: TrainingJob): ObjectManifest[] {
  const { minAvailable, queue, priorityClass } = policyOf(job);
  if (minAvailable === undefined) return [];
  return [
    {
      apiVersion: 'scheduling.volcano.sh/v1beta1',
      kind: 'PodGroup',
      metadata: metaOf(job, job.metadata.name),
      spec: {
        minMember: minAvailable,
        ...(queue === undefined ? {} : { queue }),
        ...(priorityClass === undefined ? {} : { priorityClassName: priorityClass }),
      },
    },
  ];
}
