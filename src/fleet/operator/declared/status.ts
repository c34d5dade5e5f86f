/** Status of a TrainingJob. */
import { choice, flag, integer, list, map, number, object, required, text, time } from '../schema.js';

const CONDITION = object('', {
  type: required(text('')),
  status: required(choice('', ['True', 'False', 'Unknown'])),
  reason: text(''),
  message: text(''),
  lastTransitionTime: time(''),
  observedGeneration: integer('', 0),
});

export const STATUS = object('The job as it runs.', {
  phase: choice('State in one word.', ['Pending', 'Running', 'Scaling', 'Suspended', 'Succeeded', 'Failed']),
  reason: text('Why it is stuck, or why it has failed, in one word.'),
  observedGeneration: integer('Generation of the spec that this tells of.', 0),
  startTime: time('When the operator began, or began again after the job was suspended.'),
  startPs: integer('PS that the job began with.', 1),
  startCheckpoint: object('Plan of checkpoints that the job began with. Later it is asked for changes.', {
    url: text(''),
    everySeconds: integer('', 0),
    keep: integer('', 1),
  }),
  sizePs: integer('PS that it has, or had before it began to scale.', 1),
  life: integer('Number of its life: 1, and one more each time that it goes on after it was suspended.', 1),
  restore: text('Place of the checkpoint that this life began with.'),
  formed: flag('True: this life has formed once. From then on it may have something to lose.'),
  guarded: flag('True: the scheduler of this life is told so, and begins nothing anew without its state.'),
  suspended: object(
    'Checkpoint with which a suspended job goes on. Without a number it has trained nothing.',
    {
      place: required(text('')),
      checkpoint: integer('Number of the checkpoint. A newer one of the place serves, too.', 0),
    },
  ),
  completionTime: time('When the job ended.'),
  restartCount: integer('Pods that failed and were replaced.', 0),
  restarts: object('Pods that failed and were replaced, by role.', {
    ps: required(integer('', 0)),
    worker: required(integer('', 0)),
  }),
  lastHeard: time(
    'When the job answered last. While it answers this is at most some minutes old, and else it is exact.',
  ),
  redundancy: text('Redundancy as the job reports it: forming, full, recovering, degraded or lost.'),
  ps: text('PS that serve, of those that are wanted.'),
  workers: text('Workers that are ready, of those that are wanted.'),
  workersActive: integer('Worker Pods that have not ended.', 0),
  workerSelector: text('Selector of the Pods of workers.'),
  replicaStatuses: map(
    'Numbers of Pods by role.',
    object('', {
      active: required(integer('Pods that have not ended.', 0)),
      ready: required(integer('Pods that serve.', 0)),
      succeeded: required(integer('', 0)),
      failed: required(integer('', 0)),
    }),
  ),
  currentScaler: text('Reason to scale: a ScaleOut, a ScaleIn, or "edit" of its own counts.'),
  targetPs: list('Names of PS Pods that stay when it has scaled, without those still to be made.', text('')),
  change: object('The newest change that the job tells of.', {
    id: required(integer('Number that the job gave it.', 0)),
    kind: required(text('scale, drain, rebalance or join.')),
    from: required(integer('PS before.', 0)),
    to: required(integer('PS afterwards.', 0)),
    state: required(text('running, done or cancelled.')),
    reason: text('Why it waits, or why it was cancelled.'),
    shardsMoved: required(integer('', 0)),
    shardsLeft: required(integer('Shards that are still to move, those that move now included.', 0)),
    bytesMoved: required(integer('', 0)),
  }),
  currentPs: list('Names of Pods that have not ended.', text('')),
  currentWorkers: list('Names of Pods that have not ended.', text('')),
  nextIndex: object('Index of the next Pod by role. No index is used twice.', {
    ps: required(integer('', 0)),
    worker: required(integer('', 0)),
  }),
  making: object('Indices of Pods that are about to be made, by role: noted before they are.', {
    ps: list('', integer('', 0)),
    worker: list('', integer('', 0)),
  }),
  failedPods: list('Failed Pods that count in restartCount, and are still there.', text('')),
  excusedPods: list(
    'Failed workers that do not count, and are still there: the job refused them, or had no scheduler.',
    text(''),
  ),
  workerEnds: map(
    'How often the process of a worker has ended in its Pod, by name of the Pod.',
    object('', {
      seen: required(integer('', 0)),
      excused: required(integer('Those that do not count.', 0)),
    }),
  ),
  memory: object('Memory limit of Pods that are made from now on, where some were killed for want of it.', {
    ps: text(''),
    worker: text(''),
  }),
  progress: object('Progress of the training.', {
    percentage: required(integer('Ranges of samples that are finished, of all epochs.', 0, 100)),
    redone: required(integer('Samples of batches that were begun again after a worker was lost.', 0)),
    complete: required(flag('All samples are trained.')),
    samplesPerSecond: integer('Samples per second in the last quarter of a minute or so.', 0),
    estimatedRemainingSeconds: integer('Seconds that are left at that pace.', 0),
    goodput: integer('Percent of the seconds of workers that were in batches that counted.', 0, 100),
  }),
  results: object('What the training came to, when it has ended.', {
    auc: number('Area under the ROC curve on the test data of the worker that ended last.'),
    logloss: number('Mean log loss on the same data.'),
    trainLoss: number('Mean loss over the samples of the workers that told of theirs.'),
    samples: integer('Samples that were trained, of all epochs. Each counts once.', 0),
    redone: integer('Samples of batches that were begun again after a worker was lost. They count once.', 0),
    lost: integer('Samples that an epoch lacks and another one has. Absent: not all are trained.', 0),
    setAside: integer('Ranges of samples that failed again and again, and were left out.', 0),
    goodput: integer('Percent of the seconds of workers that were in batches that counted.', 0, 100),
    durationSeconds: integer('Seconds from startTime to completionTime.', 0),
    digest: text('SHA-256 of all rows of all tables, if spec.results.digest asks for it.'),
    rows: integer('Rows that the digest covers.', 0),
    configMap: text('Name of the ConfigMap with the whole report, when it is there.'),
    reportRefused: text('Why that ConfigMap was not taken. It is tried again.'),
    message: text('What is missing, and why.'),
  }),
  lastCheckpoint: object('The newest complete checkpoint that the scheduler knows.', {
    number: required(integer('', 0)),
    rows: required(integer('', 0)),
    bytes: required(integer('', 0)),
  }),
  conditions: list('', CONDITION, {
    'x-kubernetes-list-type': 'map',
    'x-kubernetes-list-map-keys': ['type'],
  }),
});
