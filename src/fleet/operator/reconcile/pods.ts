/** Pods of PS, workers and the scheduler: the templates of users, completed. */
import type { Container, EnvVar, Meta, ObjectManifest, PodSpec, PodTemplate } from '../objects.js';
import { NOT_OF_TEMPLATE, RESERVED, type TrainingJob, type TrainingJobStatus } from '../types.js';
import { apart } from './apart.js';
import { ownerEnvironment } from './foreign.js';
import { memoryBeside } from './memory.js';
import { mergePodSpec, templateProblem } from './merge.js';
import {
  CONTAINER,
  commandOf,
  INDEX_LABEL,
  METRICS_KEY,
  metaOf,
  type PodRole,
  PS_PORT,
  podName,
  REDUNDANT_GATE,
  runOf,
  SCHEDULER_PORT,
  schedulerAddress,
  secretName,
  WORKER_PORT,
  ZONE_LABEL,
} from './names.js';
import { gangAnnotations, placement, queueLabels } from './placing.js';
import { planFlags } from './plan.js';
import { bytesOf } from './quantity.js';
import { tlsEnvironment, tlsFlags, tlsMounts, tlsVolumes } from './tls.js';

export const STATE_VOLUME = 'state';
const STATE_DIR = '/var/lib/kintsugi';
/**
 * Time that a role waits for the scheduler, and for the job to form. Its Pod may be there earlier than
 * others.
 */
const CONNECT_TIMEOUT = '10m';
/**
 * Lease of a scheduler that leads. Shorter than by default: a machine takes the leader and a PS at once, and
 * requests to that PS wait for the next leader. It is the shortest that an etcd with usual times gives.
 */
const LEASE = '2s';
/** Seconds until a machine that does not answer is given up. */
const TOLERATED_SECONDS = 10;
/** Seconds in which a role that has handed over ends. */
const ENDING_SECONDS = 15;
/** The file of a container whose text is kept in the status of its Pod. */
const LAST_WORDS = '/dev/termination-log';

const fromField = (name: string, fieldPath: string): EnvVar => ({
  name,
  valueFrom: { fieldRef: { fieldPath } },
});
const fromSecret = (name: string, secret: string, key: string, optional?: true): EnvVar => ({
  name,
  valueFrom: { secretKeyRef: { name: secret, key, ...(optional ? { optional } : {}) } },
});

const HOST_LABELS: Record<TrainingJob['spec']['failureDomain'], string> = {
  node: '$(NODE_NAME)',
  zone: '$(ZONE)',
  'zone/node': '$(ZONE)/$(NODE_NAME)',
};

/** Environment of every role. Clients and workers do not get the token of nodes. */
function environment(job: TrainingJob, role: PodRole, { life }: Beginning): EnvVar[] {
  const secret = secretName(job);
  return [
    fromField('POD_NAME', 'metadata.name'),
    fromField('POD_IP', 'status.podIP'),
    fromField('NODE_NAME', 'spec.nodeName'),
    ...(role === 'ps' && job.spec.failureDomain !== 'node'
      ? [fromField('ZONE', `metadata.labels['${ZONE_LABEL}']`)]
      : []),
    { name: 'KINTSUGI_SCHEDULER', value: schedulerAddress(job) },
    fromSecret('KINTSUGI_TOKEN', secret, 'token'),
    ...(role === 'worker' ? [] : [fromSecret('KINTSUGI_NODE_TOKEN', secret, 'nodeToken')]),
    // A Secret of the user's own may not have it: then /metrics answers nobody beyond the Pod.
    ...(job.spec.metrics ? [fromSecret('KINTSUGI_METRICS_TOKEN', secret, METRICS_KEY, true)] : []),
    ...(role === 'scheduler' ? ownerEnvironment(job, life) : []),
    // A LimitRange may give the container a limit that its template does not have. Older images ignore it.
    ...(role === 'ps' ? [{ name: 'KINTSUGI_MEMORY', value: 'auto' }] : []),
    ...(role === 'worker'
      ? [
          { name: 'KINTSUGI_RESULTS', value: LAST_WORDS },
          { name: 'KINTSUGI_JOB', value: job.metadata.name },
          { name: 'KINTSUGI_RUN', value: runOf(job) },
        ]
      : []),
    ...tlsEnvironment(job),
  ];
}

/**
 * Bytes that a PS may hold, of the memory that its container may have. Undefined: the template has no limit.
 */
export function memoryBudget(template: PodTemplate | undefined): number | undefined {
  const container = template?.spec?.containers?.find((one) => one.name === CONTAINER);
  const limit = bytesOf(container?.resources?.limits?.memory);
  return limit === undefined ? undefined : memoryBeside(limit);
}

/** Beginning of a life of the scheduler, as its flags tell it. */
export interface Beginning {
  startPs: number;
  /** Number of the life, from 1. Each has a place of its own for its state. */
  life: number;
  /** Place of the checkpoint that it begins with. */
  restore?: string | undefined;
  checkpoint?: TrainingJobStatus['startCheckpoint'];
}

/** Flags for the place of the state. Each life has one of its own. */
function storeFlags({ spec }: TrainingJob, life: number): string[] {
  const { etcd } = spec.scheduler.store;
  const inside = life === 1 ? '' : `/life-${life}`;
  if (!etcd) return ['--dir', `${STATE_DIR}${inside}`];
  const store = `${etcd.url.replace(/\/$/, '')}${inside}`;
  return ['--store', store, '--store-lease', LEASE, '--advertise', `$(POD_IP):${SCHEDULER_PORT}`];
}

function flagsOf(job: TrainingJob, role: PodRole, start: Beginning): string[] {
  const { spec } = job;
  const { startPs, life, restore, checkpoint } = start;
  const reach = ['--scheduler', '$(KINTSUGI_SCHEDULER)', '--connect-timeout', CONNECT_TIMEOUT];
  switch (role) {
    case 'scheduler':
      return [
        ...['scheduler', '--listen', `0.0.0.0:${SCHEDULER_PORT}`, '--ps', String(startPs)],
        ...['--code', `${spec.code.k}+${spec.code.r}`, ...storeFlags(job, life)],
        ...(spec.groups === undefined ? [] : ['--groups', String(spec.groups)]),
        ...planFlags(checkpoint ?? {}),
        ...(restore === undefined ? [] : ['--restore', restore]),
      ];
    case 'ps': {
      const memory = memoryBudget(spec.replicaSpecs.ps.template);
      return [
        ...['ps', ...reach, '--listen', `0.0.0.0:${PS_PORT}`, '--advertise', `$(POD_IP):${PS_PORT}`],
        ...['--name', '$(POD_NAME)', '--host-label', HOST_LABELS[spec.failureDomain]],
        ...['--drain-timeout', `${spec.drainTimeoutSeconds}s`],
        ...(memory === undefined ? [] : ['--memory', String(memory)]),
      ];
    }
    case 'worker':
      return ['worker', ...reach, '--listen', `0.0.0.0:${WORKER_PORT}`, '--name', '$(POD_NAME)'];
  }
}

/** The flags of the operator but for those that the job gives itself, because a flag is given once. */
function without(given: readonly string[], flags: readonly string[]): string[] {
  const names = new Set(given.filter((arg) => arg.startsWith('--')).map((arg) => arg.split('=', 1)[0]));
  return flags.filter((arg, i) => !names.has(arg) && !names.has(flags[i - 1]));
}

const PORTS: Record<PodRole, number> = { scheduler: SCHEDULER_PORT, ps: PS_PORT, worker: WORKER_PORT };

/** The container of a role, as it is where the template says nothing. */
function containerOf(job: TrainingJob, role: PodRole, start: Beginning): Container {
  const { spec } = job;
  const command = commandOf(job, role);
  const more = spec.replicaSpecs[role].args ?? [];
  const own = command === undefined;
  return {
    name: CONTAINER,
    image: spec.image,
    ...(spec.imagePullPolicy === undefined ? {} : { imagePullPolicy: spec.imagePullPolicy }),
    command: command ?? ['kintsugi'],
    args: own ? [...without(more, [...flagsOf(job, role, start), ...tlsFlags(job)]), ...more] : more,
    ...(own
      ? {
          ports: [{ name: 'http', containerPort: PORTS[role] }],
          readinessProbe: {
            httpGet: { path: '/readyz', port: PORTS[role], ...(spec.tls ? { scheme: 'HTTPS' } : {}) },
            periodSeconds: 2,
            timeoutSeconds: 5,
          },
        }
      : {}),
    securityContext: {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    },
    // The last line says why a process has ended.
    terminationMessagePolicy: 'FallbackToLogsOnError',
    env: environment(job, role, start),
    volumeMounts: [
      { name: 'tmp', mountPath: '/tmp' },
      ...(role === 'scheduler' && !spec.scheduler.store.etcd
        ? [{ name: STATE_VOLUME, mountPath: STATE_DIR }]
        : []),
      ...tlsMounts(job),
    ],
  };
}

function graceSeconds(job: TrainingJob, role: PodRole): number {
  return (role === 'ps' ? job.spec.drainTimeoutSeconds : 20) + ENDING_SECONDS;
}

type PodToleration = NonNullable<PodSpec['tolerations']>[number];

function tolerations(given: PodSpec['tolerations'] = []): NonNullable<PodSpec['tolerations']> {
  const ours = ['not-ready', 'unreachable'].map((what) => ({
    ...{ key: `node.kubernetes.io/${what}`, operator: 'Exists', effect: 'NoExecute' },
    tolerationSeconds: TOLERATED_SECONDS,
  }));
  // A toleration without an effect is one of all effects.
  const replaces = (one: PodToleration, { key, effect }: PodToleration): boolean =>
    one.key === key && (one.effect === effect || !one.effect);
  return [...given, ...ours.filter((own) => !given.some((one) => replaces(one, own)))];
}

/** The volume of a claim that is there already. The job's own claim is made from a template (fixtures.ts). */
function stateVolumes({ spec }: TrainingJob): { name: string }[] {
  const { claimName } = spec.scheduler.store;
  return claimName === undefined
    ? []
    : [{ name: STATE_VOLUME, persistentVolumeClaim: { claimName } } as { name: string }];
}

/** A PS begins again in its Pod, empty. A worker is replaced, so that its last words stay to be read. */
function restartPolicyOf({ spec }: TrainingJob, role: 'ps' | 'worker'): string {
  return spec.replicaSpecs[role].restartPolicy ?? (role === 'ps' ? 'OnFailure' : 'Never');
}

/**
 * The spec of a Pod: what the operator says, with the template of the user merged in (merge.ts). `start` is
 * told to the scheduler.
 */
export function podSpecOf(
  job: TrainingJob,
  role: PodRole,
  start: Beginning = { startPs: 0, life: 1 },
): PodSpec {
  const given = job.spec.replicaSpecs[role].template?.spec ?? {};
  const own: PodSpec = {
    securityContext: {
      ...{ runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000 },
      seccompProfile: { type: 'RuntimeDefault' },
    },
    automountServiceAccountToken: false,
    ...placement(job),
    ...apart(job, role),
    terminationGracePeriodSeconds: graceSeconds(job, role),
    volumes: [
      { name: 'tmp', emptyDir: {} } as { name: string },
      ...(role === 'scheduler' ? stateVolumes(job) : []),
      ...tlsVolumes(job),
    ],
    containers: [containerOf(job, role, start)],
  };
  return {
    ...mergePodSpec(own, given),
    // Lists without a merge key are those of the template. The operator adds what it relies on.
    ...(role === 'ps'
      ? { readinessGates: [...(given.readinessGates ?? []), { conditionType: REDUNDANT_GATE }] }
      : {}),
    ...(role === 'scheduler' ? {} : { restartPolicy: restartPolicyOf(job, role) }),
    tolerations: tolerations(given.tolerations ?? []),
  };
}

/** Metadata of a Pod of the job; labels of the user's template are kept. */
export function podMeta(job: TrainingJob, role: PodRole, meta: Meta): Meta {
  const given = job.spec.replicaSpecs[role].template?.metadata;
  const annotations = { ...gangAnnotations(job), ...given?.annotations, ...meta.annotations };
  return {
    ...meta,
    labels: { ...queueLabels(job), ...given?.labels, ...meta.labels },
    ...(Object.keys(annotations).length > 0 ? { annotations } : {}),
  };
}

/** The Pod of a PS or worker. No other one has its index, ever. */
export function podOf(job: TrainingJob, role: 'ps' | 'worker', index: number): ObjectManifest {
  const meta = metaOf(job, podName(job, role, index), role);
  const labels = { ...meta.labels, [INDEX_LABEL]: String(index) };
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: podMeta(job, role, { ...meta, labels }),
    spec: podSpecOf(job, role),
  };
}

/** A template that takes the place of the volume with the state of the job would lose that state. */
function stateProblem({ spec }: TrainingJob, role: PodRole, path: string): string | undefined {
  const volumes = spec.replicaSpecs[role].template?.spec?.volumes ?? [];
  const isTaken = role === 'scheduler' && !spec.scheduler.store.etcd;
  if (!isTaken || !volumes.some(({ name }) => name === STATE_VOLUME)) return undefined;
  return (
    `"${path}.spec.volumes" has "${STATE_VOLUME}", which is the volume of the operator for the state of ` +
    'the job: another one needs another name'
  );
}

/** A field that would take the place of one that the operator relies on. */
function reservedProblem({ spec }: TrainingJob, role: PodRole, path: string): string | undefined {
  const all = spec.replicaSpecs[role].template?.spec?.containers ?? [];
  const own = all.find(({ name }) => name === CONTAINER);
  const field = own && RESERVED.find((name) => own[name] != null);
  return field && `"${path}.spec.containers" has "${field}": ${NOT_OF_TEMPLATE}`;
}

/** The job without templates that cannot be merged, and what is wrong with each of these. */
export function withSoundTemplates(job: TrainingJob): {
  job: TrainingJob;
  problems: ReadonlyMap<PodRole, string>;
} {
  const problems = new Map<PodRole, string>();
  const replicaSpecs = { ...job.spec.replicaSpecs };
  for (const role of ['scheduler', 'ps', 'worker'] as const) {
    const path = `replicaSpecs.${role}.template`;
    const problem =
      templateProblem(replicaSpecs[role].template, path) ??
      stateProblem(job, role, path) ??
      reservedProblem(job, role, path);
    if (problem === undefined) continue;
    problems.set(role, problem);
    replicaSpecs[role] = { ...replicaSpecs[role], template: undefined } as never;
  }
  return { job: problems.size === 0 ? job : { ...job, spec: { ...job.spec, replicaSpecs } }, problems };
}
