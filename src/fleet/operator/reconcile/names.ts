/** Names and labels of what belongs to a job. */
import type { Meta, OwnerReference } from '../objects.js';
import { GROUP, TRAINING_JOB, type TrainingJob, VERSION } from '../types.js';

export type PodRole = 'scheduler' | 'ps' | 'worker';
export const ROLES: readonly PodRole[] = ['scheduler', 'ps', 'worker'];
/** Roles whose Pods the operator makes. */
export type Replicated = 'ps' | 'worker';
export const REPLICATED: readonly Replicated[] = ['ps', 'worker'];
/** The container that runs the role. */
export const CONTAINER = 'kintsugi';
export const JOB_LABEL = `${GROUP}/job`;
export const ROLE_LABEL = `${GROUP}/role`;
export const INDEX_LABEL = `${GROUP}/index`;
/** Label with the zone of a machine, and of a Pod that has one. */
export const ZONE_LABEL = 'topology.kubernetes.io/zone';
/** Condition of a PS Pod that is its readiness gate. */
export const REDUNDANT_GATE = `${GROUP}/redundant`;
/** Annotation with a digest of what was applied: the same is not applied again. */
export const APPLIED = `${GROUP}/applied`;

export const SCHEDULER_PORT = 7077;
export const PS_PORT = 7100;
export const WORKER_PORT = 7200;

/** Key of the token that opens /metrics. */
export const METRICS_KEY = 'metricsToken';
/** Keys of the Secret with tokens. */
export const TOKEN_KEYS = ['token', 'nodeToken', METRICS_KEY] as const;

export const schedulerName = (job: TrainingJob): string => `${job.metadata.name}-scheduler`;
export const psName = (job: TrainingJob): string => `${job.metadata.name}-ps`;
export const podName = (job: TrainingJob, role: PodRole, index: number): string =>
  `${job.metadata.name}-${role}-${index}`;
export const secretName = (job: TrainingJob): string =>
  job.spec.auth?.secretName ?? `${job.metadata.name}-tokens`;
/** Schedulers that run at the same time. */
export const schedulersOf = ({ spec }: TrainingJob): number => spec.scheduler.store.etcd?.schedulers ?? 1;

/** With several schedulers, one address for each, comma-separated. */
export function schedulerAddress(job: TrainingJob): string {
  const service = `${schedulerName(job)}.${job.metadata.namespace}.svc:${SCHEDULER_PORT}`;
  const count = schedulersOf(job);
  if (count === 1) return service;
  return Array.from({ length: count }, (_, index) => `${schedulerName(job)}-${index}.${service}`).join(',');
}

export const labelsOf = (job: TrainingJob, role?: PodRole): Record<string, string> => ({
  'app.kubernetes.io/managed-by': 'kintsugi-operator',
  [JOB_LABEL]: job.metadata.name,
  ...(role ? { [ROLE_LABEL]: role } : {}),
});

export function selectorOf(job: TrainingJob, role: PodRole): Record<string, string> {
  return { [JOB_LABEL]: job.metadata.name, [ROLE_LABEL]: role };
}

export function ownerOf(job: TrainingJob): OwnerReference {
  return {
    apiVersion: `${GROUP}/${VERSION}`,
    kind: TRAINING_JOB.kind,
    name: job.metadata.name,
    uid: job.metadata.uid ?? '',
    controller: true,
    blockOwnerDeletion: true,
  };
}

/** Metadata of an object of the job. */
export function metaOf(job: TrainingJob, name: string, role?: PodRole): Meta {
  return {
    name,
    namespace: job.metadata.namespace ?? '',
    labels: labelsOf(job, role),
    ownerReferences: [ownerOf(job)],
  };
}

/** The program in place of kintsugi. An empty command is none, as in a container. */
export function commandOf({ spec }: TrainingJob, role: PodRole): string[] | undefined {
  const { command = [] } = spec.replicaSpecs[role];
  return command.length > 0 ? command : undefined;
}

/** Number of PS that are to serve. The default lies within the bounds. */
export function wantedPs({ spec }: TrainingJob): number {
  const usual = spec.code.k + spec.code.r + 1;
  const { replicas, minReplicas = usual, maxReplicas = Number.POSITIVE_INFINITY } = spec.replicaSpecs.ps;
  return replicas ?? Math.min(Math.max(usual, minReplicas), maxReplicas);
}

/** Name of the data set that the workers train. */
export function runOf({ spec }: TrainingJob): string {
  const args = spec.replicaSpecs.worker.args ?? [];
  const at = args.indexOf('--run');
  const joined = args.find((arg) => arg.startsWith('--run='));
  return joined?.slice('--run='.length) ?? (at < 0 ? undefined : args[at + 1]) ?? 'train';
}
