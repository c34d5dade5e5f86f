/** What a job has once: Service, StatefulSet of the scheduler, disruption budget, Secret. */
import { createHash } from 'node:crypto';
import type { KubeObject, Manifest } from '../objects.js';
import type { TrainingJob } from '../types.js';
import {
  APPLIED,
  labelsOf,
  metaOf,
  psName,
  SCHEDULER_PORT,
  schedulerName,
  secretName,
  selectorOf,
  wantedPs,
} from './names.js';
import { podMeta, podSpecOf, STATE_VOLUME } from './pods.js';

/** The address of the scheduler. It leads there before the scheduler is ready: PS wait for it. */
function serviceOf(job: TrainingJob): Manifest {
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
 * A StatefulSet, because two processes must never write the same volume: it starts none while the machine of
 * the one before is only out of reach.
 */
function schedulerOf(job: TrainingJob, replicas: number, startPs: number): Manifest {
  const name = schedulerName(job);
  const labels = selectorOf(job, 'scheduler');
  const { name: _, ...metadata } = podMeta(job, 'scheduler', { name, labels: labelsOf(job, 'scheduler') });
  const { size, storageClassName } = job.spec.scheduler.store;
  return {
    apiVersion: 'apps/v1',
    kind: 'StatefulSet',
    metadata: metaOf(job, name),
    spec: {
      ...{ replicas, serviceName: name, selector: { matchLabels: labels } },
      persistentVolumeClaimRetentionPolicy: { whenDeleted: 'Delete', whenScaled: 'Retain' },
      template: {
        metadata,
        spec: podSpecOf(job, 'scheduler', labels, startPs),
      },
      volumeClaimTemplates: [
        {
          metadata: { name: STATE_VOLUME },
          spec: {
            accessModes: ['ReadWriteOnce'],
            resources: { requests: { storage: size } },
            ...(storageClassName === undefined ? {} : { storageClassName }),
          },
        },
      ],
    },
  };
}

/** Evictions take at most r PS at once. */
function budgetOf(job: TrainingJob): Manifest {
  return {
    apiVersion: 'policy/v1',
    kind: 'PodDisruptionBudget',
    metadata: metaOf(job, psName(job)),
    spec: {
      minAvailable: Math.max(0, wantedPs(job) - job.spec.code.r),
      selector: { matchLabels: selectorOf(job, 'ps') },
    },
  };
}

/** Values are filled in when it is made. */
export function secretOf(job: TrainingJob): Manifest {
  return { apiVersion: 'v1', kind: 'Secret', metadata: metaOf(job, secretName(job)), type: 'Opaque' };
}

/**
 * Objects of the job, without Pods and Secret. `schedulers`: 0 when it has ended. `startPs`: PS that it began
 * with; another number would only start its scheduler again.
 */
export function fixturesOf(job: TrainingJob, schedulers: number, startPs: number): Manifest[] {
  return [serviceOf(job), schedulerOf(job, schedulers, startPs), budgetOf(job)].map((object) => {
    const digest = createHash('sha256').update(JSON.stringify(object)).digest('hex').slice(0, 16);
    const metadata = { ...object.metadata, annotations: { [APPLIED]: digest } };
    return { ...object, metadata };
  });
}

/** That what is there was applied from this. */
export function sameAs(wanted: Manifest, there: readonly KubeObject[]): boolean {
  const found = there.find((one) => one.kind === wanted.kind && one.metadata.name === wanted.metadata.name);
  return found?.metadata.annotations?.[APPLIED] === wanted.metadata.annotations?.[APPLIED];
}
