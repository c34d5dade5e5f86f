/** Objects that a job has once: Service, StatefulSet of the scheduler, disruption budget, Secret. */
import { createHash } from 'node:crypto';
import type { KubeObject, Meta, ObjectManifest, PodSpec } from '../objects.js';
import type { TrainingJob } from '../types.js';
import { extrasOf } from './extras.js';
import {
  APPLIED,
  labelsOf,
  metaOf,
  psName,
  SCHEDULER_PORT,
  schedulerName,
  secretName,
  selectorOf,
} from './names.js';
import { networkPolicyOf } from './network.js';
import { type Beginning, podMeta, podSpecOf, STATE_VOLUME } from './pods.js';
import { includesValue } from './same.js';

/** The address of the scheduler. It leads to the scheduler before that is ready, because PS wait for it. */
function serviceOf(job: TrainingJob): ObjectManifest {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: metaOf(job, schedulerName(job)),
    spec: {
      clusterIP: 'None',
      publishNotReadyAddresses: true,
      selector: selectorOf(job, 'scheduler'),
      ports: [{ name: 'scheduler', port: SCHEDULER_PORT, targetPort: SCHEDULER_PORT }],
    },
  };
}

/**
 * The scheduler is a StatefulSet, because two processes must never write the same volume: a StatefulSet
 * starts no Pod while the machine of the one before is only out of reach. With etcd there are several
 * schedulers, of which one leads.
 */
function schedulerOf(job: TrainingJob, replicas: number, start: Beginning): ObjectManifest {
  const name = schedulerName(job);
  const labels = selectorOf(job, 'scheduler');
  const { name: _, ...metadata } = podMeta(job, 'scheduler', { name, labels: labelsOf(job, 'scheduler') });
  const { size, storageClassName, deletionPolicy, etcd } = job.spec.scheduler.store;
  return {
    apiVersion: 'apps/v1',
    kind: 'StatefulSet',
    metadata: metaOf(job, name),
    spec: {
      ...{ replicas, serviceName: name, selector: { matchLabels: labels } },
      ...(etcd ? { podManagementPolicy: 'Parallel' } : {}),
      // The operator has Pods of an older template replaced (outdated.ts).
      updateStrategy: { type: 'OnDelete' },
      persistentVolumeClaimRetentionPolicy: { whenDeleted: deletionPolicy, whenScaled: 'Retain' },
      template: {
        metadata,
        spec: podSpecOf(job, 'scheduler', start),
      },
      ...(stateClaim(job) !== undefined ? { volumeClaimTemplates: [claimOf(size, storageClassName)] } : {}),
    },
  };
}

const claimOf = (size: string, storageClassName: string | undefined) => ({
  metadata: { name: STATE_VOLUME },
  spec: {
    accessModes: ['ReadWriteOnce'],
    resources: { requests: { storage: size } },
    ...(storageClassName === undefined ? {} : { storageClassName }),
  },
});

/** Lets evictions take at most r PS at once. */
function budgetOf(job: TrainingJob, ps: number): ObjectManifest {
  return {
    apiVersion: 'policy/v1',
    kind: 'PodDisruptionBudget',
    metadata: metaOf(job, psName(job)),
    spec: {
      minAvailable: Math.max(0, ps - job.spec.code.r),
      selector: { matchLabels: selectorOf(job, 'ps') },
    },
  };
}

/** Name of the claim that the StatefulSet of the scheduler makes for its state; undefined: it makes none. */
export function stateClaim(job: TrainingJob): string | undefined {
  const { claimName, etcd } = job.spec.scheduler.store;
  return claimName === undefined && !etcd ? `${STATE_VOLUME}-${schedulerName(job)}-0` : undefined;
}

/**
 * The Secret with the tokens. Its values are drawn when it is made, and nobody changes them: processes that
 * run would not know it.
 */
export function secretOf(job: TrainingJob): ObjectManifest {
  const metadata = metaOf(job, secretName(job));
  return { apiVersion: 'v1', kind: 'Secret', metadata, type: 'Opaque', immutable: true };
}

/**
 * Objects of the job, without Pods and Secret. `schedulers`: 0 when it has ended. `start` stays the same for
 * a life: anything else would only start its scheduler again. `leastPs`: PS that there are at least. `there`:
 * kinds that the server has.
 */
export function fixturesOf(
  job: TrainingJob,
  schedulers: number,
  start: Beginning,
  leastPs: number,
  there: ReadonlySet<string>,
  operatorNamespace = job.metadata.namespace ?? '',
): ObjectManifest[] {
  const policies = job.spec.networkPolicy.mode === 'Job' ? [networkPolicyOf(job, operatorNamespace)] : [];
  const own = [serviceOf(job), schedulerOf(job, schedulers, start), budgetOf(job, leastPs)];
  const all = [...own, ...policies, ...extrasOf(job, there)];
  return all.map(digested);
}

/** The object with a digest of itself. */
export function digested(object: ObjectManifest): ObjectManifest {
  const digest = createHash('sha256').update(JSON.stringify(object)).digest('hex').slice(0, 16);
  const annotations = { ...object.metadata.annotations, [APPLIED]: digest };
  return { ...object, metadata: { ...object.metadata, annotations } };
}

/** The Pod that the controller of StatefulSets makes of one: nobody but its events says why it cannot. */
export function firstPodOf({ metadata, spec }: ObjectManifest): ObjectManifest {
  const { template, volumeClaimTemplates = [] } = spec as {
    template: { metadata: Meta; spec: PodSpec };
    volumeClaimTemplates?: { metadata: { name: string } }[];
  };
  const name = `${metadata.name}-0`;
  const volumes = volumeClaimTemplates.map(({ metadata: { name: volume } }) => ({
    ...{ name: volume, persistentVolumeClaim: { claimName: `${volume}-${name}` } },
  }));
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { ...template.metadata, name, namespace: metadata.namespace ?? '' },
    spec: { ...template.spec, volumes: [...(template.spec.volumes ?? []), ...volumes] },
  };
}

/** Whether both are of one kind of one API: several have a PodGroup, or a Workload. */
export const sameKind = (one: KubeObject, other: KubeObject): boolean =>
  one.kind === other.kind && one.apiVersion === other.apiVersion;

const findIn = (there: readonly KubeObject[], wanted: ObjectManifest): KubeObject | undefined =>
  there.find((one) => sameKind(one, wanted) && one.metadata.name === wanted.metadata.name);

/** Kinds of which an edit is undone. Software of others adds to its own kinds what it likes. */
const KEPT: ReadonlySet<string> = new Set([
  ...['Service', 'StatefulSet', 'PodDisruptionBudget', 'NetworkPolicy'],
]);

/**
 * Whether somebody has edited the object that was applied from `wanted`. Of a StatefulSet only its count is
 * looked at: the server writes quantities in another way, and an edited template reaches no Pod by itself.
 * The ports of a Service without an address mean nothing, and an apply would not take those of others away.
 */
export function wasEdited(wanted: ObjectManifest, there: readonly KubeObject[]): boolean {
  const found = findIn(there, wanted) as ObjectManifest | undefined;
  if (!found || !KEPT.has(wanted.kind)) return false;
  const { replicas, ports: _, ...spec } = wanted.spec as Record<string, unknown>;
  return !includesValue(found.spec, wanted.kind === 'StatefulSet' ? { replicas } : spec);
}

/** Whether the object that is there was applied from `wanted`. */
export function sameAs(wanted: ObjectManifest, there: readonly KubeObject[]): boolean {
  const found = findIn(there, wanted);
  return found?.metadata.annotations?.[APPLIED] === wanted.metadata.annotations?.[APPLIED];
}
