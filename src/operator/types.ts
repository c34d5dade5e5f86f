/**
 * The custom resources of group kintsugi.dev, declared once. deploy/crds is written from them
 * (test/operator/crds.test.ts), and `TrainingJob` is their type.
 */
import type { Condition, KubeObject, PodTemplate } from './objects.js';
import {
  anything,
  choice,
  defaulted,
  flag,
  type Holds,
  immutable,
  integer,
  list,
  map,
  object,
  required,
  text,
  time,
} from './schema.js';

export const GROUP = 'kintsugi.dev';
export const VERSION = 'v1alpha1';

const ROLE = {
  command: list(
    'What its container runs instead of kintsugi. It finds the job by KINTSUGI_SCHEDULER.',
    text(''),
  ),
  args: list('Flags of its kintsugi command, behind those that the operator gives.', text('')),
  template: anything<PodTemplate>(
    'A PodTemplateSpec. Its container "kintsugi" is the one that the operator completes.',
  ),
};
const COUNTS = {
  minReplicas: integer('Never fewer.', 1, 4096),
  maxReplicas: integer('Never more.', 1, 4096),
};

const SCHEDULER_SPEC = object('The scheduler: who is alive, who holds what.', {
  args: ROLE.args,
  template: ROLE.template,
});
const PS_SPEC = object('Parameter servers.', {
  replicas: integer('PS that serve. Default: k+r+1, so that one of them can be drained.', 1, 4096),
  ...COUNTS,
  args: ROLE.args,
  template: ROLE.template,
});
const WORKER_SPEC = object('Workers. Each trains its share of the samples, and exits with 0 at the end.', {
  replicas: defaulted(integer('Workers that train.', 0, 4096), 1),
  minReplicas: { ...COUNTS.minReplicas, schema: { ...COUNTS.minReplicas.schema, minimum: 0 } },
  maxReplicas: COUNTS.maxReplicas,
  ...ROLE,
});

const SPEC = object(
  'What is to run.',
  {
    image: required(text('Image of all roles.', { minLength: 1 })),
    imagePullPolicy: choice('As of containers.', ['Always', 'IfNotPresent', 'Never']),
    code: immutable(
      defaulted(
        object('The code of the embedding tables.', {
          k: defaulted(integer('Data shards of a group.', 1, 32), 4),
          r: defaulted(integer('Parities of a group: so many PS may be lost at once.', 0, 8), 1),
        }),
        {},
      ),
      'the code of a job is fixed',
    ),
    groups: immutable(
      integer('Groups of the embedding pool. Default: by the number of PS.', 1),
      'groups are fixed',
    ),
    failureDomain: immutable(
      defaulted(
        choice('Members of a group go to different ones. "zone" needs Kubernetes 1.35.', ['node', 'zone']),
        'node',
      ),
      'the failure domain of a job is fixed',
    ),
    drainTimeoutSeconds: defaulted(
      integer('A PS that is told to end hands over what it holds in it.', 1, 3600),
      30,
    ),
    replicaSpecs: required(
      object('The roles.', {
        scheduler: defaulted(SCHEDULER_SPEC, {}),
        ps: defaulted(PS_SPEC, {}),
        worker: required(WORKER_SPEC),
      }),
    ),
    scheduler: defaulted(
      object('Where the scheduler keeps the job.', {
        store: defaulted(
          object('A volume of its own.', {
            size: defaulted(text('Of its claim.'), '1Gi'),
            storageClassName: text('Of its claim. Default: that of the cluster.'),
          }),
          {},
        ),
      }),
      {},
    ),
    checkpoint: object('Checkpoints of the job.', {
      url: required(
        text('A directory that PS and scheduler share, or s3://bucket/prefix.', { minLength: 1 }),
      ),
      everySeconds: defaulted(integer('0: only when it is asked for, and at the end.', 0), 300),
      keep: defaulted(integer('So many are kept.', 1), 3),
    }),
    auth: object('Who may talk to the job.', {
      secretName: required(
        text('Secret with "token" and "nodeToken". Default: one that the operator makes.', { minLength: 1 }),
      ),
    }),
    runPolicy: defaulted(
      object('What becomes of it.', {
        cleanPodPolicy: defaulted(
          choice('Pods that go when the job has ended: those that still run, all, or none.', [
            'None',
            'Running',
            'All',
          ]),
          'Running',
        ),
        backoffLimit: defaulted(integer('Pods that may fail before the job does.', 0), 6),
        activeDeadlineSeconds: integer('The job fails when it has not ended so long after its start.', 1),
        ttlSecondsAfterFinished: integer('The job is deleted so long after its end.', 0),
      }),
      {},
    ),
  },
  [
    ...(['minReplicas', 'replicas'] as const).map((count) => {
      const at = `self.replicaSpecs.ps.${count}`;
      return {
        rule: `!has(${at}) || ${at} >= self.code.k + self.code.r`,
        message: `ps.${count} must be at least k+r: a group needs so many PS`,
      };
    }),
    ...(['ps', 'worker'] as const).flatMap((role) => {
      const at = `self.replicaSpecs.${role}`;
      return [
        {
          rule: `!has(${at}.replicas) || !has(${at}.minReplicas) || ${at}.minReplicas <= ${at}.replicas`,
          message: `${role}.replicas must be at least ${role}.minReplicas`,
        },
        {
          rule: `!has(${at}.replicas) || !has(${at}.maxReplicas) || ${at}.replicas <= ${at}.maxReplicas`,
          message: `${role}.replicas must be at most ${role}.maxReplicas`,
        },
      ];
    }),
  ],
);

const CONDITION = object('', {
  type: required(text('')),
  status: required(choice('', ['True', 'False', 'Unknown'])),
  reason: text(''),
  message: text(''),
  lastTransitionTime: time(''),
});

const STATUS = object('What runs.', {
  phase: choice('In one word.', ['Pending', 'Running', 'Succeeded', 'Failed']),
  observedGeneration: integer('Of the spec that this tells of.', 0),
  startTime: time('The operator began.'),
  startPs: integer('PS that the job began with.', 1),
  completionTime: time('The job ended.'),
  restartCount: integer('Pods that failed and were replaced.', 0),
  redundancy: text('As the job says it: forming, full, recovering, degraded or lost.'),
  ps: text('PS that serve, of those that are wanted.'),
  workers: text('Workers that are ready, of those that are wanted.'),
  workersActive: integer('Worker Pods that have not ended.', 0),
  workerSelector: text('Selector of the Pods of workers.'),
  replicaStatuses: map(
    'By role.',
    object('', {
      active: required(integer('Pods that have not ended.', 0)),
      ready: required(integer('Those of them that serve.', 0)),
      succeeded: required(integer('', 0)),
      failed: required(integer('', 0)),
    }),
  ),
  currentPs: list('Names of Pods that have not ended.', text('')),
  currentWorkers: list('Names of Pods that have not ended.', text('')),
  nextIndex: object('No index is used twice.', {
    ps: required(integer('', 0)),
    worker: required(integer('', 0)),
  }),
  failedPods: list('Those that count in restartCount, and are still there.', text('')),
  progress: object('Of the samples.', {
    percentage: required(integer('Ranges of samples that are finished, of all epochs.', 0, 100)),
    redone: required(integer('Samples of batches that were begun again after a worker was lost.', 0)),
    complete: required(flag('All samples are trained.')),
  }),
  lastCheckpoint: object('The newest complete one that the scheduler knows.', {
    number: required(integer('', 0)),
    rows: required(integer('', 0)),
    bytes: required(integer('', 0)),
  }),
  conditions: list('', CONDITION, {
    'x-kubernetes-list-type': 'map',
    'x-kubernetes-list-map-keys': ['type'],
  }),
});

export type TrainingJobSpec = Holds<typeof SPEC>;
export type TrainingJobStatus = Omit<Holds<typeof STATUS>, 'conditions'> & { conditions?: Condition[] };
export type Phase = NonNullable<TrainingJobStatus['phase']>;

export interface TrainingJob extends KubeObject {
  spec: TrainingJobSpec;
  status?: TrainingJobStatus;
}

interface Kind {
  kind: string;
  plural: string;
  singular: string;
  shortNames: string[];
  description: string;
  spec: typeof SPEC;
  status: typeof STATUS;
  columns: { name: string; type: string; jsonPath: string; priority?: number }[];
  scale?: { specReplicasPath: string; statusReplicasPath: string; labelSelectorPath: string };
}

export const TRAINING_JOB: Kind = {
  kind: 'TrainingJob',
  plural: 'trainingjobs',
  singular: 'trainingjob',
  shortNames: ['tj'],
  description: 'A training job: a scheduler, parameter servers and workers.',
  spec: SPEC,
  status: STATUS,
  columns: [
    { name: 'Phase', type: 'string', jsonPath: '.status.phase' },
    { name: 'PS', type: 'string', jsonPath: '.status.ps' },
    { name: 'Workers', type: 'string', jsonPath: '.status.workers' },
    { name: 'Redundancy', type: 'string', jsonPath: '.status.redundancy' },
    { name: 'Progress', type: 'integer', jsonPath: '.status.progress.percentage' },
    { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' },
  ],
  scale: {
    specReplicasPath: '.spec.replicaSpecs.worker.replicas',
    statusReplicasPath: '.status.workersActive',
    labelSelectorPath: '.status.workerSelector',
  },
};
