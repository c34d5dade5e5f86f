/** Paths and versions of the kinds that the operator reads and writes. */
import { GROUP, SCALE_IN, SCALE_OUT, TRAINING_JOB, VERSION } from '../types.js';

interface Resource {
  apiVersion: string;
  kind: string;
  plural: string;
  /** True: objects of the kind belong to no namespace. */
  cluster?: true;
  /** True: other software defines the kind, and may not be there. */
  optional?: true;
}

export const RESOURCES = {
  TrainingJob: { apiVersion: `${GROUP}/${VERSION}`, kind: TRAINING_JOB.kind, plural: TRAINING_JOB.plural },
  ScaleOut: { apiVersion: `${GROUP}/${VERSION}`, kind: 'ScaleOut', plural: SCALE_OUT.plural },
  ScaleIn: { apiVersion: `${GROUP}/${VERSION}`, kind: 'ScaleIn', plural: SCALE_IN.plural },
  Pod: { apiVersion: 'v1', kind: 'Pod', plural: 'pods' },
  Service: { apiVersion: 'v1', kind: 'Service', plural: 'services' },
  Secret: { apiVersion: 'v1', kind: 'Secret', plural: 'secrets' },
  PersistentVolumeClaim: {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    plural: 'persistentvolumeclaims',
  },
  ConfigMap: { apiVersion: 'v1', kind: 'ConfigMap', plural: 'configmaps' },
  Event: { apiVersion: 'v1', kind: 'Event', plural: 'events' },
  Node: { apiVersion: 'v1', kind: 'Node', plural: 'nodes', cluster: true },
  StatefulSet: { apiVersion: 'apps/v1', kind: 'StatefulSet', plural: 'statefulsets' },
  PodDisruptionBudget: {
    apiVersion: 'policy/v1',
    kind: 'PodDisruptionBudget',
    plural: 'poddisruptionbudgets',
  },
  NetworkPolicy: {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    plural: 'networkpolicies',
  },
  PodMonitor: {
    apiVersion: 'monitoring.coreos.com/v1',
    kind: 'PodMonitor',
    plural: 'podmonitors',
    optional: true,
  },
  PodGroup: {
    apiVersion: 'scheduling.volcano.sh/v1beta1',
    kind: 'PodGroup',
    plural: 'podgroups',
    optional: true,
  },
  CoschedulingPodGroup: {
    apiVersion: 'scheduling.x-k8s.io/v1alpha1',
    kind: 'PodGroup',
    plural: 'podgroups',
    optional: true,
  },
  NativePodGroup: {
    apiVersion: 'scheduling.k8s.io/v1alpha2',
    kind: 'PodGroup',
    plural: 'podgroups',
    optional: true,
  },
  Workload: {
    apiVersion: 'kueue.x-k8s.io/v1beta2',
    kind: 'Workload',
    plural: 'workloads',
    optional: true,
  },
  ResourceFlavor: {
    apiVersion: 'kueue.x-k8s.io/v1beta2',
    kind: 'ResourceFlavor',
    plural: 'resourceflavors',
    ...{ cluster: true, optional: true },
  },
  WorkloadPriorityClass: {
    apiVersion: 'kueue.x-k8s.io/v1beta2',
    kind: 'WorkloadPriorityClass',
    plural: 'workloadpriorityclasses',
    ...{ cluster: true, optional: true },
  },
  Lease: { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', plural: 'leases' },
} as const satisfies Record<string, Resource>;

export type ResourceKind = keyof typeof RESOURCES;

/** Path of an object, or of a list. Without a namespace: the objects of all namespaces. */
export function pathOf(kind: ResourceKind, namespace?: string, name?: string): string {
  const { apiVersion, plural, cluster }: Resource = RESOURCES[kind];
  const root = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  const inside = cluster || namespace === undefined ? '' : `/namespaces/${namespace}`;
  return `${root}${inside}/${plural}${name === undefined ? '' : `/${name}`}`;
}

export const isOptional = (kind: ResourceKind): boolean => (RESOURCES[kind] as Resource).optional ?? false;

/** Key of the kind of an object: some APIs share kinds. Undefined: the operator does not know it. */
export function resourceOf({ apiVersion, kind }: { apiVersion: string; kind: string }) {
  const known = Object.entries(RESOURCES).find(
    ([, one]) => one.kind === kind && one.apiVersion === apiVersion,
  );
  return known?.[0] as ResourceKind | undefined;
}
