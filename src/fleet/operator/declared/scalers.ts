/** ScaleOut and ScaleIn, by which a job grows or shrinks once: what users write, and their status. */
import { choice, defaulted, integer, list, object, required, text, time } from '../schema.js';

const SELECTOR = required(
  object('The job.', {
    name: required(text('Name of a TrainingJob in the same namespace.', { minLength: 1, maxLength: 253 })),
  }),
);
const ROLE = required(choice('Role that gets more or fewer Pods.', ['ps', 'worker']));
const FIXED = {
  rule: 'self == oldSelf',
  message: 'what was asked for is fixed: delete it, and make another',
};
const LIMITS = {
  timeoutSeconds: defaulted(
    integer('Seconds without any progress after which it is taken back.', 1, 86_400),
    60,
  ),
  backoffLimit: defaulted(integer('Further attempts before it is taken back.', 0, 100), 0),
};

export const SCALE_OUT_SPEC = object(
  'Adds to a job.',
  {
    selector: SELECTOR,
    role: ROLE,
    toAdd: required(object('Pods that are added.', { count: required(integer('Number of Pods.', 1, 4096)) })),
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
        'Pods that go.',
        {
          count: integer('Number of Pods. The newest go.', 1, 4096),
          podNames: list('Names of Pods.', text('', { minLength: 1, maxLength: 253 }), {
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
  reason: text('Why it waits or failed, in one word.'),
  message: text('The same for a person.'),
  from: integer('PS or workers of the job before.', 0),
  to: integer('PS or workers of the job afterwards.', 0),
  attempt: integer('Attempts that were taken back before this one.', 0),
  changes: list('Changes of this attempt, as the job numbers them.', integer('', 0)),
  ready: integer('The most PS or workers that were ready at once: more is progress.', 0),
  progressTime: time('When something came further.'),
  startTime: time('When it began.'),
  completionTime: time('When it ended.'),
};

export const SCALE_OUT_STATUS = object('How far it has come.', {
  phase: choice('State in one word. Draining: it is taken back.', [
    'Pending',
    'Scaling',
    'Draining',
    'ScaleSucceeded',
    'ScaleFailed',
  ]),
  ...STATUS_FIELDS,
});

export const SCALE_IN_STATUS = object('How far it has come.', {
  phase: choice('State in one word. Deleting: the Pods hold nothing any more. Scaling: it is taken back.', [
    'Pending',
    'Draining',
    'Deleting',
    'Scaling',
    'ScaleSucceeded',
    'ScaleFailed',
  ]),
  ...STATUS_FIELDS,
});
