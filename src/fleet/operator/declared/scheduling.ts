/** Fields for the software that queues jobs and places Pods. */
import { choice, integer, object, text } from '../schema.js';

export const SCHEDULING_POLICY = object(
  'Fields for the software that places Pods.',
  {
    priorityClass: text('Name of the PriorityClass of all its Pods.'),
    schedulerName: text('Scheduler of all its Pods. Default: that of the gang, or that of the cluster.'),
    queue: text('Queue of Volcano or KAI, or one of Kueue to which each Pod is given by itself.', {
      ...{ minLength: 1, maxLength: 63 },
    }),
    gang: choice('Places the Pods of the job together. "kubernetes": the PodGroup of Kubernetes 1.36.', [
      'volcano',
      'coscheduling',
      'kai',
      'kubernetes',
    ]),
    minAvailable: integer(
      'None of its Pods is placed before the gang has room for so many. Default: its schedulers, k+r PS ' +
        'and a worker, or minReplicas of these roles.',
      1,
      8192,
    ),
    admission: choice(
      'Who tells Kueue of a job with the label kueue.x-k8s.io/queue-name: "Operator", the default, or ' +
        '"External", another program, which sets suspend.',
      ['Operator', 'External'],
    ),
  },
  [
    {
      rule: '!has(self.minAvailable) || has(self.gang)',
      message: 'minAvailable needs gang: without a gang scheduler nobody holds Pods back',
    },
    {
      rule: "!has(self.minAvailable) || !has(self.gang) || self.gang != 'kai'",
      message: 'KAI groups the Pods of a TrainingJob itself, and takes no minAvailable',
    },
  ],
);
