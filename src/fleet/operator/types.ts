/**
 * The custom resources of group kintsugi.dev, declared once (declared/). deploy/crds is written from them
 * (test/fleet/operator/crds.test.ts), and `TrainingJob` is their type.
 */
import { SCALE_IN_SPEC, SCALE_IN_STATUS, SCALE_OUT_SPEC, SCALE_OUT_STATUS } from './declared/scalers.js';
import { SPEC } from './declared/spec.js';
import { STATUS } from './declared/status.js';
import type { KubeObject, ObjectCondition } from './objects.js';
import { type Field, type Holds, isUnchanged, type SchemaRule } from './schema.js';

export { NOT_OF_TEMPLATE, RESERVED } from './declared/template.js';

export const GROUP = 'kintsugi.dev';
export const VERSION = 'v1alpha1';

export type TrainingJobSpec = Holds<typeof SPEC>;
export type TrainingJobStatus = Omit<Holds<typeof STATUS>, 'conditions'> & { conditions?: ObjectCondition[] };
export type JobPhase = NonNullable<TrainingJobStatus['phase']>;

export interface TrainingJob extends KubeObject {
  spec: TrainingJobSpec;
  status?: TrainingJobStatus;
}

export type ScaleOutSpec = Holds<typeof SCALE_OUT_SPEC>;
export type ScaleInSpec = Holds<typeof SCALE_IN_SPEC>;
export type ScalerStatus = Holds<typeof SCALE_OUT_STATUS> | Holds<typeof SCALE_IN_STATUS>;

interface ScalerOf<K extends string, S> extends KubeObject {
  kind: K;
  spec: S;
  status?: ScalerStatus;
}

export type ScalerObject = ScalerOf<'ScaleOut', ScaleOutSpec> | ScalerOf<'ScaleIn', ScaleInSpec>;

/**
 * Longest name of a job. The longest label that is made of it is the revision of the StatefulSet of its
 * scheduler: NAME-scheduler-HASH, with a hash of 10 characters. A label has at most 63.
 */
export const LONGEST_JOB_NAME = 63 - '-scheduler-'.length - 10;

/** Declaration of a custom resource. */
export interface DeclaredKind {
  kind: string;
  plural: string;
  singular: string;
  shortNames: string[];
  description: string;
  spec: Field<unknown>;
  status: Field<unknown>;
  /** Rules about the whole object. Of its metadata they may only name `name` and `generateName`. */
  rules?: readonly SchemaRule[];
  columns: { name: string; type: string; jsonPath: string; priority?: number }[];
  scale?: { specReplicasPath: string; statusReplicasPath: string; labelSelectorPath: string };
}

export const TRAINING_JOB: DeclaredKind = {
  kind: 'TrainingJob',
  plural: 'trainingjobs',
  singular: 'trainingjob',
  shortNames: ['tj'],
  description: 'A training job: a scheduler, parameter servers and workers.',
  spec: SPEC,
  status: STATUS,
  rules: [
    {
      rule: "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
      message:
        'the name of a job has lower case letters, digits and "-", begins with a letter and does not end ' +
        'with "-": the address of its scheduler is made of it',
    },
    {
      rule: `size(self.metadata.name) <= ${LONGEST_JOB_NAME}`,
      message: `the name of a job has at most ${LONGEST_JOB_NAME} characters: labels are made of it`,
    },
    {
      // Processes read the tokens when they begin, and a suspended job has none.
      rule:
        `(${isUnchanged('auth', 'self.spec', 'oldSelf.spec')}) || ` +
        "(has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase == 'Suspended')",
      message: 'auth of a job is fixed while it is not Suspended: its processes know the tokens of before',
    },
  ],
  columns: [
    { name: 'Phase', type: 'string', jsonPath: '.status.phase' },
    { name: 'Reason', type: 'string', jsonPath: '.status.reason' },
    { name: 'PS', type: 'string', jsonPath: '.status.ps' },
    { name: 'Workers', type: 'string', jsonPath: '.status.workers' },
    { name: 'Redundancy', type: 'string', jsonPath: '.status.redundancy' },
    { name: 'Progress', type: 'integer', jsonPath: '.status.progress.percentage' },
    { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' },
    { name: 'AUC', type: 'number', jsonPath: '.status.results.auc', priority: 1 },
    { name: 'Loss', type: 'number', jsonPath: '.status.results.trainLoss', priority: 1 },
    { name: 'Samples', type: 'integer', jsonPath: '.status.results.samples', priority: 1 },
    { name: 'Seconds', type: 'integer', jsonPath: '.status.results.durationSeconds', priority: 1 },
  ],
  scale: {
    specReplicasPath: '.spec.replicaSpecs.worker.replicas',
    statusReplicasPath: '.status.workersActive',
    labelSelectorPath: '.status.workerSelector',
  },
};

const SCALER_COLUMNS = [
  { name: 'Phase', type: 'string', jsonPath: '.status.phase' },
  { name: 'Job', type: 'string', jsonPath: '.spec.selector.name' },
  { name: 'Role', type: 'string', jsonPath: '.spec.role' },
  { name: 'From', type: 'integer', jsonPath: '.status.from' },
  { name: 'To', type: 'integer', jsonPath: '.status.to' },
  { name: 'Reason', type: 'string', jsonPath: '.status.reason' },
  { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' },
  { name: 'Message', type: 'string', jsonPath: '.status.message', priority: 1 },
];

export const SCALE_OUT: DeclaredKind = {
  ...{ kind: 'ScaleOut', plural: 'scaleouts', singular: 'scaleout', shortNames: [] },
  description: 'PS or workers that a training job is to get.',
  ...{ spec: SCALE_OUT_SPEC, status: SCALE_OUT_STATUS, columns: SCALER_COLUMNS },
};

export const SCALE_IN: DeclaredKind = {
  ...{ kind: 'ScaleIn', plural: 'scaleins', singular: 'scalein', shortNames: [] },
  description: 'PS or workers that a training job is to give up.',
  ...{ spec: SCALE_IN_SPEC, status: SCALE_IN_STATUS, columns: SCALER_COLUMNS },
};

export const KINDS: readonly DeclaredKind[] = [TRAINING_JOB, SCALE_OUT, SCALE_IN];
