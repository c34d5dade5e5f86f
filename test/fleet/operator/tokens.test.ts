/** Tokens that change, or go, while a job runs: its processes know those of before. */
import { expect, it } from 'vitest';
import type { Terminated } from '../../../src/fleet/operator/objects.js';
import { secretOf } from '../../../src/fleet/operator/reconcile/fixtures.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import { actionsOf, jobOf, lived, reportOf, running, step } from './support.js';

const REFUSED: Partial<Terminated> = {
  exitCode: 2,
  message: 'kintsugi: UNAUTHORIZED: 10.0.0.1:7077: the token is missing or wrong',
};

/** A job of which this Pod has ended so. */
function refused(name: string, again: boolean): ObservedJob {
  const observed = running();
  const pods = observed.pods.map((pod) => {
    if (pod.metadata.name !== name) return pod;
    const life = again ? { waiting: 'CrashLoopBackOff' } : { phase: 'Failed' as const };
    return lived(pod, { ready: false, exit: REFUSED, ...life });
  });
  return { ...observed, pods, report: reportOf(observed.pods), secret: true };
}
const stuckIn = ({ job }: ObservedJob) => job.status?.conditions?.find(({ type }) => type === 'Stuck');

it.each([
  ['a PS', 'movies-ps-1', true],
  ['a worker', 'movies-worker-1', false],
] as const)(
  '%s with other tokens than the job has does not fail it, and a condition says why',
  (...given) => {
    const observed = refused(given[1], given[2]);
    const actions = reconcile(observed);
    const then = step(observed, actions);
    expect(then.job.status).toMatchObject({ phase: 'Running', reason: 'Secret' });
    expect(stuckIn(then)).toMatchObject({ status: 'True', reason: 'Secret' });
    expect(stuckIn(then)!.message).toMatch(
      new RegExp(`^${given[1]}: .*UNAUTHORIZED.*Secret movies-tokens has changed.*put.*back`),
    );
    expect(actionsOf(actions, 'event').map(({ reason }) => reason)).toContain('StuckSecret');
  },
);

it('a job that never formed fails with them, as before', () => {
  const observed = refused('movies-ps-1', true);
  const { formed: _, phase: __, ...status } = observed.job.status!;
  const job = { ...observed.job, status: { ...status, phase: 'Pending' as const } };
  const forming = { ...observed, job, report: reportOf(observed.pods, { redundancy: 'forming' }) };
  expect(step(forming, reconcile(forming)).job.status).toMatchObject({ phase: 'Failed', reason: 'BadInput' });
});

it('no other tokens are drawn for a job that has formed, and it says that they are gone', () => {
  const gone = { ...running(), secret: false };
  const actions = reconcile(gone);
  expect(actionsOf(actions, 'secret')).toEqual([]);
  const then = step(gone, actions);
  expect(stuckIn(then)).toMatchObject({ status: 'True', reason: 'Secret' });
  expect(stuckIn(then)!.message).toMatch(/Secret movies-tokens is gone.*printenv KINTSUGI_TOKEN/);
  const own = jobOf({ auth: { secretName: 'mine' } });
  expect(stuckIn(step(running(own), reconcile(running(own))))).toBeUndefined();
});

it('nobody changes the Secret that the operator has made', () => {
  expect(secretOf(jobOf())).toMatchObject({ immutable: true });
});
