/** Jobs in a queue of Kueue: from observations, and beside what Kueue does. */
import { describe, expect, it } from 'vitest';
import type { ObjectManifest, Pod } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import type { QueuedWorkload } from '../../../src/fleet/operator/reconcile/queueing.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import type { TrainingJob } from '../../../src/fleet/operator/types.js';
import { admitted, conditionIn, evicted, FLAVORS, faults } from './kueue.js';
import { actionsOf, created, jobOf, lived, observedOf, reportOf, schedulerPod, step } from './support.js';
import { World } from './world.js';

const checkpoint = { url: '/shared/movies', everySeconds: 0, keep: 3, onSuspend: true };
const LABEL = 'kueue.x-k8s.io/queue-name';
const extras = new Set(['Workload']);

function queuedJob(given: Parameters<typeof jobOf>[0] = {}, labels = {}): TrainingJob {
  const job = jobOf({ checkpoint, ...given });
  return { ...job, metadata: { ...job.metadata, labels: { [LABEL]: 'ads-queue', ...labels } } };
}
const seenOf = (job = queuedJob(), more: Partial<ObservedJob> = {}): ObservedJob =>
  observedOf({ job, extras, flavors: FLAVORS, ...more });
const workloadIn = ({ owned }: ObservedJob): QueuedWorkload =>
  owned.find(({ kind }) => kind === 'Workload') as QueuedWorkload;
const withWorkload = (observed: ObservedJob, workload: QueuedWorkload): ObservedJob => ({
  ...observed,
  owned: [...observed.owned.filter(({ kind }) => kind !== 'Workload'), workload],
});
const pass = (observed: ObservedJob): ObservedJob => {
  const actions = reconcile(observed);
  const [told] = actionsOf(actions, 'queueStatus');
  const after = step(observed, actions);
  if (!told) return after;
  return withWorkload(after, { ...(told.workload as QueuedWorkload), status: told.status } as QueuedWorkload);
};
const condition = ({ job }: ObservedJob, type: string) =>
  job.status?.conditions?.find((one) => one.type === type);
const queued = (job = queuedJob()): ObservedJob => pass(seenOf(job));
/** Admitted, and its Pods made. `live`: they all run. */
const runs = (job = queuedJob(), counts: Record<string, number> = {}): ObservedJob => {
  const waits = queued(job);
  return pass(withWorkload(waits, admitted(workloadIn(waits), counts)));
};
const scheduler = schedulerPod();
const serves = (observed: ObservedJob): ObservedJob => {
  const pods = [
    ...observed.pods.filter(({ metadata }) => metadata.name !== scheduler.metadata.name),
    scheduler,
  ];
  return { ...observed, pods, report: reportOf(pods) };
};

describe('a job with the label of a queue', () => {
  it('waits without a Pod, and its Workload has the Pods that it wants', () => {
    const job = queuedJob(
      { worker: { replicas: 3, minReplicas: 1 } },
      { 'kueue.x-k8s.io/priority-class': 'high' },
    );
    const priorities = [
      {
        apiVersion: 'kueue.x-k8s.io/v1beta2',
        kind: 'WorkloadPriorityClass',
        metadata: { name: 'high' },
        value: 7,
      },
    ];
    const actions = reconcile(seenOf(job, { priorities }));
    expect(created(actions)).toEqual([]);
    const made = actionsOf(actions, 'apply').map(({ object }) => object);
    expect(made.map(({ kind }) => kind)).toEqual(['Workload']);
    const workload = made[0] as unknown as QueuedWorkload;
    expect(faults(undefined, workload)).toEqual([]);
    expect(workload).toMatchObject({
      apiVersion: 'kueue.x-k8s.io/v1beta2',
      metadata: {
        name: expect.stringMatching(/^trainingjob-movies-[0-9a-f]{5}$/),
        labels: { 'kueue.x-k8s.io/job-uid': 'uid-movies', 'kintsugi.dev/job': 'movies' },
        ownerReferences: [{ kind: 'TrainingJob', uid: 'uid-movies', controller: true }],
      },
      spec: {
        queueName: 'ads-queue',
        ...{
          priority: 7,
          priorityClassRef: { group: 'kueue.x-k8s.io', kind: 'WorkloadPriorityClass', name: 'high' },
        },
        podSets: [
          { name: 'scheduler', count: 1 },
          { name: 'ps', count: 4 },
          { name: 'worker', count: 3, minCount: 1 },
        ],
      },
    });
    for (const { template } of workload.spec.podSets)
      expect((template.spec as Pod['spec']).containers![0]).toMatchObject({ image: 'kintsugi:1' });
    const waits = pass(pass(seenOf(job, { priorities })));
    expect(waits.job.status).toMatchObject({ phase: 'Suspended' });
    expect(condition(waits, 'Admitted')).toMatchObject({ status: 'False', reason: 'Waiting' });
    expect(condition(waits, 'Suspended')).toMatchObject({ status: 'True', reason: 'NotBegun' });
    // The same is not applied again.
    expect(actionsOf(reconcile(waits), 'apply')).toEqual([]);
  });

  it('follows topology requests of its templates', () => {
    const annotations = { 'kueue.x-k8s.io/podset-required-topology': 'rack' };
    const { spec } = workloadIn(queued(queuedJob({ ps: { template: { metadata: { annotations } } } })));
    expect(spec.podSets.map(({ topologyRequest }) => topologyRequest)).toEqual([
      undefined,
      { required: 'rack' },
      undefined,
    ]);
  });

  it('runs where it was admitted', () => {
    const waits = queued();
    const workload = admitted(workloadIn(waits));
    workload.status!.admissionChecks = [
      { name: 'provision', podSetUpdates: [{ name: 'worker', annotations: { request: 'r1' } }] },
    ];
    const [assignment] = workload.status!.admission!.podSetAssignments!.filter(({ name }) => name === 'ps');
    assignment!.topologyAssignment = { levels: ['rack'], slices: [] };
    const actions = reconcile(withWorkload(waits, workload));
    const pods = created(actions) as unknown as Pod[];
    const set = actionsOf(actions, 'apply').find(({ object }) => object.kind === 'StatefulSet')!.object;
    const { template } = set.spec as { template: Pod };
    expect(pods).toHaveLength(6);
    for (const { metadata, spec } of [template, ...pods]) {
      const role = metadata.labels!['kintsugi.dev/role'];
      expect(metadata.labels).toMatchObject({ 'kueue.x-k8s.io/podset': role });
      expect(metadata.labels).not.toHaveProperty(LABEL);
      expect(metadata.annotations).toMatchObject({ 'kueue.x-k8s.io/workload': workload.metadata.name });
      expect(metadata.annotations!.request).toBe(role === 'worker' ? 'r1' : undefined);
      expect(spec.nodeSelector).toEqual({ pool: 'spot' });
      expect(spec.tolerations).toContainEqual({ key: 'spot', operator: 'Exists', effect: 'NoSchedule' });
      expect(spec.schedulingGates).toEqual(role === 'ps' ? [{ name: 'kueue.x-k8s.io/topology' }] : undefined);
    }
  });

  it('has no more workers than were admitted', () => {
    const job = queuedJob({ worker: { replicas: 3, minReplicas: 1 } });
    const some = runs(job, { worker: 2 });
    expect(some.pods.filter(({ metadata }) => metadata.name.includes('worker'))).toHaveLength(2);
    expect(some.job.status!.workers).toBe('0/2');
    expect(condition(some, 'Admitted')).toMatchObject({
      ...{ status: 'True', reason: 'ByKueue', message: 'by the cluster queue ads, 2 of 3 worker' },
    });
  });

  it('says when all its Pods have served, and which workers it needs no more', () => {
    const begun = serves(runs());
    const ready = pass(begun);
    expect(conditionIn(workloadIn(ready), 'PodsReady')).toMatchObject({ status: 'True', reason: 'Started' });
    const [done] = ready.pods.filter(({ metadata }) => metadata.name.includes('worker'));
    const pods = ready.pods.map((pod) =>
      pod === done ? lived(pod, { phase: 'Succeeded', exit: { exitCode: 0 } }) : pod,
    );
    const after = pass({ ...ready, pods });
    expect(workloadIn(after).status!.reclaimablePods).toEqual([{ name: 'worker', count: 1 }]);
    expect(faults(workloadIn(ready), workloadIn(after))).toEqual([]);
  });

  it.each([
    ['Succeeded', 0, 'Succeeded'],
    ['Failed', 2, 'Failed'],
  ] as const)('tells that it has %s', (_, exitCode, reason) => {
    const begun = pass(serves(runs()));
    const pods = begun.pods.map((pod) =>
      pod.metadata.name.includes('worker')
        ? lived(pod, { phase: exitCode === 0 ? 'Succeeded' : 'Failed', exit: { exitCode } })
        : pod,
    );
    const ended = pass(pass({ ...begun, pods }));
    expect(ended.job.status!.phase).toBe(reason);
    expect(conditionIn(workloadIn(ended), 'Finished')).toMatchObject({ status: 'True', reason });
    expect(actionsOf(reconcile(ended), 'queueStatus')).toEqual([]);
  });

  it('is evicted before it ever trained, and gives its quota back without a checkpoint', () => {
    const begun = runs();
    // No machine has room for its Pods.
    const pods = begun.pods.map((pod) => lived(pod, { phase: 'Pending' }));
    let observed = withWorkload({ ...begun, pods }, evicted(workloadIn(begun), 'PodsReadyTimeout'));
    for (let turn = 0; turn < 6; turn++) {
      observed = pass(observed);
      expect(actionsOf(reconcile(observed), 'checkpoint')).toEqual([]);
    }
    expect(observed.pods).toEqual([]);
    expect(conditionIn(workloadIn(observed), 'QuotaReserved')).toMatchObject({ status: 'False' });
    expect(conditionIn(workloadIn(observed), 'Requeued')).toMatchObject({ status: 'False' });
    const back = pass(pass(withWorkload(observed, admitted(workloadIn(observed)))));
    expect(back.job.status).toMatchObject({ life: 2 });
    expect(back.job.status).not.toHaveProperty('restore');
    expect(back.pods).toHaveLength(6);
  });
});

describe('a job that cannot be in a queue', () => {
  const stuck = (observed: ObservedJob) => {
    const actions = reconcile(observed);
    expect(created(actions)).toEqual([]);
    expect(actionsOf(actions, 'apply')).toEqual([]);
    return condition(step(observed, actions), 'Stuck');
  };

  it('says that there is no Kueue', () => {
    const found = stuck(observedOf({ job: queuedJob(), extras: new Set() }));
    expect(found).toMatchObject({ reason: 'Queue', message: expect.stringMatching(/Kueue 0\.15/) });
  });

  it('says that it needs a place for checkpoints, and a class that is there', () => {
    const bare = stuck(seenOf(queuedJob({ checkpoint: undefined })));
    expect(bare!.message).toMatch(/needs spec\.checkpoint/);
    const classless = stuck(seenOf(queuedJob({}, { 'kueue.x-k8s.io/priority-class': 'none' })));
    expect(classless!.message).toMatch(/names none, which is no WorkloadPriorityClass/);
  });

  it('says that its template contradicts the admission', () => {
    const job = queuedJob({ ps: { template: { spec: { nodeSelector: { pool: 'mine' } } } } });
    const waits = queued(job);
    const seen = withWorkload(waits, admitted(workloadIn(waits)));
    expect(stuck(seen)!.message).toMatch(/pool=spot for ps, and the template has mine/);
  });
});

describe('a job whose queue is somebody else’s matter', () => {
  it('obeys suspend from its creation, and what is written into its templates', () => {
    // This is what a reconciler made of Kueue's job framework writes: suspend, selectors, tolerations.
    const external = { schedulingPolicy: { admission: 'External' as const } };
    const waits = seenOf(queuedJob({ runPolicy: { ...external, suspend: true } }));
    const none = reconcile(waits);
    expect([created(none), actionsOf(none, 'apply')]).toEqual([[], []]);
    const template = {
      metadata: { labels: { 'kueue.x-k8s.io/podset': 'ps' } },
      spec: { nodeSelector: { pool: 'spot' }, tolerations: [{ key: 'spot', operator: 'Exists' }] },
    };
    const { job } = step(waits, none);
    const spec = queuedJob({ runPolicy: { ...external, suspend: false }, ps: { template } }).spec;
    const pods = created(reconcile({ ...waits, job: { ...job, spec } })) as unknown as Pod[];
    const ps = pods.filter(({ metadata }) => metadata.name.includes('-ps-'));
    expect(ps).toHaveLength(4);
    for (const { metadata, spec: made } of ps) {
      expect(metadata.labels).toMatchObject({ 'kueue.x-k8s.io/podset': 'ps' });
      expect(made).toMatchObject({ nodeSelector: { pool: 'spot' } });
      expect(made.tolerations).toContainEqual({ key: 'spot', operator: 'Exists' });
    }
  });

  it('is left alone where another controller runs it', () => {
    const job = queuedJob({ managedBy: 'kueue.x-k8s.io/multikueue' });
    expect(reconcile(seenOf(job))).toEqual([]);
    expect(reconcile(seenOf(queuedJob({ managedBy: 'kintsugi.dev/operator' })))).not.toEqual([]);
  });
});

it('beside Kueue: it waits, runs, is evicted, goes on with its checkpoint, and is suspended', async () => {
  const world = new World(7);
  const { server } = world;
  for (const flavor of FLAVORS) server.put('ResourceFlavor', flavor);
  const workload = (): QueuedWorkload => server.of<QueuedWorkload>('Workload')[0]!;
  const wrong: string[] = [];
  let before: QueuedWorkload | undefined;
  const onChange = server.onChange;
  server.onChange = (kind, object, gone) => {
    if (kind === 'Workload' && !gone) {
      wrong.push(...faults(before, object as QueuedWorkload));
      before = structuredClone(object as QueuedWorkload);
    }
    onChange(kind, object, gone);
  };
  world.start(queuedJob());
  await world.operator.start();
  await world.until(() => world.job().status?.phase === 'Suspended' && workload() !== undefined);
  expect(server.of<ObjectManifest>('Pod')).toEqual([]);
  server.put('Workload', admitted(workload()));
  await world.until(() => world.job().status?.phase === 'Running');
  await world.until(() => conditionIn(workload(), 'PodsReady')?.status === 'True');

  server.put('Workload', evicted(workload()));
  await world.until(() => conditionIn(workload(), 'QuotaReserved')?.status === 'False');
  expect(server.of<ObjectManifest>('Pod')).toEqual([]);
  expect(world.job().status).toMatchObject({ suspended: { place: '/shared/movies', checkpoint: 1 } });
  expect(conditionIn(workload(), 'Requeued')).toMatchObject({ status: 'True', reason: 'Preempted' });
  expect(conditionIn(workload(), 'Admitted')).toMatchObject({ status: 'False' });
  expect(workload().status).not.toHaveProperty('admission');

  // While it waits it may be edited.
  world.edit(({ spec }) => {
    spec.replicaSpecs.worker.replicas = 3;
  });
  await world.until(() =>
    workload().spec.podSets.some(({ name, count }) => name === 'worker' && count === 3),
  );
  server.put('Workload', admitted(workload()));
  await world.until(() => world.active('worker').length === 3 && world.job().status?.life === 2);
  expect(world.job().status).toMatchObject({ restore: '/shared/movies' });

  world.edit(({ spec }) => {
    spec.runPolicy.suspend = true;
  });
  await world.until(() => workload().spec.active === false);
  server.put('Workload', evicted(workload(), 'Deactivated'));
  await world.until(() => conditionIn(workload(), 'QuotaReserved')?.status === 'False');
  world.edit(({ spec }) => {
    spec.runPolicy.suspend = false;
  });
  await world.until(() => workload().spec.active === true);
  await world.operator.stop();
  expect([wrong, world.problems]).toEqual([[], []]);
});
