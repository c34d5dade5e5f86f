/** Jobs, Pods and nodes that are made up. */
import type { KubeNode, KubeObject, Manifest, Pod, Terminated } from '../../src/operator/objects.js';
import type { Action, JobReport, Observed } from '../../src/operator/reconcile/observed.js';
import type { TrainingJob, TrainingJobSpec } from '../../src/operator/types.js';

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
      scheduler: { store: { size: '1Gi' } },
      replicaSpecs: { scheduler: {}, ps: { ...ps }, worker: { replicas: 2, ...worker } },
      runPolicy: { cleanPodPolicy: 'Running', backoffLimit: 2, ...runPolicy },
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
  disrupted?: boolean;
}

/** What became of a Pod that was created. */
export function lived(object: KubeObject, life: Life = {}): Pod {
  const { phase = 'Running', node = 'n1', deleting, ready = phase === 'Running', exit, disrupted } = life;
  const condition = (type: string, on: boolean) => ({ type, status: on ? 'True' : 'False' });
  const terminated = exit && { exitCode: 0, ...exit };
  const pod = object as Pod;
  return {
    ...pod,
    metadata: {
      ...pod.metadata,
      uid: `uid-${pod.metadata.name}`,
      ...(deleting ? { deletionTimestamp: new Date(START).toISOString() } : {}),
    },
    spec: { ...pod.spec, nodeName: node },
    status: {
      phase,
      conditions: [condition('Ready', ready), condition('DisruptionTarget', disrupted ?? false)],
      containerStatuses: [
        { name: 'kintsugi', ready, restartCount: 0, state: terminated ? { terminated } : { running: {} } },
      ],
    },
  };
}

export const reportOf = (pods: readonly Pod[], more: Partial<JobReport> = {}): JobReport => ({
  ...{ redundancy: 'full', reasons: [], changing: false },
  nodes: pods
    .filter(({ metadata }) => metadata.labels?.['kintsugi.dev/role'] === 'ps')
    .map(({ metadata }) => ({ name: metadata.name, alive: true })),
  ...more,
});

export function observedOf(more: Partial<Observed> = {}): Observed {
  return { now: START, job: jobOf(), pods: [], owned: [], nodes: [nodeOf('n1')], secret: false, ...more };
}

export function actionsOf<K extends Action['kind']>(
  actions: readonly Action[],
  kind: K,
): Extract<Action, { kind: K }>[] {
  return actions.filter((one): one is Extract<Action, { kind: K }> => one.kind === kind);
}

export const created = (actions: readonly Action[]): Manifest[] =>
  actionsOf(actions, 'create').map(({ object }) => object);
export const names = (objects: readonly KubeObject[]): string[] =>
  objects.map(({ metadata }) => metadata.name);
export const deleted = (actions: readonly Action[]): string[] =>
  names(actionsOf(actions, 'delete').map(({ object }) => object as KubeObject));

/** The job as it is after the actions, without what others would do. */
export function step(observed: Observed, actions: readonly Action[]): Observed {
  const [written] = actionsOf(actions, 'status');
  const job = written ? { ...observed.job, status: written.status } : observed.job;
  const gone = new Set(deleted(actions));
  const applied = actionsOf(actions, 'apply').map(({ object }) => object);
  const others = observed.owned.filter((one) => !applied.some((it) => it.kind === one.kind));
  return {
    ...observed,
    job,
    secret: observed.secret || actionsOf(actions, 'secret').length > 0,
    owned: [...others, ...applied],
    pods: [
      ...observed.pods.filter(({ metadata }) => !gone.has(metadata.name)),
      ...created(actions).map((object) => lived(object)),
    ],
  };
}
