/** Objects of a job, as its policies shape them. */
import { describe, expect, it } from 'vitest';
import type { ObjectManifest, Pod } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import { actionsOf, created, deleted, jobOf, lived, observedOf, reportOf, step } from './support.js';

type StatefulSet = ObjectManifest & {
  spec: {
    replicas: number;
    podManagementPolicy?: string;
    volumeClaimTemplates?: object[];
    persistentVolumeClaimRetentionPolicy: object;
    template: { spec: { volumes: object[]; containers: { args: string[]; volumeMounts: object[] }[] } };
  };
};
const kept = { size: '1Gi', deletionPolicy: 'Delete' as const };
const setOf = (store: object, job = jobOf({ scheduler: { store: { ...kept, ...store } } })): StatefulSet =>
  actionsOf(reconcile(observedOf({ job })), 'apply').find(({ object }) => object.kind === 'StatefulSet')!
    .object as unknown as StatefulSet;

describe('the store of a scheduler', () => {
  it('is a claim of its own, which may stay', () => {
    const { spec } = setOf({ deletionPolicy: 'Retain' });
    expect(spec.volumeClaimTemplates).toHaveLength(1);
    expect(spec.persistentVolumeClaimRetentionPolicy).toEqual({
      whenDeleted: 'Retain',
      whenScaled: 'Retain',
    });
  });

  it('is a claim that is there already', () => {
    const { spec } = setOf({ claimName: 'mine' });
    expect(spec.volumeClaimTemplates).toBeUndefined();
    expect(spec.template.spec.volumes).toContainEqual({
      ...{ name: 'state', persistentVolumeClaim: { claimName: 'mine' } },
    });
  });

  it('is etcd, and then there are several schedulers, whose names everybody has', () => {
    const etcd = { url: 'etcd://etcd:2379/movies', schedulers: 2 };
    const { spec } = setOf({ etcd });
    expect(spec).toMatchObject({ replicas: 2, podManagementPolicy: 'Parallel' });
    const [container] = spec.template.spec.containers;
    expect(container!.args.join(' ')).toContain(
      '--store etcd://etcd:2379/movies --store-lease 2s --advertise $(POD_IP):7077',
    );
    expect(container!.args).not.toContain('--dir');
    expect(container!.volumeMounts).toEqual([{ name: 'tmp', mountPath: '/tmp' }]);
    const job = jobOf({ scheduler: { store: { ...kept, etcd } } });
    const [ps] = created(reconcile(observedOf({ job }))) as unknown as Pod[];
    const env = ps!.spec.containers![0]!.env!.find(({ name }) => name === 'KINTSUGI_SCHEDULER');
    const at = (index: number) => `movies-scheduler-${index}.movies-scheduler.ml.svc:7077`;
    expect(env!.value).toBe(`${at(0)},${at(1)}`);
  });
});

it.each([
  ['node', '$(NODE_NAME)', false],
  ['zone', '$(ZONE)', true],
  ['zone/node', '$(ZONE)/$(NODE_NAME)', true],
] as const)('PS whose failure domain is the %s have the label %s', (failureDomain, label, needsZone) => {
  const pods = created(reconcile(observedOf({ job: jobOf({ failureDomain }) }))) as unknown as Pod[];
  const [{ args, env } = {}] = pods[0]!.spec.containers!;
  expect(args![args!.indexOf('--host-label') + 1]).toBe(label);
  expect(env!.some(({ name }) => name === 'ZONE')).toBe(needsZone);
});

it('a priority class and commands are those of all Pods of a role', () => {
  const job = jobOf({
    runPolicy: { schedulingPolicy: { priorityClass: 'high' } },
    ps: { command: ['my-ps'], args: ['--fast'] },
  });
  const pods = created(reconcile(observedOf({ job }))) as unknown as Pod[];
  for (const { spec } of pods) expect(spec.priorityClassName).toBe('high');
  expect(pods[0]!.spec.containers![0]).toMatchObject({ command: ['my-ps'], args: ['--fast'] });
});

it('an empty command is none, as Kubernetes has it', () => {
  const job = jobOf({ ps: { command: [], args: ['--fast'] }, worker: { command: [] } });
  job.spec.replicaSpecs.scheduler.command = [];
  const pods = created(reconcile(observedOf({ job }))) as unknown as Pod[];
  expect(pods.map(({ spec }) => spec.containers![0]!.args![0])).toEqual([
    ...['ps', 'ps', 'ps', 'ps', 'worker', 'worker'],
  ]);
  expect(pods[0]!.spec.containers![0]).toMatchObject({ command: ['kintsugi'] });
  expect(setOf({}, job).spec.template.spec.containers[0]!.args[0]).toBe('scheduler');
  // Keys in etcd are removed as those of any other job.
  const etcd = { url: 'etcd://etcd:2379/movies', schedulers: 2 };
  job.spec.scheduler.store = { ...kept, etcd };
  expect(actionsOf(reconcile(observedOf({ job })), 'hold')).toEqual([{ kind: 'hold', held: true }]);
});

it('a worker of a job that has ended has the time that its template says', () => {
  const spec = { terminationGracePeriodSeconds: 120 };
  for (const [template, graceSeconds] of [
    [undefined, 1],
    [{ spec: {} }, 1],
    [{ spec }, undefined],
  ] as const) {
    const job = jobOf({ worker: { ...(template ? { template } : {}) } });
    const first = observedOf({ job });
    const begun = step(first, reconcile(first));
    const phase = 'Failed' as const;
    begun.job.status = { ...begun.job.status, phase };
    const ends = actionsOf(reconcile(begun), 'delete').filter(({ object }) =>
      object.metadata.name.includes('worker'),
    );
    expect(ends.map((one) => one.graceSeconds)).toEqual([graceSeconds, graceSeconds]);
  }
});

it('a Pod that failed is told of until another one has its place', () => {
  const first = observedOf({ job: jobOf() });
  let observed = step(first, reconcile(first));
  observed = { ...observed, report: reportOf(observed.pods) };
  observed = step(observed, reconcile(observed));
  const exit = { exitCode: 137, signal: 9 };
  const pods = observed.pods.map((pod) =>
    pod.metadata.name === 'movies-worker-0' ? lived(pod, { phase: 'Failed', exit }) : pod,
  );
  const failed = { ...observed, pods };
  const actions = reconcile(failed);
  const reasons = (one: ObservedJob) =>
    one.job.status!.conditions!.filter(({ type }) => type === 'Restarting').map(({ reason }) => reason);
  expect(actionsOf(actions, 'event')).toMatchObject([
    { reason: 'RestartingPodFailed', message: 'movies-worker-0: exit code 137 (signal 9)' },
  ]);
  const replaced = step(failed, actions);
  expect(reasons(replaced)).toEqual(['PodFailed']);
  expect(reasons(step(replaced, reconcile(replaced)))).toEqual(['Settled']);
});

describe('a scheduling policy', () => {
  const schedulingPolicy = { queue: 'ads', schedulerName: 'volcano', priorityClass: 'high' };
  const job = jobOf({ runPolicy: { schedulingPolicy } });

  it('names the queue to Kueue and to Volcano, on every Pod', () => {
    const set = setOf({}, job);
    const pods = created(reconcile(observedOf({ job }))) as unknown as Pod[];
    for (const { metadata, spec } of [set.spec.template as unknown as Pod, ...pods]) {
      expect(metadata.labels).toMatchObject({ 'kueue.x-k8s.io/queue-name': 'ads' });
      expect(metadata.annotations).toMatchObject({
        'scheduling.volcano.sh/queue-name': 'ads',
      });
      expect(spec).toMatchObject({ schedulerName: 'volcano', priorityClassName: 'high' });
    }
  });

  it('is nothing on Pods of a job without one', () => {
    const [pod] = created(reconcile(observedOf())) as unknown as Pod[];
    expect(pod!.metadata.annotations).toBeUndefined();
    expect(Object.keys(pod!.metadata.labels!).every((key) => !key.includes('kueue'))).toBe(true);
  });
});

describe('restarts by role', () => {
  const runs = (given: Parameters<typeof jobOf>[0]): ObservedJob => {
    const first = observedOf({ job: jobOf(given) });
    const then = step(first, reconcile(first));
    const observed = { ...then, report: reportOf(then.pods) };
    return step(observed, reconcile(observed));
  };
  const withPod = (observed: ObservedJob, name: string, life: Parameters<typeof lived>[1]): ObservedJob => ({
    ...observed,
    pods: observed.pods.map((pod) => (pod.metadata.name === name ? lived(pod, life) : pod)),
  });
  const failure = ({ job }: ObservedJob) => job.status!.conditions!.find(({ type }) => type === 'Failed');
  const passed = (observed: ObservedJob): ObservedJob => step(observed, reconcile(observed));
  const policy = (observed: ObservedJob, name: string): string | undefined =>
    observed.pods.find(({ metadata }) => metadata.name === name)?.spec.restartPolicy;

  it('PS begin again in their Pods and workers do not, unless the job says otherwise', () => {
    const usual = runs({});
    expect([policy(usual, 'movies-ps-0'), policy(usual, 'movies-worker-0')]).toEqual(['OnFailure', 'Never']);
    const other = runs({ ps: { restartPolicy: 'Never' }, worker: { restartPolicy: 'OnFailure' } });
    expect([policy(other, 'movies-ps-0'), policy(other, 'movies-worker-0')]).toEqual(['Never', 'OnFailure']);
    const failed = withPod(other, 'movies-ps-0', { phase: 'Failed', exit: { exitCode: 1 } });
    const actions = reconcile(failed);
    expect(created(actions).map(({ metadata }) => metadata.name)).toEqual(['movies-ps-4']);
    expect(step(failed, actions).job.status).toMatchObject({
      restarts: { ps: 1, worker: 0 },
      restartCount: 1,
    });
    expect(deleted(reconcile(step(failed, actions)))).toEqual(['movies-ps-0']);
  });

  it('more failures of a role than it may have end the job', () => {
    const observed = runs({ worker: { restartCount: 0 }, runPolicy: { backoffLimit: 6 } });
    const ended = passed(withPod(observed, 'movies-worker-1', { phase: 'Failed', exit: { exitCode: 1 } }));
    expect(failure(ended)).toMatchObject({
      reason: 'BackoffLimitExceeded',
      message: '1 workers failed, and 0 may; movies-worker-1: exit code 1 (Error)',
    });
  });

  it('a worker that begins again in its Pod counts as often as it does, and code 2 ends the job', () => {
    const given = { worker: { restartPolicy: 'OnFailure' as const }, runPolicy: { backoffLimit: 1 } };
    const again = { exit: { exitCode: 1 }, again: true };
    const once = passed(withPod(runs(given), 'movies-worker-0', { ...again, restarts: 1 }));
    expect(once.job.status!.phase).toBe('Running');
    expect(failure(passed(withPod(once, 'movies-worker-0', { ...again, restarts: 2 })))!.message).toBe(
      '2 Pods failed, and 1 may; movies-worker-0: exit code 1 (Error)',
    );
    const bad = { exitCode: 2, message: 'kintsugi: BAD_DATA: line 7' };
    const life = { exit: bad, waiting: 'CrashLoopBackOff', ready: false, restarts: 1 };
    expect(failure(passed(withPod(once, 'movies-worker-1', life)))).toMatchObject({ reason: 'BadInput' });
  });
});
