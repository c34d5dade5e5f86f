/** Workers of a job that waits for its user: what they end with does not count against `backoffLimit`. */
import { expect, it } from 'vitest';
import type { Pod, Terminated } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { podOf } from '../../../src/fleet/operator/reconcile/pods.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import { actionsOf, lived, reportOf, running, START, step } from './support.js';

const ROLE = 'kintsugi.dev/role';
const ENDS = {
  tokens: 'kintsugi: UNAUTHORIZED: 10.0.0.1:7077: the token is missing or wrong',
  away: 'kintsugi: UNREACHABLE: movies-scheduler:7077 has not answered for 30s',
};
type Cause = keyof typeof ENDS;
const exitOf = (cause: Cause): Partial<Terminated> => ({
  ...{ exitCode: cause === 'tokens' ? 2 : 1, message: ENDS[cause] },
  finishedAt: new Date(START).toISOString(),
});
const isWorker = ({ metadata }: Pod) => metadata.labels?.[ROLE] === 'worker';
const indexOf = ({ metadata }: Pod) => Number(metadata.name.split('-').at(-1));

/** A pass, after which each Pod that it made has begun as `life` says. */
function pass(observed: ObservedJob, change: (pod: Pod) => Pod): ObservedJob {
  const then = step(observed, reconcile(observed));
  const now = then.now + 120_000;
  return { ...then, secret: true, now, told: { ...then.told!, at: now }, pods: then.pods.map(change) };
}
const fails = (cause: Cause) => (pod: Pod) =>
  isWorker(pod) ? lived(pod, { phase: 'Failed', exit: exitOf(cause) }) : pod;
/** The job as its scheduler tells of it; where it is away nobody does. */
const told = (observed: ObservedJob, cause: Cause): ObservedJob => ({
  ...{ ...observed, secret: true },
  report: cause === 'away' ? undefined : reportOf(observed.pods),
});

it.each(['tokens', 'away'] as const)(
  'workers that end for want of %s are made again in ever longer pauses, and the job goes on afterwards',
  (cause) => {
    let now = told(running(), cause);
    for (let turn = 0; turn < 20; turn++) now = told(pass(now, fails(cause)), cause);
    expect(now.job.status).toMatchObject({ phase: 'Running' });
    expect(now.job.status!.restartCount ?? 0).toBe(0);
    const { pods } = now;
    const newest = Math.max(...pods.filter(isWorker).map(indexOf));
    // Both are tried again, in pauses of at most a minute, and the logs of some of them stay.
    expect(newest).toBeGreaterThan(20);
    expect(pods.filter(isWorker).length).toBeLessThan(16);
    const soon = { ...now, now: START + 59_000 };
    expect(actionsOf(reconcile(soon), 'create')).toEqual([]);
    expect(actionsOf(reconcile(soon), 'wake').map(({ at }) => at)).toContain(START + 60_000);

    // The cause is mended.
    let goesOn: ObservedJob = { ...step(now, reconcile(now)), secret: true };
    const begun = (pod: Pod) => (pod.status?.phase === 'Running' ? lived(pod, { startedAt: now.now }) : pod);
    goesOn = { ...goesOn, pods: goesOn.pods.map(begun) };
    for (let turn = 0; turn < 3; turn++) {
      goesOn = { ...goesOn, report: reportOf(goesOn.pods) };
      goesOn = { ...step(goesOn, reconcile(goesOn)), secret: true };
    }
    expect(goesOn.job.status).toMatchObject({ phase: 'Running', workers: '2/2' });
    expect(goesOn.job.status!.restartCount ?? 0).toBe(0);
    expect(goesOn.job.status!.reason).toBeUndefined();
  },
);

it.each(['tokens', 'away'] as const)(
  'restarts of workers in their Pods for want of %s do not count, and later ones do',
  (cause) => {
    const observed = told(running(), cause);
    observed.job.spec.replicaSpecs.worker.restartPolicy = 'OnFailure';
    const workers = (life: Parameters<typeof lived>[1]) =>
      observed.pods.map((pod) => (isWorker(pod) ? lived(pod, life) : pod));
    const waits = { ready: false, exit: exitOf(cause), waiting: 'CrashLoopBackOff', restarts: 7 };
    const refused = { ...observed, pods: workers(waits) };
    const then = { ...step(refused, reconcile(refused)), secret: true };
    expect(then.job.status).toMatchObject({ phase: 'Running' });
    const after = (restarts: number) => {
      const pods = workers({ again: true, ready: true, exit: exitOf(cause), restarts });
      const seen = { ...then, pods, report: reportOf(pods) };
      return step(seen, reconcile(seen)).job.status;
    };
    // The one that waited has begun once more. The limit of the job is 2.
    expect(after(8)).toMatchObject({ phase: 'Running' });
    expect(after(9)).toMatchObject({ phase: 'Running' });
    expect(after(10)).toMatchObject({ phase: 'Failed', reason: 'BackoffLimitExceeded' });
  },
);

it('workers count that do not reach a scheduler that leads, and those of a job that never formed', () => {
  const failed = (observed: ObservedJob) => {
    let now = observed;
    for (let turn = 0; turn < 5 && now.job.status?.phase !== 'Failed'; turn++) {
      const { report } = now;
      now = pass(now, fails('away'));
      now = { ...now, report: report && reportOf(now.pods, { redundancy: report.redundancy }) };
    }
    return now.job.status;
  };
  expect(failed(told(running(), 'tokens'))).toMatchObject({
    ...{ phase: 'Failed', reason: 'BackoffLimitExceeded' },
  });
  const never = told(running(), 'away');
  const { formed: _, guarded: __, ...status } = never.job.status!;
  never.job.status = { ...status, phase: 'Pending' };
  never.pods = never.pods.map((pod) => (isWorker(pod) ? pod : lived(pod, { ready: false })));
  expect(failed(never)).toMatchObject({ phase: 'Failed', reason: 'BackoffLimitExceeded' });
});

it('a Pod that failed for its tokens keeps no job stuck when a later one serves', () => {
  const observed = told(running(), 'tokens');
  const { job } = observed;
  const worker = observed.pods.find(isWorker)!;
  const failed = lived(worker, { phase: 'Failed', exit: exitOf('tokens') });
  const before = observed.pods.map((pod) => (pod === worker ? failed : pod));
  const stuck = step({ ...observed, pods: before }, reconcile({ ...observed, pods: before }));
  expect(stuck.job.status).toMatchObject({ reason: 'Secret' });
  const later = lived(podOf({ ...job, status: stuck.job.status! }, 'worker', 9), { startedAt: START + 1000 });
  const pods = [...before, later];
  const seen = { ...stuck, secret: true, pods, report: reportOf(pods) };
  const status = step(seen, reconcile(seen)).job.status!;
  expect(status.reason).toBeUndefined();
  expect(status.conditions?.find(({ type }) => type === 'Stuck')).toMatchObject({ status: 'False' });
});
