/**
 * Fields for software that places Pods: queues and gangs, besides the scheduler of Kubernetes itself. Each
 * gang scheduler knows the Pods of a group in its own way.
 */
import type { ObjectManifest, PodSpec } from '../objects.js';
import type { TrainingJob } from '../types.js';
import { metaOf, schedulersOf, wantedPs } from './names.js';

/** Label of a job that Kueue is to admit as a whole (queueing.ts), and of a Pod that it admits alone. */
export const QUEUE_LABEL = 'kueue.x-k8s.io/queue-name';

const policyOf = ({ spec }: TrainingJob) => spec.runPolicy.schedulingPolicy ?? {};

type Gang = NonNullable<ReturnType<typeof policyOf>['gang']>;

/** Key of `RESOURCES` (api/resources.ts) of the group; undefined: the scheduler makes it. */
const GROUP_KINDS: Record<Gang, string | undefined> = {
  volcano: 'PodGroup',
  coscheduling: 'CoschedulingPodGroup',
  kai: undefined,
  kubernetes: 'NativePodGroup',
};
/** Schedulers by the names that their own installations give them. */
const SCHEDULERS: Record<Gang, string | undefined> = {
  volcano: 'volcano',
  coscheduling: 'scheduler-plugins-scheduler',
  kai: 'kai-scheduler',
  kubernetes: undefined,
};
const MISSING: Record<string, string> = {
  PodGroup: 'PodGroup of scheduling.volcano.sh/v1beta1: Volcano is not installed',
  CoschedulingPodGroup: 'PodGroup of scheduling.x-k8s.io/v1alpha1: scheduler-plugins is not installed',
  NativePodGroup:
    'PodGroup of scheduling.k8s.io/v1alpha2: it needs Kubernetes 1.36 with this API and the feature ' +
    'GenericWorkload, and for the scheduler GangScheduling',
};

/** Why the Pods of a job cannot be placed as a gang; undefined: they can, or are none. */
export function gangProblem(job: TrainingJob, there: ReadonlySet<string>): string | undefined {
  const { gang, minAvailable } = policyOf(job);
  if (gang === undefined)
    return minAvailable === undefined
      ? undefined
      : 'minAvailable needs schedulingPolicy.gang: without a gang scheduler nobody holds Pods back';
  const kind = GROUP_KINDS[gang];
  if (kind !== undefined && !there.has(kind)) return `the cluster has no ${MISSING[kind]}`;
  const all = schedulersOf(job) + wantedPs(job) + job.spec.replicaSpecs.worker.replicas;
  return (minAvailable ?? 0) <= all
    ? undefined
    : `minAvailable is ${minAvailable}, and the job has ${all} Pods: they would wait for ever`;
}

/** Pods without which the job does not train: the scheduler, PS for one group, and a worker. */
function fewest(job: TrainingJob): number {
  const { code, replicaSpecs } = job.spec;
  const { ps, worker } = replicaSpecs;
  return schedulersOf(job) + (ps.minReplicas ?? code.k + code.r) + Math.max(1, worker.minReplicas ?? 1);
}

/** Kueue and KAI, and the coscheduling plugin, know a Pod by labels. */
export function queueLabels(job: TrainingJob): Record<string, string> {
  const { queue, gang } = policyOf(job);
  // Kueue admits a job of a queue as a whole, and not its Pods.
  const alone = gang === undefined && job.metadata.labels?.[QUEUE_LABEL] === undefined;
  return {
    ...(queue !== undefined && alone ? { [QUEUE_LABEL]: queue } : {}),
    ...(queue !== undefined && gang === 'kai' ? { 'kai.scheduler/queue': queue } : {}),
    ...(gang === 'coscheduling' ? { 'scheduling.x-k8s.io/pod-group': job.metadata.name } : {}),
  };
}

/** Volcano places a Pod with its group, or else by the queue that its annotation names. */
export function gangAnnotations(job: TrainingJob): Record<string, string> {
  const { queue, gang } = policyOf(job);
  const volcano = gang === undefined || gang === 'volcano';
  return {
    ...(queue === undefined || !volcano ? {} : { 'scheduling.volcano.sh/queue-name': queue }),
    ...(gang === 'volcano' ? { 'scheduling.k8s.io/group-name': job.metadata.name } : {}),
  };
}

/** Fields of the spec of every Pod. */
export function placement(job: TrainingJob): PodSpec {
  const { priorityClass, gang, schedulerName = gang && SCHEDULERS[gang] } = policyOf(job);
  return {
    ...(priorityClass === undefined ? {} : { priorityClassName: priorityClass }),
    ...(schedulerName === undefined ? {} : { schedulerName }),
    ...(gang === 'kubernetes' ? { schedulingGroup: { podGroupName: job.metadata.name } } : {}),
  };
}

/** The group: none of the Pods is placed before there is room for so many of them. */
export function podGroupsOf(job: TrainingJob): { resource: string; object: ObjectManifest }[] {
  const { minAvailable, queue, priorityClass, gang } = policyOf(job);
  const resource = gang && GROUP_KINDS[gang];
  if (resource === undefined) return [];
  const minMember = minAvailable ?? fewest(job);
  const of = (apiVersion: string, spec: object) => [
    { resource, object: { apiVersion, kind: 'PodGroup', metadata: metaOf(job, job.metadata.name), spec } },
  ];
  if (gang === 'kubernetes')
    return of('scheduling.k8s.io/v1alpha2', { schedulingPolicy: { gang: { minCount: minMember } } });
  if (gang === 'coscheduling') return of('scheduling.x-k8s.io/v1alpha1', { minMember });
  return of('scheduling.volcano.sh/v1beta1', {
    minMember,
    ...(queue === undefined ? {} : { queue }),
    ...(priorityClass === undefined ? {} : { priorityClassName: priorityClass }),
  });
}
