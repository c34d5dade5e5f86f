/**
 * Pods of a role are kept apart, and so are scheduler and PS: a machine that vanishes with both takes the one
 * who has to notice, too. A scheduler whose machine is gone for good gets another one.
 */
import type { KubeNode } from '../objects.js';
import type { TrainingJob } from '../types.js';
import { type Census, inState, nodeReady } from './census.js';
import { deletion } from './deletion.js';
import { type PodRole, selectorOf, ZONE_LABEL } from './names.js';
import type { Action, ObservedJob } from './observed.js';

const OUT_OF_SERVICE = 'node.kubernetes.io/out-of-service';
/** Weights of being apart from a Pod of the same role: where that matters most, and where less. */
const FIRST = 100;
const SECOND = 50;
/** Weight of being apart from the counterpart. Two PS on one machine are worse. */
const COUNTERPART = 25;
const HOST = 'kubernetes.io/hostname';

/**
 * Machines and zones get about as many Pods of a role each, where there is room, and scheduler and PS are on
 * different machines. Spread constraints would not do: they leave out a machine without one of their keys,
 * and few clusters of one's own have zones.
 */
export function apart(job: TrainingJob, role: PodRole): { affinity: object } {
  const from = (weight: number, topologyKey: string, other: PodRole) => ({
    weight,
    podAffinityTerm: { topologyKey, labelSelector: { matchLabels: selectorOf(job, other) } },
  });
  const byHost = job.spec.failureDomain === 'node';
  const preferred = [
    from(byHost ? FIRST : SECOND, HOST, role),
    from(byHost ? SECOND : FIRST, ZONE_LABEL, role),
    ...(role === 'worker' ? [] : [from(COUNTERPART, HOST, role === 'ps' ? 'scheduler' : 'ps')]),
  ];
  return { affinity: { podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: preferred } } };
}

/**
 * Why the zones of PS that are to be apart by zone are not known; undefined: they are. For the job all Pods
 * without one are in one zone, and it spreads groups over zones only as far as there are any.
 */
export function zoneProblem({ spec }: TrainingJob, census: Census): string | undefined {
  if (spec.failureDomain === 'node') return undefined;
  const without = inState(census.ps, 'active').filter(
    ({ pod }) => pod.spec.nodeName !== undefined && !pod.metadata.labels?.[ZONE_LABEL],
  );
  if (!without[0]) return undefined;
  const more = without.length > 1 ? ` (and ${without.length - 1} more)` : '';
  return (
    `${without[0].name}${more} has no label ${ZONE_LABEL}, so what is in one zone is not known: label the ` +
    'machines (Kubernetes 1.35 gives their zones to Pods), or set spec.failureDomain to node in another job'
  );
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
