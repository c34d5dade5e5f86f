/** Workers of a job that waits for its user: what they end with does not count against `backoffLimit`. */
import { expect, it } from 'vitest';
import type { Pod, Terminated } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { podOf } from '../../../src/fleet/operator/reconcile/pods.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import {
  actionsOf,
  deleted,
  jobOf,
  lived,
  names,
  reportOf,
  running,
  START,
  schedulerPod,
  step,
} from './support.js';

const WORDS = {
  tokens: 'kintsugi: UNAUTHORIZED: 10.0.0.1:7077: the token is missing or wrong',
  away: 'kintsugi: UNREACHABLE: movies-scheduler:7077 has not answered for 30s',
  python: 'Traceback\nkintsugi._errors.Error: UNAUTHORIZED: 10.0.0.1:7077: the token is missing or wrong',
  crash: 'Segmentation fault',
};
type Cause = keyof typeof WORDS;
const exitOf = (cause: Cause, at = START): Partial<Terminated> => ({
  ...{ exitCode: cause === 'tokens' ? 2 : 1, message: WORDS[cause] },
  finishedAt: new Date(at).toISOString(),
});
const isOf = (role: string) => (pod: Pod) => pod.metadata.labels?.['kintsugi.dev/role'] === role;
const isWorker = isOf('worker');
const isAlive = ({ status }: Pod) => status?.phase === 'Running';

/** The job at this time as its scheduler tells of it; where it is away nobody does. */
const at = (now: number, observed: ObservedJob, led: boolean): ObservedJob => ({
  ...{ ...observed, now, secret: true, told: { ...observed.told!, at: now } },
  report: led ? reportOf(observed.pods) : undefined,
});
const isLed = (cause: Cause) => cause !== 'away';
/** Workers of a job that are alive end in this way. */
const endAll = (observed: ObservedJob, cause: Cause, when = observed.now): ObservedJob => ({
  ...observed,
  pods: observed.pods.map((pod) =>
    isWorker(pod) && isAlive(pod) ? lived(pod, { phase: 'Failed', exit: exitOf(cause, when) }) : pod,
  ),
});
const pass = (observed: ObservedJob): ObservedJob => step(observed, reconcile(observed));
const ended = (observed: ObservedJob) => observed.pods.filter(isWorker).filter((pod) => !isAlive(pod));
const limited = (backoffLimit: number, worker: object = {}) =>
  running(jobOf({ runPolicy: { backoffLimit }, worker }));

/** Has workers end again and again as soon as they are made. Pauses before these are made, in seconds. */
function failing(begin: ObservedJob, cause: Cause, turns: number) {
  let now = begin;
  const pauses: number[] = [];
  for (let turn = 0; turn < turns; turn++) {
    const failed = pass(at(now.now, endAll(now, cause), isLed(cause)));
    const [wake] = actionsOf(reconcile(failed), 'wake').filter((one) => one.at > failed.now);
    pauses.push(wake ? (wake.at - failed.now) / 1000 : 0);
    now = pass(at(wake?.at ?? failed.now, failed, isLed(cause)));
  }
  return { now, pauses };
}

it.each(['tokens', 'away', 'python'] as const)(
  'workers that end for want of %s are made again in ever longer pauses, and the job goes on afterwards',
  (cause) => {
    const { now, pauses } = failing(limited(0, { replicas: 1 }), cause, 20);
    expect(now.job.status).toMatchObject({ phase: 'Running', restartCount: 0 });
    expect(pauses).toEqual([0, 1, 2, 4, 8, 16, 32, ...Array(13).fill(60)]);
    // The logs of those that ended last stay.
    const left = names(ended(now)).map((name) => Number(name.split('-').at(-1)));
    expect(left).toEqual([10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);

    // The cause is mended.
    const begun = now.pods.map((pod) => (isAlive(pod) ? lived(pod, { startedAt: now.now }) : pod));
    let goesOn: ObservedJob = { ...now, pods: begun };
    for (let turn = 1; turn < 4; turn++) goesOn = pass(at(now.now + turn * 20_000, goesOn, true));
    const { status } = goesOn.job;
    expect(status).toMatchObject({ phase: 'Running', workers: '1/1', restartCount: 0 });
    expect(status!.reason).toBeUndefined();
    // A failure of its own counts, and there is another one at once.
    goesOn.job.spec.runPolicy.backoffLimit = 1;
    const exit = { ...exitOf('crash', now.now + 90_000), startedAt: new Date(now.now).toISOString() };
    const dead = goesOn.pods.map((pod) => (isAlive(pod) ? lived(pod, { phase: 'Failed', exit }) : pod));
    const others = goesOn.pods.filter((pod) => !isWorker(pod));
    const pods = [...others, ...dead.filter(isWorker)];
    const crashed = at(now.now + 100_000, { ...goesOn, pods }, true);
    expect(step(crashed, reconcile(crashed)).job.status).toMatchObject({ restartCount: 1 });
    expect(actionsOf(reconcile(crashed), 'create')).toHaveLength(1);
  },
);

it('what had ended before the scheduler began that leads does not count, also when it is seen late', () => {
  const began = START + 60_000;
  const seen = (end: number) => {
    const observed = endAll(limited(1, { replicas: 4 }), 'away', end);
    const pods = [...observed.pods, lived(schedulerPod(), { startedAt: began })];
    const late = at(began + 5000, { ...observed, pods }, true);
    return step(late, reconcile(late)).job.status;
  };
  expect(seen(began - 30_000)).toMatchObject({ phase: 'Running', restartCount: 0 });
  expect(seen(began + 1000)).toMatchObject({ phase: 'Failed', reason: 'BackoffLimitExceeded' });
});

it.each(['tokens', 'away'] as const)(
  'restarts in Pods for want of %s do not count, and others do',
  (cause) => {
    let now = at(START, limited(3, { replicas: 1, restartPolicy: 'OnFailure' }), isLed(cause));
    const ends = (why: Cause, restarts: number, again: boolean) => {
      const life = again ? { again } : { ready: false, waiting: 'CrashLoopBackOff' };
      const exit = exitOf(why, now.now);
      const pods = now.pods.map((pod) => (isWorker(pod) ? lived(pod, { exit, restarts, ...life }) : pod));
      now = pass(at(now.now, { ...now, pods }, again || isLed(why)));
      return now.job.status!;
    };
    // Two of its own.
    expect(ends('crash', 2, true)).toMatchObject({ phase: 'Running' });
    expect(ends(cause, 2, false)).toMatchObject({ phase: 'Running' });
    expect(ends(cause, 9, false)).toMatchObject({ phase: 'Running' });
    // The worker serves again, and the end before is that for which it was excused.
    expect(ends(cause, 10, true)).toMatchObject({ phase: 'Running' });
    expect(ends('crash', 11, true)).toMatchObject({ phase: 'Running' });
    expect(ends('crash', 12, true)).toMatchObject({ phase: 'Failed', reason: 'BackoffLimitExceeded' });
  },
);

it('a scheduler that stood by leads from when it is ready, and what ended before does not count', () => {
  const leads = START + 60_000;
  const seen = (end: number) => {
    const observed = endAll(limited(1, { replicas: 4 }), 'away', end);
    const scheduler = lived(schedulerPod(), { startedAt: START });
    scheduler.status!.conditions![0]!.lastTransitionTime = new Date(leads).toISOString();
    const late = at(leads + 5000, { ...observed, pods: [...observed.pods, scheduler] }, true);
    return step(late, reconcile(late)).job.status;
  };
  expect(seen(leads - 5000)).toMatchObject({ phase: 'Running', restartCount: 0 });
  expect(seen(leads + 1000)).toMatchObject({ phase: 'Failed', reason: 'BackoffLimitExceeded' });
});

it('an end that was excused stays so when the Pod is said to have failed later', () => {
  const observed = limited(0, { replicas: 1 });
  const worker = (life: Parameters<typeof lived>[1]) =>
    observed.pods.map((pod) => (isWorker(pod) ? lived(pod, life) : pod));
  const exit = exitOf('away');
  const waits = pass(at(START, { ...observed, pods: worker({ exit, ready: false }) }, false));
  expect(waits.job.status!.workerEnds).toEqual({ 'movies-worker-0': { seen: 1, excused: 1 } });
  const pods = worker({ phase: 'Failed', exit });
  const led = pass(at(START + 1000, { ...waits, pods }, true));
  expect(led.job.status).toMatchObject({ phase: 'Running', excusedPods: ['movies-worker-0'] });
});

it('an operator that comes late excuses ends for want of tokens of workers that run again', () => {
  const observed = limited(2, { replicas: 1, restartPolicy: 'OnFailure' });
  const pods = observed.pods.map((pod) =>
    isWorker(pod) ? lived(pod, { exit: exitOf('tokens'), restarts: 5, again: true }) : pod,
  );
  const late = at(START, { ...observed, pods }, true);
  expect(step(late, reconcile(late)).job.status).toMatchObject({ phase: 'Running' });
});

it('workers count that do not reach a scheduler that leads, and those of a job that never formed', () => {
  const led = pass(at(START, endAll(limited(1), 'away'), true));
  expect(led.job.status).toMatchObject({ phase: 'Failed', reason: 'BackoffLimitExceeded' });
  const never = limited(1);
  const { formed: _, guarded: __, ...status } = never.job.status!;
  never.job.status = { ...status, phase: 'Pending' };
  never.pods = never.pods.map((pod) => (isWorker(pod) ? pod : lived(pod, { ready: false })));
  const alone = pass(at(START, endAll(never, 'away'), false));
  expect(alone.job.status).toMatchObject({ phase: 'Failed', reason: 'BackoffLimitExceeded' });
});

it('Pods whose failure counted stay when the scheduler goes', () => {
  const { now } = failing(limited(100, { replicas: 1 }), 'crash', 15);
  expect(now.job.status).toMatchObject({ restartCount: 15 });
  const away = endAll(now, 'away');
  expect(deleted(reconcile(at(now.now + 1000, away, false)))).toEqual([]);
  const then = pass(at(now.now + 1000, away, false));
  expect(then.job.status).toMatchObject({ restartCount: 15 });
  expect(then.job.status!.excusedPods).toHaveLength(1);
});

it('PS that are refused for good count: they would be made again without an end', () => {
  const job = jobOf({ runPolicy: { backoffLimit: 3 }, ps: { restartPolicy: 'Never' } });
  let now = at(START, running(job), true);
  const one = names(now.pods.filter(isOf('ps')))[0];
  for (let turn = 0; turn < 10 && now.job.status?.phase !== 'Failed'; turn++) {
    const fresh = (pod: Pod) => pod.metadata.name === one || Number(pod.metadata.name.split('-').at(-1)) > 3;
    const pods = now.pods.map((pod) =>
      isOf('ps')(pod) && fresh(pod) ? lived(pod, { phase: 'Failed', exit: exitOf('tokens') }) : pod,
    );
    now = pass(at(now.now + 1000, { ...now, pods }, true));
  }
  expect(now.job.status).toMatchObject({ phase: 'Failed', reason: 'BackoffLimitExceeded' });
});

/** A worker was refused, and its Pod stays. */
function refused(): ObservedJob {
  const observed = at(START, running(), true);
  const worker = observed.pods.find(isWorker)!;
  const failed = lived(worker, { phase: 'Failed', exit: exitOf('tokens') });
  return { ...observed, pods: observed.pods.map((pod) => (pod === worker ? failed : pod)) };
}
const stuckIn = ({ job }: ObservedJob) =>
  job.status!.conditions?.find(({ type }) => type === 'Stuck')?.status ?? 'False';

it('a Pod that was refused keeps no job stuck when a process that began later serves', () => {
  const stuck = pass(refused());
  expect(stuck.job.status).toMatchObject({ reason: 'Secret' });
  let wakes: number[] = [];
  const later = (now: number) => {
    const made = lived(podOf(stuck.job, 'worker', 9), { startedAt: START + 1000 });
    const pods = [...stuck.pods.filter((pod) => pod.metadata.name !== 'movies-worker-2'), made];
    const seen = at(now, { ...stuck, pods }, true);
    wakes = actionsOf(reconcile(seen), 'wake').map((one) => one.at);
    return stuckIn(pass(seen));
  };
  // One without a probe is ready before it is refused.
  expect(later(START + 2000)).toBe('True');
  expect(wakes).toContain(START + 11_000);
  expect(later(START + 12_000)).toBe('False');
});

it('nor when nobody wants another one in its place', () => {
  const stuck = pass(refused());
  stuck.job.spec.replicaSpecs.worker.replicas = 1;
  const pods = stuck.pods.filter((pod) => pod.metadata.name !== 'movies-worker-2');
  expect(stuckIn(pass(at(START + 12_000, { ...stuck, pods }, true)))).toBe('False');
});
