/** Pods that are killed for want of memory, from made-up observations. */
import { describe, expect, it } from 'vitest';
import type { Pod } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { memoryBudget } from '../../../src/fleet/operator/reconcile/pods.js';
import { bytesOf } from '../../../src/fleet/operator/reconcile/quantity.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import { actionsOf, created, deleted, jobOf, lived, names, reportOf, running, step } from './support.js';

const with1Gi = (requests?: string) => ({
  spec: {
    containers: [
      {
        name: 'kintsugi',
        resources: { limits: { memory: '1Gi' }, ...(requests ? { requests: { memory: requests } } : {}) },
      },
    ],
  },
});
it.each([
  ['1Gi', 2 ** 30],
  ['+1Gi', 2 ** 30],
  ['+.5Gi', 2 ** 29],
  ['1e9', 1e9],
  ['2E', 2e18],
  [7, 7],
  ['-1Gi', undefined],
  ['', undefined],
  ['1GB', undefined],
])('a quantity of %j is %j bytes', (quantity, bytes) => {
  expect(bytesOf(quantity)).toBe(bytes);
});

const KILLED = { exitCode: 137, reason: 'OOMKilled' };
type Given = Parameters<typeof jobOf>[0];
const limited = (given: Given = {}) =>
  jobOf({
    ...{ ps: { template: with1Gi('512Mi') }, worker: { replicas: 2, template: with1Gi() } },
    ...{ resourceLimits: { ps: { memory: '2Gi' }, worker: { memory: '2Gi' } } },
    ...given,
  });

const killed = (
  observed: ObservedJob,
  name: string,
  life: Parameters<typeof lived>[1] = {},
): ObservedJob => ({
  ...observed,
  pods: observed.pods.map((pod) =>
    pod.metadata.name === name ? lived(pod, { exit: KILLED, ready: false, ...life }) : pod,
  ),
});
const pass = (observed: ObservedJob): ObservedJob => step(observed, reconcile(observed));
const memoryOf = (pods: readonly unknown[]) =>
  (pods as Pod[]).map(({ spec }) => spec.containers![0]!.resources);
const gone = (observed: ObservedJob, name: string): ObservedJob => ({
  ...observed,
  pods: observed.pods.filter(({ metadata }) => metadata.name !== name),
});
const failure = ({ job }: ObservedJob) => job.status!.conditions!.find(({ type }) => type === 'Failed');

describe('a PS that was killed for want of memory', () => {
  it('gets a successor with half as much more, which is noted first and told once', () => {
    const observed = killed(running(limited()), 'movies-ps-1', { again: true });
    const actions = reconcile(observed);
    expect(actions[0]).toMatchObject({
      kind: 'status',
      status: { memory: { ps: '1536Mi' }, restartCount: 0 },
    });
    const made = created(actions);
    expect(names(made)).toEqual(['movies-ps-4']);
    expect(memoryOf(made)).toEqual([{ limits: { memory: '1536Mi' }, requests: { memory: '768Mi' } }]);
    const budget = memoryBudget(
      (made[0] as unknown as Pod).spec && { spec: (made[0] as unknown as Pod).spec },
    );
    expect((made[0] as unknown as Pod).spec.containers![0]!.args).toContain(String(budget));
    expect(actionsOf(actions, 'event').map(({ reason, message }) => `${reason}: ${message}`)).toEqual([
      'MoreMemory: the next ps have 1536Mi of memory, of at most 2Gi: killed was movies-ps-1, which ' +
        'had 1Gi',
    ]);
    const then = step(observed, actions);
    expect(actionsOf(reconcile(then), 'event')).toEqual([]);
    expect(created(reconcile(then))).toEqual([]);
  });

  it('and runs again is emptied, and goes when its process has ended', () => {
    const observed = pass(killed(running(limited()), 'movies-ps-1', { again: true }));
    expect(deleted(reconcile(observed))).toEqual([]);
    const joined = { ...observed, report: reportOf(observed.pods) };
    expect(actionsOf(reconcile(joined), 'ask').map(({ change }) => change)).toEqual([
      { kind: 'drain', node: 'movies-ps-1' },
    ]);
    const empty = killed(joined, 'movies-ps-1', { phase: 'Succeeded', exit: { exitCode: 0 } });
    expect(deleted(reconcile(empty))).toEqual(['movies-ps-1']);
  });

  it('and waits for its next start goes, as it was observed, when another one serves', () => {
    const crashed = { waiting: 'CrashLoopBackOff' };
    const observed = killed(running(limited()), 'movies-ps-1', crashed);
    const first = reconcile(observed);
    expect([names(created(first)), deleted(first)]).toEqual([['movies-ps-4'], []]);
    const replaced = step(observed, first);
    const starting = killed(replaced, 'movies-ps-4', { exit: undefined as never, ready: false });
    expect(deleted(reconcile(starting))).toEqual([]);
    expect(actionsOf(reconcile(replaced), 'delete')).toMatchObject([
      { object: { metadata: { name: 'movies-ps-1' } }, asObserved: true },
    ]);
    // Later ones have as much, though it is gone.
    const lost = gone(gone(pass(replaced), 'movies-ps-1'), 'movies-ps-0');
    expect(memoryOf(created(reconcile(lost)))).toMatchObject([{ limits: { memory: '1536Mi' } }]);
  });

  it('never has more than the limit; killed with all of it, it counts as failed, with a sentence', () => {
    const job = limited({ runPolicy: { backoffLimit: 1 } });
    job.status = { memory: { ps: '1536Mi' } };
    let observed = killed(running(job), 'movies-ps-1', { again: true });
    const actions = reconcile(observed);
    expect(memoryOf(created(actions))).toMatchObject([{ limits: { memory: '2Gi' } }]);
    observed = step(observed, actions);
    for (const name of ['movies-ps-4', 'movies-ps-5']) {
      expect(observed.job.status!.phase).toBe('Running');
      observed = pass(pass(killed(observed, name, { again: true })));
    }
    expect(observed.job.status).toMatchObject({ phase: 'Failed', restartCount: 2, memory: { ps: '2Gi' } });
    expect(failure(observed)).toMatchObject({
      reason: 'BackoffLimitExceeded',
      message:
        '2 Pods failed, and 1 may; movies-ps-5: exit code 137 (OOMKilled), with 2Gi of memory, and ' +
        'resourceLimits allows no more',
    });
  });

  it('is only started again in its Pod where nobody said how much there may be', () => {
    const { resourceLimits: _, ...spec } = limited().spec;
    const job = { ...limited(), spec };
    const observed = killed(running(job), 'movies-ps-1', { waiting: 'CrashLoopBackOff' });
    const actions = reconcile(observed);
    expect([created(actions), deleted(actions)]).toEqual([[], []]);
    expect(step(observed, actions).job.status).toMatchObject({ restartCount: 0 });
  });
});

describe('a worker that was killed for want of memory', () => {
  it('is replaced by a larger one at once, and counts only when there is no more for it', () => {
    const job = limited({ runPolicy: { backoffLimit: 0 } });
    let observed = killed(running(job), 'movies-worker-0', { phase: 'Failed' });
    const actions = reconcile(observed);
    expect(names(created(actions))).toEqual(['movies-worker-2']);
    expect(memoryOf(created(actions))).toEqual([{ limits: { memory: '1536Mi' } }]);
    observed = step(observed, actions);
    observed = pass(killed(observed, 'movies-worker-2', { phase: 'Failed' }));
    expect(observed.job.status).toMatchObject({ restartCount: 0, memory: { worker: '2Gi' } });
    observed = pass(killed(observed, 'movies-worker-3', { phase: 'Failed' }));
    expect(failure(observed)).toMatchObject({ reason: 'BackoffLimitExceeded' });
    expect(failure(observed)!.message).toContain('with 2Gi of memory, and resourceLimits allows no more');
  });

  it('does not make PS larger, and a template that says more counts', () => {
    const observed = pass(killed(running(limited()), 'movies-worker-0', { phase: 'Failed' }));
    const lost = gone(observed, 'movies-ps-0');
    expect(memoryOf(created(reconcile(lost)))).toMatchObject([{ limits: { memory: '1Gi' } }]);
    const job = structuredClone(observed.job);
    job.spec.replicaSpecs.worker.template!.spec!.containers![0]!.resources!.limits!.memory = '3Gi';
    const edited = gone({ ...observed, job }, 'movies-worker-1');
    expect(memoryOf(created(reconcile(edited)))).toMatchObject([{ limits: { memory: '3Gi' } }]);
  });
});
