/** Keys in etcd of a job that is deleted. */
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Pod } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import type { TrainingJob } from '../../../src/fleet/operator/types.js';
import {
  actionsOf,
  created,
  deleted,
  jobOf,
  lived,
  names,
  nodeOf,
  observedOf,
  running,
  START,
  step,
} from './support.js';
import { World } from './world.js';

const URL = 'etcd://user:secret@e:2379/movies';
const HELD = ['kintsugi.dev/state'];

function etcdJob(deletionPolicy: 'Delete' | 'Retain' = 'Delete'): TrainingJob {
  const job = jobOf();
  job.spec.scheduler.store = { size: '1Gi', deletionPolicy, etcd: { url: URL, schedulers: 2 } };
  return job;
}

/** A running job that was told to go, at START. Its schedulers have gone, unless some are given. */
function doomed(schedulers: Pod[] = [], change: (job: TrainingJob) => void = () => {}): ObservedJob {
  const observed = running(etcdJob());
  const job = structuredClone(observed.job);
  Object.assign(job.metadata, { deletionTimestamp: new Date(START).toISOString(), finalizers: [...HELD] });
  change(job);
  return { ...observed, job, pods: [...observed.pods, ...schedulers] };
}

const podOf = (name: string, role: string): Pod => ({
  ...{ apiVersion: 'v1', kind: 'Pod', spec: {} },
  metadata: {
    ...{ name, namespace: 'ml' },
    labels: { 'kintsugi.dev/job': 'movies', 'kintsugi.dev/role': role },
  },
});
const schedulerOf = (life: Parameters<typeof lived>[1] = {}): Pod =>
  lived(podOf('movies-scheduler-0', 'scheduler'), life);

const isFree = (actions: ReturnType<typeof reconcile>): boolean =>
  actionsOf(actions, 'hold').some(({ held }) => !held);

describe('a job in etcd', () => {
  it('is held before its scheduler is made, when its keys are to go with it', () => {
    const actions = reconcile(observedOf({ job: etcdJob() }));
    const kinds = actions.map((one) => (one.kind === 'apply' ? one.object.kind : one.kind));
    expect(actionsOf(actions, 'hold')).toEqual([{ kind: 'hold', held: true }]);
    expect(kinds.indexOf('hold')).toBeGreaterThan(kinds.indexOf('status'));
    expect(kinds.indexOf('hold')).toBeLessThan(kinds.indexOf('StatefulSet'));
    const held = running(etcdJob());
    held.job.metadata.finalizers = [...HELD];
    expect(actionsOf(reconcile(held), 'hold')).toEqual([]);
  });

  it('that somebody else manages is never held, and let go where it is', () => {
    const managedBy = 'kueue.x-k8s.io/multikueue';
    const job = etcdJob();
    job.spec.managedBy = managedBy;
    expect(reconcile(observedOf({ job }))).toEqual([]);
    const left = doomed([], ({ spec }) => {
      spec.managedBy = managedBy;
    });
    expect(reconcile(left)).toEqual([
      {
        ...{ kind: 'event', type: 'Warning', reason: 'StateKept' },
        message: `keys of the job stay in etcd://e:2379/movies: ${managedBy} manages it`,
      },
      { kind: 'hold', held: false },
    ]);
    left.job.metadata.finalizers = ['a.dev/other'];
    expect(reconcile(left)).toEqual([]);
  });

  it.each([
    ['whose keys are to stay', etcdJob('Retain')],
    ['that is kept in a claim', jobOf()],
  ])('or one %s: it is not held', (_, job) => {
    expect(actionsOf(reconcile(observedOf({ job })), 'hold')).toEqual([]);
  });
});

describe('a deleted job in etcd', () => {
  it('first loses all its Pods', () => {
    const actions = reconcile(doomed([schedulerOf()]));
    const [set] = actionsOf(actions, 'apply');
    expect(set!.object).toMatchObject({ kind: 'StatefulSet', spec: { replicas: 0 } });
    expect(deleted(actions)).toContain('movies-scheduler-0');
    expect(deleted(actions)).toContain('movies-ps-0');
    expect(created(actions)).toEqual([]);
    expect(isFree(actions)).toBe(false);
  });

  it('then has a Pod of its scheduler remove the keys of all its lives', () => {
    const first = doomed([], ({ status }) => Object.assign(status!, { life: 3 }));
    const [pod] = created(reconcile(first)) as unknown as Pod[];
    expect(pod!.metadata.ownerReferences).toBeUndefined();
    expect(pod!.metadata.labels).toMatchObject({ 'kintsugi.dev/role': 'removal' });
    const [container] = pod!.spec.containers!;
    expect(container!.args!.slice(0, 1)).toEqual(['scheduler']);
    expect(container!.args!.join(' ')).toContain(`--store ${URL} `);
    expect(container!.args!.at(-1)).toBe('--remove-state=life-2,life-3');
    const env = container!.env!.map(({ name }) => name);
    expect(env).toContain('KINTSUGI_JOB_UID');
    expect(env).not.toContain('KINTSUGI_TOKEN');
    expect(container!.readinessProbe).toBeUndefined();
    const then = step(first, reconcile(first));
    expect(created(reconcile(then))).toEqual([]);
    expect(isFree(reconcile(then))).toBe(false);
  });

  it('goes when that has succeeded', () => {
    const first = doomed();
    const pod = created(reconcile(first))[0]!;
    const actions = reconcile({ ...first, pods: [lived(pod, { phase: 'Succeeded' })] });
    // A pass that has not seen the job go would make a deleted Pod again.
    expect(actions).toEqual([{ kind: 'hold', held: false }]);
  });

  it('goes when its container has succeeded, whatever runs beside it', () => {
    const first = doomed();
    const pod = lived(created(reconcile(first))[0]!, { exit: { exitCode: 0 } });
    const sidecar = { name: 'proxy', ready: true, restartCount: 0, state: { running: {} } };
    pod.status!.containerStatuses!.unshift(sidecar);
    expect(reconcile({ ...first, now: START + 120_000, pods: [pod] })).toEqual([
      { kind: 'hold', held: false },
    ]);
    // A container that begins again has not succeeded.
    const again = lived(pod, { exit: { exitCode: 0 }, again: true });
    expect(isFree(reconcile({ ...first, pods: [again] }))).toBe(false);
  });

  it.each([
    ['an older image does not know how', { exit: { exitCode: 2, message: 'kintsugi: BAD_ARGUMENT: no' } }, 0],
    ['it took too long', { exit: { exitCode: 1, message: 'kintsugi: STORE_FAILED: away' } }, 120_000],
  ])('goes without, and says so without a password: %s', (_, life, ms) => {
    const first = doomed();
    const pod = lived(created(reconcile(first))[0]!, { ...life, waiting: 'CrashLoopBackOff' });
    const actions = reconcile({ ...first, now: START + ms, pods: [pod] });
    expect(isFree(actions)).toBe(true);
    const [event] = actionsOf(actions, 'event');
    expect(event).toMatchObject({ type: 'Warning', reason: 'StateKept' });
    expect(event!.message).toMatch(
      /^keys of the job stay in etcd:\/\/e:2379\/movies: .*(BAD_ARGUMENT|STORE_FAILED)/,
    );
  });

  it('waits for a scheduler that ends, and not for one whose machine does not answer', () => {
    const ending = doomed([schedulerOf({ deleting: true })]);
    expect(created(reconcile(ending))).toEqual([]);
    const silent = { ...ending, nodes: [nodeOf('n1', false)] };
    expect(names(created(reconcile(silent)))).toHaveLength(1);
  });

  it('goes at once when it never began', () => {
    const never = doomed([], (job) => {
      job.status = { phase: 'Pending' };
    });
    expect(reconcile(never)).toEqual([{ kind: 'hold', held: false }]);
  });
});

it('a job that is made again has the Pod go that removes keys for the one before', () => {
  const pod = lived(created(reconcile(doomed()))[0]!);
  const job = etcdJob();
  job.metadata.uid = 'another';
  const observed = running(job);
  const actions = reconcile({ ...observed, pods: [...observed.pods, pod] });
  expect(deleted(actions)).toEqual([pod.metadata.name]);
  expect(actionsOf(actions, 'delete')[0]).toMatchObject({ graceSeconds: 1 });
  const ending = lived(pod, { deleting: true });
  ending.metadata.deletionGracePeriodSeconds = 1;
  expect(deleted(reconcile({ ...observed, pods: [...observed.pods, ending] }))).toEqual([]);
  // The second job is deleted in its turn: it waits for a Pod of its own, and that of the first goes, too.
  const { metadata } = observed.job;
  Object.assign(metadata, { deletionTimestamp: new Date(START).toISOString(), finalizers: [...HELD] });
  const last = reconcile({ ...observed, pods: [pod] });
  expect(deleted(last)).toEqual([pod.metadata.name]);
  expect(names(created(last))).toEqual(['movies-removal-another']);
});

it('a Pod that removes keys of another place stays until it has', () => {
  const before = created(reconcile(doomed()))[0]!;
  const job = etcdJob();
  job.metadata.uid = 'another';
  const pod = lived({ ...before, metadata: { ...before.metadata, name: 'movies-removal-before' } });
  const observed = running(job);
  const seen = (store: TrainingJob['spec']['scheduler']['store'], one = pod) => {
    const again = structuredClone(observed);
    again.job.spec.scheduler.store = store;
    return deleted(reconcile({ ...again, pods: [...again.pods, one] }));
  };
  const { store } = job.spec.scheduler;
  expect(seen(store)).toContain('movies-removal-before');
  expect(seen({ ...store, etcd: { url: `${URL}/`, schedulers: 2 } })).toContain('movies-removal-before');
  const elsewhere = { ...store, etcd: { url: 'etcd://e:2379/others', schedulers: 2 } };
  const claim = { size: '1Gi', deletionPolicy: 'Delete' as const };
  expect([seen(elsewhere), seen(claim)]).toEqual([[], []]);
  const done = lived(pod, { phase: 'Succeeded', exit: { exitCode: 0 } });
  expect(seen(elsewhere, done)).toEqual(['movies-removal-before']);
});

it('an operator holds a job in etcd, removes its keys when it is deleted, and lets it go', async () => {
  const world = new World(1);
  onTestFinished(() => world.operator.stop());
  const made: string[] = [];
  const create = world.server.create.bind(world.server);
  world.server.create = ((kind, object) => {
    made.push(object.metadata.name);
    return create(kind, object);
  }) as typeof create;
  await world.operator.start();
  world.start(etcdJob());
  await world.until(() => world.job().status?.phase === 'Running');
  expect(world.job().metadata.finalizers).toEqual(HELD);
  await world.server.delete('TrainingJob', 'ml', 'movies');
  await world.until(() => world.active('removal').length === 1);
  expect([world.pods('scheduler'), world.active('ps'), world.active('worker')]).toEqual([[], [], []]);
  world.end(world.active('removal')[0]!, 0);
  await world.until(() => world.job() === undefined && world.pods('removal').length === 0);
  await world.operator.stop();
  expect(made.filter((name) => name.includes('removal'))).toHaveLength(1);
});
