/** Containers beside the role: the end of the role is that of its own container. */
import { describe, expect, it } from 'vitest';
import type { Pod, Terminated } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import type { ScalerStatus } from '../../../src/fleet/operator/types.js';
import {
  actionsOf,
  changeOf,
  created,
  deleted,
  jobOf,
  lived,
  names,
  reportOf,
  running,
  scalerOf,
  step,
} from './support.js';

const pass = (observed: ObservedJob): ObservedJob => step(observed, reconcile(observed));
const statusOf = ({ job }: ObservedJob) => job.status!;
const conditionOf = (observed: ObservedJob, type: string) =>
  statusOf(observed).conditions!.find((one) => one.type === type);
type Side = Partial<Terminated> | 'runs';

/** A Pod whose container of the role has ended. `side`: the container beside it. */
function ended(pod: Pod, exitCode: number, side: Side = 'runs', status: Partial<Pod['status']> = {}): Pod {
  const phase = side === 'runs' ? 'Running' : exitCode === 0 && side.exitCode === 0 ? 'Succeeded' : 'Failed';
  const gone = lived(pod, { phase, ready: false, exit: { exitCode } });
  const state = side === 'runs' ? { running: {} } : { terminated: { exitCode: 0, ...side } };
  const beside = { name: 'log', ready: side === 'runs', restartCount: 0, state };
  // A kubelet has them in the order of their names, or of the template.
  const containerStatuses = [beside, ...gone.status!.containerStatuses!];
  return { ...gone, status: { ...gone.status, containerStatuses, ...status } };
}
const withPods = (observed: ObservedJob, isIts: (name: string) => boolean, become: (pod: Pod) => Pod) => ({
  ...observed,
  pods: observed.pods.map((pod) => (isIts(pod.metadata.name) ? become(pod) : pod)),
});
const isWorker = (name: string) => name.includes('worker');

describe('a worker that has ended with 0', () => {
  it.each<[string, Side]>([
    ['runs on', 'runs'],
    ['ended with 143', { exitCode: 143 }],
    ['ended with 0', { exitCode: 0 }],
  ])('has trained all, when the container beside it %s', (_, side) => {
    const observed = pass(withPods(running(), isWorker, (pod) => ended(pod, 0, side)));
    expect(statusOf(observed)).toMatchObject({ phase: 'Succeeded', restartCount: 0 });
    expect(statusOf(observed).replicaStatuses!.worker).toMatchObject({ active: 0, succeeded: 2, failed: 0 });
    // Pods that still run go.
    const cleaned = deleted(reconcile(observed)).filter(isWorker);
    expect(cleaned).toEqual(side === 'runs' ? ['movies-worker-0', 'movies-worker-1'] : []);
  });

  it('has not ended before its Pod has, where no container runs beside it', () => {
    // A kubelet says that all containers have ended before it gives the Pod its phase, and the reason.
    for (const side of [{ exitCode: 0 }, { exitCode: 143 }]) {
      const observed = pass(
        withPods(running(), isWorker, (pod) => ended(pod, 0, side, { phase: 'Running' })),
      );
      expect(statusOf(observed)).toMatchObject({ phase: 'Running', restartCount: 0 });
      expect(deleted(reconcile(observed)).filter(isWorker)).toEqual([]);
    }
  });

  it('has not, when its Pod was ended for another reason', () => {
    const late = { reason: 'DeadlineExceeded', message: 'Pod was active too long' };
    const observed = withPods(running(), isWorker, (pod) => ended(pod, 0, { exitCode: 143 }, late));
    const next = pass(observed);
    expect(statusOf(next)).toMatchObject({ phase: 'Running', restartCount: 2 });
    expect(conditionOf(next, 'Restarting')!.message).toBe(
      'movies-worker-1: DeadlineExceeded: Pod was active too long',
    );
  });
});

describe('a worker that has failed', () => {
  it('has failed by its own code, whatever the container beside it does', () => {
    for (const side of ['runs', { exitCode: 0 }, { exitCode: 143 }] as const) {
      const observed = withPods(
        running(),
        (name) => name === 'movies-worker-0',
        (pod) => ended(pod, 1, side),
      );
      const actions = reconcile(observed);
      expect(names(created(actions))).toEqual(['movies-worker-2']);
      expect(conditionOf(step(observed, actions), 'Restarting')!.message).toBe(
        'movies-worker-0: exit code 1 (Error)',
      );
    }
  });

  it('before it began names the container that failed', () => {
    const observed = withPods(
      running(),
      (name) => name === 'movies-worker-0',
      (pod) => {
        const waits = lived(pod, { phase: 'Failed', waiting: 'PodInitializing' });
        const terminated = { exitCode: 7, reason: 'Error', message: 'no such bucket' };
        const initContainerStatuses = [
          { name: 'fetch', ready: false, restartCount: 0, state: { terminated } },
        ];
        return { ...waits, status: { ...waits.status, initContainerStatuses } };
      },
    );
    expect(conditionOf(pass(observed), 'Restarting')!.message).toBe(
      'movies-worker-0: container fetch: exit code 7 (Error): no such bucket',
    );
  });

  it('and begins again in its Pod has not ended', () => {
    const job = jobOf({ worker: { restartPolicy: 'OnFailure' } });
    const observed = withPods(running(job), isWorker, (pod) => ended(pod, 1));
    expect(created(reconcile(observed))).toEqual([]);
    expect(statusOf(pass(observed)).replicaStatuses!.worker).toMatchObject({ active: 2, failed: 0 });
  });
});

describe('a PS that was emptied', () => {
  const drained = { id: 1, kind: 'scale', from: 4, to: 3, state: 'done', leaving: ['movies-ps-3'] } as const;

  it('is deleted, though the container beside it runs on, and the ScaleIn has succeeded', () => {
    const status = { phase: 'Draining', from: 4, to: 3, attempt: 0, ready: 4, changes: [1] } as ScalerStatus;
    const scaler = scalerOf('ScaleIn', { toDelete: { count: 1 } }, status);
    scaler.metadata.finalizers = ['kintsugi.dev/scaling'];
    let observed: ObservedJob = withPods(
      running(),
      (name) => name === 'movies-ps-3',
      (pod) => ended(pod, 0),
    );
    const report = reportOf(
      observed.pods.filter(({ metadata }) => metadata.name !== 'movies-ps-3'),
      { changes: [changeOf(drained)] },
    );
    observed = { ...observed, report, scalers: [scaler] };
    expect(deleted(reconcile(observed))).toEqual(['movies-ps-3']);
    for (let turn = 0; turn < 4; turn++) observed = pass(observed);
    expect(observed.scalers![0]!.status).toMatchObject({ phase: 'ScaleSucceeded' });
    expect(observed.job.spec.replicaSpecs.ps.replicas).toBe(3);
  });

  it('and one that joined is not taken for one that never began, when the image beside it is missing', () => {
    const scaler = scalerOf('ScaleIn', { toDelete: { podNames: ['movies-ps-3'] } }, {
      ...{ phase: 'Draining', from: 4, to: 3, attempt: 0 },
    } as ScalerStatus);
    scaler.metadata.finalizers = ['kintsugi.dev/scaling'];
    const observed = withPods(
      running(),
      (name) => name === 'movies-ps-3',
      (pod) => {
        const serves = lived(pod, { phase: 'Pending', node: 'n1', ready: true });
        const state = { waiting: { reason: 'ErrImagePull' } };
        const beside = { name: 'log', ready: false, restartCount: 0, state };
        const containerStatuses = [beside, ...serves.status!.containerStatuses!];
        return { ...serves, status: { ...serves.status, containerStatuses } };
      },
    );
    expect(deleted(reconcile({ ...observed, scalers: [scaler] }))).toEqual([]);
  });
});

it('a job that is suspended waits until containers beside its roles have gone, too', () => {
  const checkpoint = { url: '/shared/movies', everySeconds: 0, keep: 3, onSuspend: true };
  const job = jobOf({ checkpoint, runPolicy: { suspend: true } });
  const observed = withPods(
    running(jobOf({ checkpoint })),
    () => true,
    (pod) => ended(pod, 0),
  );
  job.status = { ...observed.job.status, suspended: { place: '/shared/movies', checkpoint: 3 } };
  const paused = { ...observed, job, report: undefined };
  expect(actionsOf(reconcile(paused), 'status')[0]?.status.phase ?? job.status.phase).not.toBe('Suspended');
  expect(deleted(reconcile(paused))).toHaveLength(6);
  expect(statusOf(pass(pass(paused)))).toMatchObject({ phase: 'Suspended' });
});
