/** What users ask for when a job is to grow or shrink once, and what becomes of it. */
import { choice, defaulted, integer, list, object, required, text, time } from '../schema.js';

const SELECTOR = required(
  object('The job.', {
    name: required(text('Of a TrainingJob in the same namespace.', { minLength: 1, maxLength: 253 })),
  }),
);
const ROLE = required(choice('Who is to be more or fewer.', ['ps', 'worker']));
const FIXED = {
  rule: 'self == oldSelf',
  message: 'what was asked for is fixed: delete it, and make another',
};
const LIMITS = {
  timeoutSeconds: defaulted(integer('Without any progress for so long it is taken back.', 1, 86_400), 60),
  backoffLimit: defaulted(integer('It is tried again so often before that.', 0, 100), 0),
};

export const SCALE_OUT_SPEC = object(
  'Adds to a job.',
  {
    selector: SELECTOR,
    role: ROLE,
    toAdd: required(object('What is added.', { count: required(integer('Pods.', 1, 4096)) })),
    ...LIMITS,
  },
  [FIXED],
);

export const SCALE_IN_SPEC = object(
  'Takes from a job.',
  {
    selector: SELECTOR,
    role: ROLE,
    toDelete: required(
      object(
        'What goes.',
        {
          count: integer('So many Pods, the newest.', 1, 4096),
          podNames: list('These Pods.', text('', { minLength: 1, maxLength: 253 }), {
            maxItems: 256,
            'x-kubernetes-list-type': 'set',
          }),
        },
        [
          {
            rule: 'has(self.count) != (has(self.podNames) && size(self.podNames) > 0)',
            message: 'toDelete has either a count or podNames',
          },
        ],
      ),
    ),
    ...LIMITS,
  },
  [FIXED],
);

const STATUS_FIELDS = {
  reason: text('In one word, why it waits or failed.'),
  message: text('The same for a person.'),
  from: integer('PS or workers of the job before.', 0),
  to: integer('And afterwards.', 0),
  attempt: integer('Attempts that were taken back before this one.', 0),
  changes: list('Of this attempt, as the job numbers them.', integer('', 0)),
  ready: integer('The most of them that were ready at once: more is progress.', 0),
  progressTime: time('Something came further.'),
  startTime: time('It began.'),
  completionTime: time('It ended.'),
};

export const SCALE_OUT_STATUS = object('What becomes of it.', {
  phase: choice('In one word. Draining: it is taken back.', [
    'Pending',
    'Scaling',
    'Draining',
    'ScaleSucceeded',
    'ScaleFailed',
  ]),
  ...STATUS_FIELDS,
});

export const SCALE_IN_STATUS = object('What becomes of it.', {
  phase: choice('In one word. Deleting: the Pods hold nothing any more. Scaling: it is taken back.', [
    'Pending',
    'Draining',
    'Deleting',
    'Scaling',
    'ScaleSucceeded',
    'ScaleFailed',
  ]),
  ...STATUS_FIELDS,
});
