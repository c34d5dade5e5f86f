/** What is told of a job. */
import { choice, flag, integer, list, map, object, required, text, time } from '../schema.js';

const CONDITION = object('', {
  type: required(text('')),
  status: required(choice('', ['True', 'False', 'Unknown'])),
  reason: text(''),
  message: text(''),
  lastTransitionTime: time(''),
});

export const STATUS = object('What runs.', {
  phase: choice('In one word.', ['Pending', 'Running', 'Scaling', 'Suspended', 'Succeeded', 'Failed']),
  observedGeneration: integer('Of the spec that this tells of.', 0),
  startTime: time('The operator began, or began again after the job was suspended.'),
  startPs: integer('PS that the job began with.', 1),
  startCheckpoint: object('Its checkpoints as it began. Later the job is asked for changes.', {
    url: text(''),
    everySeconds: integer('', 0),
    keep: integer('', 1),
  }),
  sizePs: integer('PS that it has, or had before it began to scale.', 1),
  life: integer('1, and one more each time that it goes on after it was suspended.', 1),
  restore: text('Place of the checkpoint that this life began with.'),
  suspended: object('Saved for the time when it goes on. It is not given up before.', {
    place: required(text('')),
    checkpoint: integer('At least this one.', 0),
  }),
  completionTime: time('The job ended.'),
  restartCount: integer('Pods that failed and were replaced.', 0),
  restarts: object('Of them, by role.', {
    ps: required(integer('', 0)),
    worker: required(integer('', 0)),
  }),
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
  currentScaler: text('What it scales by: a ScaleOut, a ScaleIn, or "edit" of its own counts.'),
  targetPs: list(
    'Names of Pods that are there when it has scaled; those still to be made are not.',
    text(''),
  ),
  change: object('The newest change that the job tells of.', {
    id: required(integer('As the job numbers it.', 0)),
    kind: required(text('scale, drain, rebalance or join.')),
    from: required(integer('PS before.', 0)),
    to: required(integer('PS afterwards.', 0)),
    state: required(text('running, done or cancelled.')),
    reason: text('What it waits for, or why it was cancelled.'),
    shardsMoved: required(integer('', 0)),
    shardsLeft: required(integer('Those that move, too.', 0)),
    bytesMoved: required(integer('', 0)),
  }),
  currentPs: list('Names of Pods that have not ended.', text('')),
  currentWorkers: list('Names of Pods that have not ended.', text('')),
  nextIndex: object('No index is used twice.', {
    ps: required(integer('', 0)),
    worker: required(integer('', 0)),
  }),
  failedPods: list('Those that count in restartCount, and are still there.', text('')),
  memory: object('Memory limit of Pods that are made from now on, where some were killed for want of it.', {
    ps: text(''),
    worker: text(''),
  }),
  progress: object('Of the samples.', {
    percentage: required(integer('Ranges of samples that are finished, of all epochs.', 0, 100)),
    redone: required(integer('Samples of batches that were begun again after a worker was lost.', 0)),
    complete: required(flag('All samples are trained.')),
    samplesPerSecond: integer('Of the last quarter of a minute or so.', 0),
    estimatedRemainingSeconds: integer('At that pace.', 0),
    goodput: integer('Percent of the seconds of workers that were in batches that counted.', 0, 100),
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
