/**
 * Machines that are about to go: they are cordoned, or a taint says so. The shards of their PS move ahead, as
 * long as there is time; when there is none, parity restores them.
 */
import type { KubeNode } from '../objects.js';
import { type Census, inState } from './census.js';
import type { ObservedJob } from './observed.js';

/** Key of a taint or an annotation of a Node: somebody knows that the machine is about to go. */
const RECLAIM_NOTICE = 'kintsugi.dev/reclaim';
/** Keys of taints of machines that are taken away. One that ends with a slash is a prefix. */
const RECLAIMING: readonly string[] = [
  RECLAIM_NOTICE,
  'karpenter.sh/disrupted',
  'karpenter.sh/disruption',
  'ToBeDeletedByClusterAutoscaler',
  'cloud.google.com/impending-node-termination',
  'aws-node-termination-handler/',
  'remediator.kubernetes.azure.com/unschedulable',
  'node.cloudprovider.kubernetes.io/shutdown',
  'node.kubernetes.io/out-of-service',
];

export function isReclaimed({ spec, metadata }: KubeNode): boolean {
  if (metadata.deletionTimestamp !== undefined || spec?.unschedulable) return true;
  if (metadata.annotations?.[RECLAIM_NOTICE] !== undefined) return true;
  const keys = spec?.taints?.map(({ key }) => key) ?? [];
  return keys.some((key) =>
    RECLAIMING.some((one) => (one.endsWith('/') ? key.startsWith(one) : key === one)),
  );
}

/** Names of PS on machines that are about to go. */
export function reclaimed({ nodes }: Pick<ObservedJob, 'nodes'>, census: Census): Set<string> {
  const machines = new Set(nodes.filter(isReclaimed).map(({ metadata }) => metadata.name));
  if (machines.size === 0) return new Set();
  const there = inState(census.ps, 'active').filter(({ pod }) => machines.has(pod.spec.nodeName ?? ''));
  return new Set(there.map(({ name }) => name));
}
