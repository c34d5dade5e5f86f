/**
 * Scheduler and PS are kept apart: a machine that vanishes with both takes the one who has to notice, too. A
 * scheduler whose machine is gone for good gets another one.
 */
import type { KubeNode } from '../objects.js';
import type { TrainingJob } from '../types.js';
import { type Census, nodeReady } from './census.js';
import { deletion } from './deletion.js';
import { type PodRole, selectorOf } from './names.js';
import type { Action, ObservedJob } from './observed.js';

const OUT_OF_SERVICE = 'node.kubernetes.io/out-of-service';
/** The highest weight of a preference. */
const WEIGHT = 100;

/** A Pod goes to another machine than its counterpart where there is one. Workers go anywhere. */
export function apart(job: TrainingJob, role: PodRole): { affinity?: object } {
  if (role === 'worker') return {};
  const other = selectorOf(job, role === 'ps' ? 'scheduler' : 'ps');
  const term = { topologyKey: 'kubernetes.io/hostname', labelSelector: { matchLabels: other } };
  const preferred = [{ weight: WEIGHT, podAffinityTerm: term }];
  return { affinity: { podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: preferred } } };
}

/** Somebody has said that the machine is down and does not come back as it was. */
export const isOutOfService = ({ spec }: KubeNode): boolean =>
  spec?.taints?.some(({ key }) => key === OUT_OF_SERVICE) ?? false;

/** Whether no process runs on the machine any more. Undefined: it has no Node object. */
export const isGone = (node: KubeNode | undefined): boolean =>
  node === undefined || (isOutOfService(node) && !nodeReady(node));

/**
 * Deletes schedulers on machines that are gone, without waiting for a kubelet: their StatefulSet makes no
 * other Pod before. A machine whose scheduler answers is not gone, whatever became of its Node object. One
 * that was not asked yet may answer. With etcd that may be another scheduler's answer, and leases keep two
 * from writing.
 */
export function stranded(observed: ObservedJob, census: Census): Action[] {
  const { job, nodes, report, asking = false } = observed;
  if ((report || asking) && !job.spec.scheduler.store.etcd) return [];
  return census.scheduler.flatMap((member): Action[] => {
    const { nodeName } = member.pod.spec;
    if (nodeName === undefined) return [];
    if (!isGone(nodes.find(({ metadata }) => metadata.name === nodeName))) return [];
    return [{ ...deletion(member, 0), ifGone: nodeName }];
  });
}
