/** A job that has begun tells its scheduler so, which begins nothing anew where its state is gone. */
import { expect, it } from 'vitest';
import type { EnvVar, ObjectManifest } from '../../../src/fleet/operator/objects.js';
import type { Action, ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { podSpecOf } from '../../../src/fleet/operator/reconcile/pods.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import { actionsOf, jobOf, lived, observedOf, reportOf, running, schedulerPod, step } from './support.js';

const LOST =
  'kintsugi: STATE_LOST: there is no state at this place, and the job has begun: nothing is begun anew. ' +
  'What to do: bring the state of the job back, or --restore PLACE';
const variable = (life: number): EnvVar | undefined =>
  podSpecOf(jobOf(), 'scheduler', { startPs: 4, life }).containers![0]!.env!.find(
    ({ name }) => name === 'KINTSUGI_MUST_RESUME',
  );
/** The value that a scheduler of this life finds in that object. */
function foundIn({ metadata, data }: ObjectManifest & { data?: Record<string, string> }, life: number) {
  const source = variable(life)?.valueFrom as { configMapKeyRef: Record<string, string> } | undefined;
  const { name, key = '', optional } = source?.configMapKeyRef ?? {};
  expect({ name, optional }).toEqual({ name: metadata.name, optional: true });
  return data?.[key];
}
const told = (actions: readonly Action[]) =>
  actionsOf(actions, 'report').filter(({ object }) => object.metadata.name === 'movies-begun');
/** A job before the pass that sees that it has formed. */
function forming(): ObservedJob {
  const first = observedOf();
  const then = step(first, reconcile(first));
  const pods = then.pods.map((pod) => lived(pod, { ready: false }));
  const waits = { ...then, pods, report: reportOf(pods, { redundancy: 'forming' }) };
  return step(waits, reconcile(waits));
}
const statusOf = (actions: readonly Action[]) => actionsOf(actions, 'status').at(-1)?.status;

it('its scheduler is told before the status says that it has formed, and once', () => {
  const before = forming();
  expect(told(reconcile(before))).toEqual([]);
  const formed = { ...before, report: reportOf(before.pods) };
  const actions = reconcile(formed);
  const [one] = told(actions);
  expect(foundIn(one!.object, 1)).toBe('yes');
  expect(foundIn(one!.object, 2)).toBeUndefined();
  expect(actions.indexOf(one!)).toBeLessThan(actions.findIndex(({ kind }) => kind === 'status'));
  expect(statusOf(actions)).toMatchObject({ formed: true, guarded: true });
  // Anything else would only start its scheduler again.
  expect(actionsOf(actions, 'apply').filter(({ object }) => object.kind === 'StatefulSet')).toEqual([]);
  expect(told(reconcile(step(formed, actions)))).toEqual([]);
});

it('a server that does not take it keeps nothing else from the job, and is asked again', () => {
  const before = forming();
  const formed = { ...before, report: reportOf(before.pods) };
  const { object } = told(reconcile(formed))[0]!;
  const refusal = { object, status: 403, message: 'exceeded quota', unmade: true };
  const refused = { ...formed, refusals: [refusal] };
  const actions = reconcile(refused);
  const at = actions.indexOf(told(actions)[0]!);
  expect(actions.slice(at).map(({ kind }) => kind)).toEqual(['report', 'status']);
  expect(actionsOf(actions, 'status').map(({ status }) => [status.formed, status.guarded])).toEqual([
    [true, undefined],
    [true, true],
  ]);
});

it('each life is told by itself', () => {
  const observed = running();
  const { job } = observed;
  expect(job.status).toMatchObject({ formed: true, guarded: true });
  job.status = { ...job.status, suspended: { place: 's3://b/movies', checkpoint: 3 } };
  const returning = step({ ...observed, pods: [] }, reconcile({ ...observed, pods: [], report: undefined }));
  expect(returning.job.status).toMatchObject({ life: 2 });
  expect(returning.job.status!.guarded).toBeUndefined();
  const pods = observed.pods;
  const again = reconcile({ ...returning, pods, report: reportOf(pods) });
  expect(foundIn(told(again)[0]!.object, 2)).toBe('yes');
});

it('a scheduler without its state fails nothing, and the job says what to do', () => {
  const observed = running();
  const scheduler = lived(schedulerPod(), {
    ...{ ready: false, exit: { exitCode: 2, message: LOST }, waiting: 'CrashLoopBackOff' },
  });
  const lost = { ...observed, pods: [...observed.pods, scheduler], report: undefined };
  const actions = reconcile(lost);
  const status = statusOf(actions)!;
  expect(status).toMatchObject({ phase: 'Running', reason: 'StateLost' });
  const stuck = status.conditions?.find(({ type }) => type === 'Stuck');
  expect(stuck).toMatchObject({ status: 'True', reason: 'StateLost' });
  expect(stuck!.message).toMatch(
    /^movies-scheduler-0: there is no state.*begun anew\. .*volume.*replicaSpecs\.scheduler\.args/,
  );
  expect(actionsOf(actions, 'event').map(({ reason }) => reason)).toContain('StuckStateLost');
  expect(actionsOf(actions, 'delete')).toEqual([]);
});
