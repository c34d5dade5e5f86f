/** A job whose place has the state of another one: it waits and says so, and does what its spec says then. */
import { describe, expect, it } from 'vitest';
import type { Pod } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import type { TrainingJob } from '../../../src/fleet/operator/types.js';
import { actionsOf, deleted, jobOf, lived, observedOf, step } from './support.js';

const REFUSED =
  '{"event":"scheduler.store"}\nkintsugi: FOREIGN_STATE: the state there is that of job uid-old (1-2-3), ' +
  'and this scheduler is for job uid-movies. What to do: give it another place, or --foreign-state adopt';

const ofChoice = (foreignState?: 'refuse' | 'adopt' | 'discard', etcd = false): TrainingJob => {
  const job = jobOf();
  if (foreignState) job.spec.scheduler.foreignState = foreignState;
  if (etcd) job.spec.scheduler.store.etcd = { url: 'etcd://e:2379/movies', schedulers: 2 };
  return job;
};

/** The Pods that a StatefulSet makes of its template. */
function schedulersOf(observed: ObservedJob, count = 1): Pod[] {
  const set = observed.owned.find(({ kind }) => kind === 'StatefulSet') as never as {
    spec: { template: Pod };
  };
  const { metadata, spec } = set.spec.template;
  return Array.from({ length: count }, (_, index) => ({
    ...{ apiVersion: 'v1', kind: 'Pod', spec },
    metadata: { ...metadata, name: `movies-scheduler-${index}`, namespace: 'ml' },
  }));
}

/** A job whose schedulers have ended with FOREIGN_STATE. Several end with 1, a single one with 2. */
function refused(job: TrainingJob, exitCode = 2): ObservedJob {
  const first = observedOf({ job });
  const then = step(first, reconcile(first));
  const schedulers = schedulersOf(then, exitCode === 2 ? 1 : 2).map((pod) =>
    lived(pod, { ready: false, exit: { exitCode, message: REFUSED }, waiting: 'CrashLoopBackOff' }),
  );
  return { ...then, pods: [...then.pods, ...schedulers] };
}

const envOf = (observed: ObservedJob): Record<string, string | undefined> => {
  const [pod] = schedulersOf(observed);
  const env = pod!.spec.containers!.find(({ name }) => name === 'kintsugi')!.env!;
  return Object.fromEntries(env.map(({ name, value }) => [name, value]));
};

const conditionIn = ({ job }: ObservedJob) =>
  job.status?.conditions?.find(({ type }) => type === 'ForeignState');

describe.each([
  ['a scheduler', 2, false],
  ['each of several schedulers', 1, true],
] as const)('state of another job, which %s refuses', (_, exitCode, etcd) => {
  it('is no failure of the job, and a condition says what to do, once', () => {
    const observed = refused(ofChoice(undefined, etcd), exitCode);
    const actions = reconcile(observed);
    const then = step(observed, actions);
    expect(then.job.status!.phase).toBe('Pending');
    const condition = conditionIn(then)!;
    expect(condition).toMatchObject({ status: 'True', reason: 'Refused' });
    expect(condition.message).toMatch(/uid-old.*uid-movies.*spec\.scheduler\.foreignState.*adopt.*discard/);
    expect(condition.message).not.toContain('--foreign-state');
    expect(then.job.status!.reason).toBe('ForeignState');
    const warnings = actionsOf(actions, 'event').filter(({ type }) => type === 'Warning');
    expect(warnings.map(({ reason }) => reason)).toEqual(['ForeignStateRefused']);
    expect(deleted(actions)).toEqual([]);
    expect(actionsOf(reconcile(then), 'event')).toEqual([]);
  });

  it.each(['adopt', 'discard'] as const)('is taken as the spec says: %s', (choice) => {
    const waiting = refused(ofChoice(undefined, etcd), exitCode);
    const seen = step(waiting, reconcile(waiting));
    const job = structuredClone(seen.job);
    job.spec.scheduler.foreignState = choice;
    const edited = { ...seen, job };
    const actions = reconcile(edited);
    // Schedulers that have not heard the choice go. Their successors have it.
    expect(deleted(actions).sort()).toEqual(
      ['movies-scheduler-0', 'movies-scheduler-1'].slice(0, etcd ? 2 : 1),
    );
    const then = step(edited, actions);
    expect(envOf(then)).toMatchObject({ KINTSUGI_JOB_UID: 'uid-movies', KINTSUGI_FOREIGN_STATE: choice });
    const again = schedulersOf(then, etcd ? 2 : 1).map((pod, index) => lived(pod, { ready: index === 0 }));
    const serving = { ...then, pods: [...then.pods, ...again] };
    const served = step(serving, reconcile(serving));
    expect(conditionIn(served)).toMatchObject({ status: 'False', reason: 'Settled' });
    expect(deleted(reconcile(served))).toEqual([]);
  });
});

describe('a job that was suspended', () => {
  /** A job whose second life finds that of a job before it. */
  const second = (choice: 'adopt' | 'discard'): ObservedJob => {
    const observed = refused(ofChoice(choice));
    observed.job.status = { ...observed.job.status, life: 2, restore: 's3://b/movies' };
    const then = step(observed, reconcile(observed));
    const pods = then.pods.map((pod) =>
      pod.metadata.labels!['kintsugi.dev/role'] === 'scheduler'
        ? lived(
            { ...pod, ...schedulersOf(then)[0]! },
            { ready: false, exit: { exitCode: 2, message: REFUSED } },
          )
        : pod,
    );
    return { ...then, pods };
  };

  it('goes on with its own checkpoint: it adopts nothing, and says what to do', () => {
    const observed = second('adopt');
    expect(envOf(observed)).not.toHaveProperty('KINTSUGI_FOREIGN_STATE');
    const then = step(observed, reconcile(observed));
    expect(deleted(reconcile(then))).toEqual([]);
    const { message } = conditionIn(then)!;
    expect(message).toMatch(/uid-old.*"discard" deletes it and goes on with the checkpoint/);
    expect(message).not.toContain('"adopt" goes on');
  });

  it('discards what it is told to discard, in each of its lives', () => {
    expect(envOf(second('discard'))).toMatchObject({ KINTSUGI_FOREIGN_STATE: 'discard' });
  });
});

describe('a job with no such state', () => {
  it('tells its scheduler whose it is, and has no such condition', () => {
    const first = observedOf({ job: ofChoice('refuse') });
    const then = step(first, reconcile(first));
    expect(envOf(then).KINTSUGI_JOB_UID).toBe('uid-movies');
    expect(envOf(then)).not.toHaveProperty('KINTSUGI_FOREIGN_STATE');
    expect(conditionIn(then)).toBeUndefined();
  });
});
