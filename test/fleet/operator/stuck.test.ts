/** A job that does not go on says why. */
import { describe, expect, it } from 'vitest';
import type { ContainerStatus, KubeObject, Pod } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import { MOUNT_MS } from '../../../src/fleet/operator/reconcile/stuck.js';
import { actionsOf, created, jobOf, lived, names, observedOf, running, START, step } from './support.js';

const conditionOf = ({ job }: ObservedJob) => job.status!.conditions!.find(({ type }) => type === 'Stuck');
const passed = (observed: ObservedJob): ObservedJob => step(observed, reconcile(observed));
const withPod = (
  observed: ObservedJob,
  name: string,
  status: Partial<Pod['status'] & object>,
): ObservedJob => ({
  ...observed,
  pods: observed.pods.map((pod) =>
    pod.metadata.name === name ? { ...lived(pod, { phase: 'Pending' }), status } : pod,
  ),
});
const waiting = (reason: string, message: string, more: Partial<ContainerStatus> = {}): ContainerStatus => ({
  ...{ name: 'kintsugi', ready: false, restartCount: 0, state: { waiting: { reason, message } } },
  ...more,
});
const NEW = 'movies-ps-1';
/** A job of which one Pod has this status. */
const withStatus = (status: object): ObservedJob =>
  passed(withPod(running(), NEW, { phase: 'Pending', ...status }));
const unplaced = (message: string, reason = 'Unschedulable') => ({
  conditions: [{ type: 'PodScheduled', status: 'False', reason, message }],
});
const crashed = (message: string) =>
  waiting('CrashLoopBackOff', 'back-off 10s', {
    lastState: { terminated: { exitCode: 2, reason: 'Error', message } },
  });

describe('a job is stuck', () => {
  it.each([
    ['Unschedulable', unplaced('0/3 nodes are available: 3 Insufficient memory.')],
    ['Volume', unplaced('0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.')],
    ['Volume', unplaced('persistentvolumeclaim "data" not found')],
    ['Gated', unplaced('Scheduling is blocked due to non-empty scheduling gates', 'SchedulingGated')],
    ['Image', { containerStatuses: [waiting('ImagePullBackOff', 'Back-off pulling image "x"')] }],
    ['Image', { containerStatuses: [waiting('ErrImageNeverPull', 'Container image "x" is not present')] }],
    ['Image', { initContainerStatuses: [waiting('ErrImagePull', 'not found', { name: 'own' })] }],
    ['Secret', { containerStatuses: [waiting('CreateContainerConfigError', 'secret "t" not found')] }],
    ['Config', { containerStatuses: [waiting('CreateContainerConfigError', 'configmap "c" not found')] }],
    ['Crashing', { containerStatuses: [crashed('kintsugi: UNREACHABLE: nobody')] }],
    [
      'Volume',
      {
        containerStatuses: [
          crashed('kintsugi: STORE_FAILED: cannot use "/x": EACCES: permission denied, mkdir "/x"'),
        ],
      },
    ],
  ])('%s', (reason, status) => {
    const observed = withStatus(status);
    expect(conditionOf(observed)).toMatchObject({ status: 'True', reason });
    expect(conditionOf(observed)!.message).toMatch(/^movies-ps-1: ./);
    expect(observed.job.status!.reason).toBe(reason);
    // The next pass writes and tells nothing.
    expect(actionsOf(reconcile(observed), 'status')).toEqual([]);
    expect(actionsOf(reconcile(observed), 'event')).toEqual([]);
  });

  it('for a volume that is not writable, with what to do', () => {
    const observed = withStatus({
      containerStatuses: [crashed('kintsugi: PLACE_FAILED: /c: EROFS: read-only')],
    });
    expect(conditionOf(observed)!.message).toContain('securityContext.fsGroup');
  });

  it('that has ended again and again, and not one that served between its ends', () => {
    const minutes = (ago: number) => new Date(START - ago * 60_000).toISOString();
    const ended = (from: number, to: number, state: ContainerStatus['state']) => {
      const terminated = { exitCode: 137, startedAt: minutes(from), finishedAt: minutes(to) };
      const container = { ...waiting('', ''), restartCount: 2, state, lastState: { terminated } };
      return conditionOf(
        passed(withPod(running(), NEW, { phase: 'Running', containerStatuses: [container as never] })),
      )?.reason;
    };
    const since = (ago: number) => ({ running: { startedAt: minutes(ago) } });
    expect(ended(2, 1, since(1))).toBe('Crashing');
    // A role waits ten minutes for its job before it ends.
    expect(ended(12, 1, since(1))).toBe('Crashing');
    // The process before served for a week.
    expect(ended(10_000, 1, since(1))).toBeUndefined();
    // Both ends were long ago, and the process has run since.
    expect(ended(10_003, 10_001, since(10_000))).toBeUndefined();
  });

  it('until it goes on, and says so', () => {
    const observed = withStatus(unplaced('0/3 nodes are available'));
    const again = passed({ ...observed, pods: running().pods });
    expect(conditionOf(again)).toMatchObject({ status: 'False', reason: 'Settled' });
    expect(again.job.status!.reason).toBeUndefined();
    expect(conditionOf(running())).toBeUndefined();
  });

  it('and one event tells of each new reason', () => {
    const observed = withPod(running(), NEW, { phase: 'Pending', ...unplaced('none') });
    expect(actionsOf(reconcile(observed), 'event')).toEqual([
      {
        ...{ kind: 'event', type: 'Warning', reason: 'StuckUnschedulable', counted: true },
        message: 'movies-ps-1: none',
      },
    ]);
  });

  it('for the most serious of its problems, and says how many have it, too', () => {
    const first = withPod(running(), 'movies-ps-0', { phase: 'Pending', ...unplaced('none') });
    const image = { containerStatuses: [waiting('ErrImagePull', 'no such image')] };
    const observed = passed(
      withPod(withPod(first, NEW, { phase: 'Pending', ...image }), 'movies-ps-2', {
        phase: 'Pending',
        ...image,
      }),
    );
    expect(conditionOf(observed)).toMatchObject({
      reason: 'Image',
      message: 'movies-ps-1: kintsugi: ErrImagePull: no such image (and 1 more)',
    });
  });

  it('for what a machine says of a Pod whose containers do not begin', () => {
    const placed = (at: number) => ({
      phase: 'Pending' as const,
      conditions: [{ type: 'PodScheduled', status: 'True', lastTransitionTime: new Date(at).toISOString() }],
    });
    const troubles = new Map([[NEW, 'MountVolume.SetUp failed for volume "tls" : secret "tls" not found']]);
    const early = { ...withPod(running(), NEW, placed(START)), troubles };
    expect(conditionOf(passed(early))).toBeUndefined();
    expect(actionsOf(reconcile(early), 'wake')).toContainEqual({ kind: 'wake', at: START + MOUNT_MS });
    const late = passed({ ...withPod(running(), NEW, placed(START - MOUNT_MS)), troubles });
    expect(conditionOf(late)).toMatchObject({ reason: 'Secret' });
  });
});

describe('what the API server does not take', () => {
  const refusalOf = (object: KubeObject, message: string) => ({ object, status: 403, message, unmade: true });
  const first = observedOf();
  const [ps] = created(reconcile(first));

  it.each([
    ['Quota', 'pods "movies-ps-0" is forbidden: exceeded quota: few, requested: pods=1, used: pods=0'],
    ['Quota', 'pods "movies-ps-0" is forbidden: failed quota: few: must specify limits.memory'],
    ['Admission', 'admission webhook "w.example.com" denied the request: no'],
    ['Admission', 'pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged'],
    ['Refused', 'Pod in version "v1" cannot be handled: strict decoding error: unknown field "spec.volums"'],
  ])('%s', (reason, message) => {
    const then = passed({ ...first, refusals: [refusalOf(ps!, message)] });
    expect(conditionOf(then)).toMatchObject({
      status: 'True',
      reason,
      message: `Pod movies-ps-0: ${message}`,
    });
    // The refusal has an event of its own.
    const told = actionsOf(reconcile({ ...first, refusals: [refusalOf(ps!, message)] }), 'event');
    expect(told.filter((one) => one.reason.startsWith('Stuck'))).toEqual([]);
  });

  it('keeps nobody who does not want it any more', () => {
    expect(
      conditionOf(passed({ ...running(), refusals: [refusalOf(ps!, 'exceeded quota')] })),
    ).toBeUndefined();
  });

  it('is asked about the Pod of a scheduler that does not come', () => {
    const creationTimestamp = new Date(START).toISOString();
    const begun = passed(first);
    const owned = begun.owned.map((one) => ({ ...one, metadata: { ...one.metadata, creationTimestamp } }));
    const young = reconcile({ ...begun, owned });
    expect(actionsOf(young, 'try')).toEqual([]);
    const [wake] = actionsOf(young, 'wake');
    const later = { ...begun, owned, now: wake!.at };
    const [tried] = actionsOf(reconcile(later), 'try');
    expect(tried!.object).toMatchObject({
      metadata: { name: 'movies-scheduler-0', labels: { 'kintsugi.dev/role': 'scheduler' } },
      spec: {
        volumes: expect.arrayContaining([
          { name: 'state', persistentVolumeClaim: { claimName: 'state-movies-scheduler-0' } },
        ]),
      },
    });
    const refused = passed({ ...later, refusals: [refusalOf(tried!.object, 'exceeded quota: few')] });
    expect(conditionOf(refused)).toMatchObject({ reason: 'Quota' });
    expect(actionsOf(reconcile({ ...running(), now: later.now }), 'try')).toEqual([]);
  });
});

describe('a template with directives of a patch', () => {
  const bad = { template: { spec: { volumes: [{ name: 'tmp', $patch: 'delete' } as { name: string }] } } };

  it('keeps its role from new Pods, and no other', () => {
    const actions = reconcile(observedOf({ job: jobOf({ worker: bad }) }));
    expect(names(created(actions))).toEqual(['movies-ps-0', 'movies-ps-1', 'movies-ps-2', 'movies-ps-3']);
    const { status } = actionsOf(actions, 'status')[0]!;
    expect(status.nextIndex).toEqual({ ps: 4, worker: 0 });
    const stuck = status.conditions!.find(({ type }) => type === 'Stuck')!;
    expect(stuck).toMatchObject({ status: 'True', reason: 'BadTemplate' });
    expect(stuck.message).toContain('"replicaSpecs.worker.template.spec.volumes[0].$patch" is a directive');
  });

  it('leaves a scheduler that runs as it is', () => {
    const observed = running();
    observed.job.spec.replicaSpecs.scheduler = bad;
    const actions = reconcile(observed);
    expect(actionsOf(actions, 'apply')).toEqual([]);
    expect(actionsOf(actions, 'status')[0]!.status.reason).toBe('BadTemplate');
  });
});
