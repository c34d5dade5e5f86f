/** Jobs, Pods and nodes that are made up. */
import type {
  KubeNode,
  KubeObject,
  ObjectManifest,
  Pod,
  Terminated,
} from '../../../src/fleet/operator/objects.js';
import type {
  Action,
  ChangeReport,
  JobReport,
  ObservedJob,
} from '../../../src/fleet/operator/reconcile/observed.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import type {
  ScalerObject,
  ScalerStatus,
  TrainingJob,
  TrainingJobSpec,
} from '../../../src/fleet/operator/types.js';

export const START = Date.parse('2026-01-01T00:00:00Z');

type Roles = TrainingJobSpec['replicaSpecs'];
type Given = Partial<Omit<TrainingJobSpec, 'replicaSpecs' | 'runPolicy'>> & {
  ps?: Partial<Roles['ps']>;
  worker?: Partial<Roles['worker']>;
  runPolicy?: Partial<TrainingJobSpec['runPolicy']>;
};

/** A job as the API server gives it, with defaults filled in. */
export function jobOf({ ps, worker, runPolicy, ...spec }: Given = {}, name = 'movies'): TrainingJob {
  return {
    apiVersion: 'kintsugi.dev/v1alpha1',
    kind: 'TrainingJob',
    metadata: { name, namespace: 'ml', uid: `uid-${name}`, generation: 1, resourceVersion: '1' },
    spec: {
      ...{ image: 'kintsugi:1', code: { k: 2, r: 1 }, failureDomain: 'node', drainTimeoutSeconds: 30 },
      scheduler: { store: { size: '1Gi', deletionPolicy: 'Delete' } },
      networkPolicy: { mode: 'None' },
      replicaSpecs: { scheduler: {}, ps: { ...ps }, worker: { replicas: 2, ...worker } },
      runPolicy: { cleanPodPolicy: 'Running', backoffLimit: 2, suspend: false, ...runPolicy },
      ...spec,
    },
  };
}

export function nodeOf(name: string, ready = true): KubeNode {
  return {
    ...{ apiVersion: 'v1', kind: 'Node', metadata: { name } },
    status: { conditions: [{ type: 'Ready', status: ready ? 'True' : 'Unknown' }] },
  };
}

interface Life {
  phase?: NonNullable<NonNullable<Pod['status']>['phase']>;
  node?: string;
  deleting?: boolean;
  ready?: boolean;
  exit?: Partial<Terminated>;
  /** True: the process runs again, in the same Pod. */
  again?: boolean;
  restarts?: number;
  /** Time at which the process that runs has begun. Milliseconds since 1970. */
  startedAt?: number;
  disrupted?: boolean;
  /** Reason of a container that has not begun. */
  waiting?: string;
}

/** A Pod that was created, after it has lived for a while. */
export function lived(object: KubeObject, life: Life = {}): Pod {
  const { phase = 'Running', deleting, ready = phase === 'Running', disrupted, waiting } = life;
  const { exit, again = false, restarts: restartCount = 0, startedAt } = life;
  // A pending Pod has no machine, unless one is named.
  const node = life.node ?? (phase === 'Pending' ? undefined : 'n1');
  const condition = (type: string, on: boolean) => ({ type, status: on ? 'True' : 'False' });
  const terminated = exit && { exitCode: 0, ...exit };
  const state = waiting
    ? { waiting: { reason: waiting } }
    : terminated && !again
      ? { terminated }
      : { running: startedAt === undefined ? {} : { startedAt: new Date(startedAt).toISOString() } };
  const lastState = terminated && (again || waiting) ? { lastState: { terminated } } : {};
  const pod = object as Pod;
  const { nodeName: _, ...spec } = pod.spec ?? {};
  return {
    ...pod,
    metadata: {
      ...pod.metadata,
      uid: `uid-${pod.metadata.name}`,
      ...(deleting ? { deletionTimestamp: new Date(START).toISOString() } : {}),
    },
    spec: { ...spec, ...(node === undefined ? {} : { nodeName: node }) },
    status: {
      phase,
      conditions: [condition('Ready', ready), condition('DisruptionTarget', disrupted ?? false)],
      containerStatuses: [{ name: 'kintsugi', ready, restartCount, state, ...lastState }],
    },
  };
}

/** The Pod of the scheduler of a job, which runs. */
export const schedulerPod = (): Pod =>
  lived({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name: 'movies-scheduler-0',
      namespace: 'ml',
      labels: { 'kintsugi.dev/role': 'scheduler', 'kintsugi.dev/job': 'movies' },
    },
  });

export const reportOf = (pods: readonly Pod[], more: Partial<JobReport> = {}): JobReport => ({
  ...{ redundancy: 'full', reasons: [], changing: false, changes: [] },
  nodes: pods
    .filter(({ metadata }) => metadata.labels?.['kintsugi.dev/role'] === 'ps')
    .map(({ metadata }) => ({ name: metadata.name, alive: true })),
  ...more,
});

export const changeOf = (change: Partial<ChangeReport> & Pick<ChangeReport, 'kind'>): ChangeReport => ({
  ...{ id: 1, from: 4, to: 4, state: 'running', reason: '', leaving: [] },
  ...{ shardsMoved: 0, bytesMoved: 0, shardsLeft: 0 },
  ...change,
});

let made = 0;
/** A ScaleOut or ScaleIn as the API server gives it. Later ones are younger. */
export function scalerOf(kind: ScalerObject['kind'], given: object, status?: ScalerStatus): ScalerObject {
  const name = `${kind.toLowerCase()}-${++made}`;
  const creationTimestamp = new Date(START + made * 1000).toISOString();
  return {
    ...{ apiVersion: 'kintsugi.dev/v1alpha1', kind },
    metadata: { name, namespace: 'ml', uid: `uid-${name}`, resourceVersion: '1', creationTimestamp },
    spec: { selector: { name: 'movies' }, role: 'ps', timeoutSeconds: 60, backoffLimit: 0, ...given },
    ...(status ? { status } : {}),
  } as ScalerObject;
}

/** The job has told what came of it already. */
export function observedOf(more: Partial<ObservedJob> = {}): ObservedJob {
  const told = { at: START, underWay: false, findings: { results: {}, report: {} } };
  const nodes = [nodeOf('n1')];
  return { now: START, job: jobOf(), pods: [], owned: [], nodes, secret: false, told, ...more };
}

export function actionsOf<K extends Action['kind']>(
  actions: readonly Action[],
  kind: K,
): Extract<Action, { kind: K }>[] {
  return actions.filter((one): one is Extract<Action, { kind: K }> => one.kind === kind);
}

export const created = (actions: readonly Action[]): ObjectManifest[] =>
  actionsOf(actions, 'create').map(({ object }) => object);
export const names = (objects: readonly KubeObject[]): string[] =>
  objects.map(({ metadata }) => metadata.name);
export const deleted = (actions: readonly Action[]): string[] =>
  names(actionsOf(actions, 'delete').map(({ object }) => object as KubeObject));

/** A Pod whose readiness gate was written. */
function gated(pod: Pod, actions: readonly Action[]): Pod {
  const gate = actionsOf(actions, 'gate').find((one) => one.pod.metadata.name === pod.metadata.name);
  if (!gate) return pod;
  const others = pod.status?.conditions?.filter(({ type }) => type !== 'kintsugi.dev/redundant') ?? [];
  const condition = { type: 'kintsugi.dev/redundant', status: gate.open ? 'True' : 'False' };
  return { ...pod, status: { ...pod.status, conditions: [...others, condition] } };
}

/** A ScaleOut or ScaleIn after the actions. */
function scalerAfter(scaler: ScalerObject, actions: readonly Action[]): ScalerObject[] {
  const isIts = (one: { scaler: ScalerObject }) => one.scaler.metadata.uid === scaler.metadata.uid;
  const { metadata } = scaler;
  if (actionsOf(actions, 'letGo').some(isIts)) {
    const { finalizers: _, ...rest } = metadata;
    return metadata.deletionTimestamp === undefined ? [{ ...scaler, metadata: rest }] : [];
  }
  if (actionsOf(actions, 'adopt').some(isIts))
    return [{ ...scaler, metadata: { ...metadata, finalizers: ['kintsugi.dev/scaling'] } }];
  const status = actionsOf(actions, 'scalerStatus').find(isIts)?.status;
  return [status ? ({ ...scaler, status } as ScalerObject) : scaler];
}

/** The observation after these actions, without what other software would do. */
export function step(observed: ObservedJob, actions: readonly Action[]): ObservedJob {
  const [written] = actionsOf(actions, 'status');
  const [resized] = actionsOf(actions, 'resize');
  const job = structuredClone(written ? { ...observed.job, status: written.status } : observed.job);
  if (resized) job.spec.replicaSpecs[resized.role].replicas = resized.replicas;
  const gone = new Set(deleted(actions));
  const applied = actionsOf(actions, 'apply').map(({ object }) => object);
  const isGone = ({ kind, metadata }: KubeObject): boolean =>
    actionsOf(actions, 'delete').some(
      (one) => one.object.kind === kind && one.object.metadata.name === metadata.name,
    );
  const others = observed.owned.filter((one) => !applied.some((it) => it.kind === one.kind) && !isGone(one));
  return {
    ...observed,
    job,
    ...(observed.scalers ? { scalers: observed.scalers.flatMap((one) => scalerAfter(one, actions)) } : {}),
    ...(observed.askedFor ? { askedFor: new Set([...observed.askedFor, ...names(created(actions))]) } : {}),
    secret: observed.secret || actionsOf(actions, 'secret').length > 0,
    owned: [...others, ...applied],
    pods: [
      ...observed.pods.filter(({ metadata }) => !gone.has(metadata.name)).map((pod) => gated(pod, actions)),
      ...created(actions).map((object) => lived(object)),
    ],
  };
}

/** A job whose Pods all run. `seen`: what is observed besides, from these Pods. */
export function running(
  job = jobOf(),
  seen: (pods: readonly Pod[]) => Partial<ObservedJob> = () => ({}),
): ObservedJob {
  const first = observedOf({ job });
  const then = step(first, reconcile(first));
  const observed = { ...then, report: reportOf(then.pods), ...seen(then.pods) };
  return step(observed, reconcile(observed));
}
