/** Spec of a TrainingJob. */
import {
  choice,
  defaulted,
  flag,
  immutable,
  integer,
  list,
  map,
  object,
  open,
  required,
  text,
} from '../schema.js';
import { SCHEDULING_POLICY } from './scheduling.js';
import { TEMPLATE } from './template.js';

/** A quantity of more than nothing. */
const SIZE = '^([0-9]*[1-9][0-9]*(\\.[0-9]+)?|0?\\.[0-9]*[1-9][0-9]*)(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$';
const LONGEST_URL = 1024;

const ROLE = {
  command: list(
    'Command of the container in place of kintsugi. It finds the job by KINTSUGI_SCHEDULER.',
    text(''),
  ),
  args: list('Flags of the kintsugi command, after those that the operator gives.', text('')),
  template: TEMPLATE,
};
const restarts = (unless: string) => ({
  restartPolicy: choice(
    `What follows when a process fails. OnFailure: it begins again in its Pod. Never: the Pod has ` +
      `failed. Default: ` +
      `${unless}.`,
    ['Never', 'OnFailure'],
  ),
  restartCount: integer('Pods of the role that may fail before the job does, besides backoffLimit.', 0),
});
const COUNTS = {
  minReplicas: integer('Lower bound of the number of Pods.', 1, 4096),
  maxReplicas: integer('Upper bound of the number of Pods.', 1, 4096),
};

const SCHEDULER_SPEC = object('The scheduler: who is alive, who holds what.', ROLE);
const PS_SPEC = object('Parameter servers.', {
  replicas: integer(
    'PS that serve. Default: k+r+1, so that one of them can be drained, within the bounds.',
    ...([1, 4096] as const),
  ),
  ...COUNTS,
  ...ROLE,
  ...restarts('OnFailure'),
});
const WORKER_SPEC = object('Workers. Each trains its share of the samples, and exits with 0 at the end.', {
  replicas: defaulted(integer('Workers that train.', 0, 4096), 1),
  minReplicas: { ...COUNTS.minReplicas, schema: { ...COUNTS.minReplicas.schema, minimum: 0 } },
  maxReplicas: COUNTS.maxReplicas,
  ...ROLE,
  ...restarts('Never'),
});

const MOST = object('Limits of one container.', {
  memory: text('The most memory it may get. Without it none gets more than its template says.', {
    pattern: SIZE,
  }),
});

const AUTOSCALE = object(
  'The operator decides how many there are, between minReplicas and maxReplicas, by ScaleOut and ScaleIn.',
  {
    roles: defaulted(list('Roles that are scaled.', choice('', ['ps', 'worker']), { maxItems: 2 }), [
      'ps',
      'worker',
    ]),
    lookSeconds: defaulted(integer('Seconds from one look at the job to the next.', 1, 3600), 5),
    settleSeconds: defaulted(
      integer('Seconds after a decision in which no other one is made.', 1, 86_400),
      120,
    ),
    windowSeconds: defaulted(integer('Seconds that rates are taken over.', 2, 86_400), 180),
    retrySeconds: defaulted(
      integer('Seconds until the next try of more workers, after one that was taken back.', 1, 86_400),
      1800,
    ),
    budgetPerHour: defaulted(
      integer('The most decisions in an hour. Memory that runs out is exempt.', 1, 3600),
      20,
    ),
  },
);

export const SPEC = object(
  'The job as it is to run.',
  {
    image: required(text('Image of all roles.', { minLength: 1 })),
    imagePullPolicy: choice('Pull policy of the image, as containers have it.', [
      'Always',
      'IfNotPresent',
      'Never',
    ]),
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
        choice(
          'Members of a group go to different nodes or zones; with "zone/node" to different zones first, ' +
            'and to different nodes in each. Zones need Kubernetes 1.35.',
          ['node', 'zone', 'zone/node'],
        ),
        'node',
      ),
      'the failure domain of a job is fixed',
    ),
    drainTimeoutSeconds: defaulted(
      integer('Seconds in which a PS that is told to end hands over what it holds.', 1, 3600),
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
        foreignState: choice(
          'State of another job at the place of this one: it is refused, gone on with, or deleted to begin ' +
            'anew. Default: refuse.',
          ['refuse', 'adopt', 'discard'],
        ),
        store: immutable(
          defaulted(
            object(
              'A volume of its own, or etcd.',
              {
                size: defaulted(text('Size of its claim.', { pattern: SIZE }), '1Gi'),
                storageClassName: text('Storage class of its claim. Default: that of the cluster.'),
                claimName: text('A claim that is there already. It stays when the job is deleted.'),
                deletionPolicy: defaulted(
                  choice('What becomes of its own claim, or its keys in etcd, when the job is deleted.', [
                    'Delete',
                    'Retain',
                  ]),
                  'Delete',
                ),
                etcd: object('Several schedulers: one leads, and the others stand by.', {
                  url: required(
                    text('etcd://host:2379[,...]/prefix. Each job has a prefix of its own.', {
                      ...{ minLength: 1, maxLength: LONGEST_URL },
                      'x-kubernetes-validations': [
                        {
                          rule: "self.matches('^etcds?://([^@/]+@)?[^/@]+/+.*[^/].*$')",
                          message: 'etcd is etcd://HOST:2379[,...]/PREFIX, or etcds:// with TLS',
                        },
                      ],
                    }),
                  ),
                  schedulers: defaulted(integer('Schedulers that lead or stand by.', 1, 7), 2),
                }),
              },
              [
                {
                  rule: '!has(self.etcd) || !has(self.claimName)',
                  message: 'the job is kept in a claim or in etcd, not in both',
                },
              ],
            ),
            {},
          ),
          'the store of a job is fixed',
        ),
      }),
      {},
    ),
    checkpoint: object('Checkpoints of the job.', {
      url: required(
        text('A directory that PS and scheduler share, or s3://bucket/prefix.', {
          ...{ minLength: 1, maxLength: LONGEST_URL },
          'x-kubernetes-validations': [
            {
              rule: "self.matches('^(/|file:///|s3://[^/]+(/|$))')",
              message: 'a place is an absolute path of a directory, or s3://BUCKET/PREFIX',
            },
          ],
        }),
      ),
      everySeconds: defaulted(
        integer('Seconds between two checkpoints. 0: only when one is asked for, and at the end.', 0),
        300,
      ),
      keep: defaulted(integer('Checkpoints that are kept.', 1), 3),
      onSuspend: defaulted(
        flag('True: a checkpoint is made before the job is suspended. False: the newest there is serves.'),
        true,
      ),
    }),
    autoscale: AUTOSCALE,
    resourceLimits: object(
      'Pods that were killed for want of memory are replaced by ones with half as much more, up to these.',
      { ps: MOST, worker: MOST },
    ),
    networkPolicy: defaulted(
      object(
        'Who may reach its Pods, and whom they may reach.',
        {
          mode: defaulted(
            choice('"Job": the Pods of the job and the operator. "None": everybody.', ['None', 'Job']),
            'None',
          ),
          prometheus: object('Pods that scrape the metrics of the job.', {
            namespace: required(text('Their namespace.', { minLength: 1, maxLength: 63 })),
            podLabels: map('Their labels. Default: all Pods of the namespace.', text('')),
          }),
          egress: list(
            'What its Pods reach besides each other and DNS: rules of a NetworkPolicy, for etcd, object ' +
              'stores and data. Mode "Job" needs it: [{}] is everything.',
            open<object>(''),
          ),
        },
        [
          {
            rule: "self.mode == 'Job' || !(has(self.prometheus) || has(self.egress))",
            message: 'prometheus and egress need mode "Job"',
          },
          {
            // kubectl drops a null, so "egress:" with nothing behind it looks as if it were not there.
            rule: "has(self.egress) || !has(self.mode) || self.mode != 'Job'",
            message:
              'networkPolicy.egress says what the Pods of mode "Job" reach: [] is each other and DNS, ' +
              '[{}] everything, and null is neither',
          },
        ],
      ),
      {},
    ),
    auth: object('Who may talk to the job. It may change only while the job is Suspended.', {
      secretName: required(
        text('Secret with "token" and "nodeToken". Default: one that the operator makes.', {
          ...{ minLength: 1, maxLength: 253 },
        }),
      ),
    }),
    tls: immutable(
      object('The traffic of the job is encrypted.', {
        secretName: required(
          text('Secret with the certificate "tls.crt", "tls.key", and "ca.crt", which has signed it.', {
            ...{ minLength: 1, maxLength: 253 },
          }),
        ),
        serverName: text(
          'Name in the certificate. Default: that of the service, JOB-scheduler.NAMESPACE.svc.',
          { maxLength: 253 },
        ),
      }),
      'tls of a job is fixed',
    ),
    metrics: object(
      'Prometheus gets the metrics of the job, by a PodMonitor where the cluster has that kind. Their ' +
        'token is "metricsToken" of the Secret of auth.',
      {
        intervalSeconds: defaulted(integer('Seconds from one scrape to the next.', 1, 3600), 15),
        labels: map('Labels of the PodMonitor: a Prometheus may choose by them.', text('')),
      },
    ),
    managedBy: immutable(
      text(
        'Name of the controller that runs the job, if it is not this operator, which then leaves it alone.',
        {
          ...{ minLength: 1, maxLength: 63 },
        },
      ),
      'managedBy of a job is fixed',
    ),
    results: object('The report about a job that has ended: the ConfigMap JOB-results.', {
      deletionPolicy: defaulted(
        choice('What becomes of the ConfigMap when the job is deleted, also by its TTL.', [
          'Delete',
          'Retain',
        ]),
        'Delete',
      ),
      digest: defaulted(
        flag('True: it has a digest of all rows. The operator reads every one of them for it.'),
        false,
      ),
    }),
    runPolicy: defaulted(
      object('When the job fails, pauses or is deleted, and how its Pods are placed.', {
        cleanPodPolicy: defaulted(
          choice('Pods that go when the job has ended: those that still run, all, or none.', [
            'None',
            'Running',
            'All',
          ]),
          'Running',
        ),
        backoffLimit: defaulted(integer('Pods that may fail before the job does.', 0), 6),
        activeDeadlineSeconds: integer(
          'The job fails when it has not ended so long after its start. A pause stops it, and it begins ' +
            'anew when the job goes on.',
          1,
        ),
        ttlSecondsAfterFinished: integer('The job is deleted so long after its end.', 0),
        schedulingPolicy: SCHEDULING_POLICY,
        suspend: defaulted(
          flag(
            'True: its Pods go, and come back when this is false again. A running job needs a checkpoint ' +
              'place.',
          ),
          false,
        ),
      }),
      {},
    ),
  },
  [
    ...(['minReplicas', 'maxReplicas', 'replicas'] as const).map((count) => {
      const at = `self.replicaSpecs.ps.${count}`;
      return {
        rule: `!has(${at}) || ${at} >= self.code.k + self.code.r`,
        message: `ps.${count} must be at least k+r: a group needs so many PS`,
      };
    }),
    {
      rule:
        "!has(self.autoscale) || !('worker' in self.autoscale.roles) || " +
        '!has(self.replicaSpecs.worker.minReplicas) || self.replicaSpecs.worker.minReplicas >= 1',
      message:
        'autoscale of worker needs a worker.minReplicas of at least 1: without workers nothing is trained',
    },
    ...(['ps', 'worker'] as const).flatMap((role) => {
      const at = `self.replicaSpecs.${role}`;
      const [least, most] = [`${at}.minReplicas`, `${at}.maxReplicas`];
      return [
        {
          rule: `!has(self.autoscale) || !('${role}' in self.autoscale.roles) || has(${at}.maxReplicas)`,
          message: `autoscale of ${role} needs ${role}.maxReplicas`,
        },
        {
          rule: `!has(${least}) || !has(${most}) || ${least} <= ${most}`,
          message: `${role}.minReplicas must be at most ${role}.maxReplicas`,
        },
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
