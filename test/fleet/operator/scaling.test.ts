/** ScaleOut and ScaleIn, from made-up observations: how they begin, wait, are taken back and end. */
import { describe, expect, it } from 'vitest';
import type { Pod } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import type { ScalerObject } from '../../../src/fleet/operator/types.js';
import {
  actionsOf,
  changeOf,
  created,
  deleted,
  jobOf,
  lived,
  names,
  reportOf,
  running,
  START,
  scalerOf,
  step,
} from './support.js';

const quiet = (observed: ObservedJob) => reconcile(observed).filter(({ kind }) => kind !== 'wake');
/** Passes until there is nothing to write; asks are left open. */
function settled(observed: ObservedJob, limit = 12): ObservedJob {
  const actions = quiet(observed).filter(({ kind }) => kind !== 'ask');
  if (actions.length === 0) return observed;
  if (limit === 0) throw new Error(`it does not settle: ${JSON.stringify(actions)}`);
  return settled(step(observed, actions), limit - 1);
}
const withScalers = (scalers: ScalerObject[], job = jobOf()) => settled({ ...running(job), scalers });
/** The job sees every Pod that has not ended. */
const seen = (
  observed: ObservedJob,
  more: Partial<NonNullable<ObservedJob['report']>> = {},
): ObservedJob => ({
  ...observed,
  report: reportOf(
    observed.pods.filter(({ status }) => status?.phase === 'Running'),
    more,
  ),
});
const ended = (observed: ObservedJob, ...gone: string[]): ObservedJob => ({
  ...observed,
  pods: observed.pods.map(
    (pod): Pod =>
      gone.includes(pod.metadata.name) ? lived(pod, { phase: 'Succeeded', exit: { exitCode: 0 } }) : pod,
  ),
});
const asked = (observed: ObservedJob) => actionsOf(reconcile(observed), 'ask').map(({ change }) => change);
const [out, into] = [
  (count: number, more = {}) => scalerOf('ScaleOut', { toAdd: { count }, ...more }),
  (toDelete: object, more = {}) => scalerOf('ScaleIn', { toDelete, ...more }),
];
const phase = (observed: ObservedJob, at = 0) => observed.scalers![at]!.status?.phase;
const psOf = ({ pods }: ObservedJob) => names(pods).filter((name) => name.includes('-ps-'));
const budget = (observed: ObservedJob) =>
  (observed.owned.find(({ kind }) => kind === 'PodDisruptionBudget') as unknown as { spec: object }).spec;
/** The change that an ask became, as the operator and the job know it. */
const underWay = (
  observed: ObservedJob,
  state: 'running' | 'done' | 'cancelled' = 'running',
  reason = '',
) => {
  const asks = actionsOf(reconcile({ ...observed, asked: [] }), 'ask');
  const changes = asks.map(({ change }, index) =>
    change.kind === 'scale'
      ? changeOf({ id: index + 1, kind: 'scale', to: change.ps, state, reason })
      : changeOf({ id: index + 1, kind: 'drain', leaving: [change.node], state, reason }),
  );
  const told = asks.map(({ key }, index) => ({
    ...{ key, id: index + 1, at: START, underWay: state === 'running' },
    ...(state === 'cancelled' ? { problem: reason } : {}),
  }));
  return { ...observed, asked: told, report: { ...observed.report!, changes } };
};

describe('replicas that somebody applies on the server', () => {
  const appliedBy = (manager: string, role: 'ps' | 'worker', operation = 'Apply') => {
    const job = jobOf({ ps: { replicas: 5 } });
    const fieldsV1 = { 'f:spec': { 'f:replicaSpecs': { [`f:${role}`]: { 'f:replicas': {} } } } };
    job.metadata.managedFields = [{ manager, operation, fieldsV1 }];
    return withScalers([out(1)], job).scalers![0]!.status!;
  };

  it('are that manager’s: a ScaleOut fails, and says who has to change them', () => {
    const status = appliedBy('argocd', 'ps');
    expect(status).toMatchObject({ phase: 'ScaleFailed', reason: 'DeclaredElsewhere' });
    expect(status.message).toMatch(/^"argocd" applies replicas of ps, .*take them out of what it applies/);
  });

  it('are held by the operator, too, as they are: who leaves them out now does not set a default', () => {
    const job = jobOf({ ps: { replicas: 5 } });
    const owned = (manager: string) => ({
      ...{ manager, operation: 'Apply' },
      fieldsV1: { 'f:spec': { 'f:replicaSpecs': { 'f:ps': { 'f:replicas': {} } } } },
    });
    job.metadata.managedFields = [owned('argocd')];
    const scaler = out(1);
    scaler.metadata.finalizers = ['kintsugi.dev/scaling'];
    const observed = { ...running(job), scalers: [scaler] };
    const actions = reconcile(observed);
    expect(actionsOf(actions, 'resize')).toEqual([{ kind: 'resize', role: 'ps', replicas: 5 }]);
    const kinds = actions.map(({ kind }) => kind);
    expect(kinds.indexOf('resize')).toBeLessThan(kinds.indexOf('scalerStatus'));
    const [failed] = actionsOf(actions, 'scalerStatus');
    expect(failed?.status.message).toMatch(/the operator holds the present 5/);
    observed.job.metadata.managedFields!.push(owned('kintsugi-scaling-ps'));
    expect(actionsOf(reconcile(observed), 'resize')).toEqual([]);
  });

  it('are not, where they are of another role, were set by hand, or by an earlier ScaleOut', () => {
    expect(appliedBy('argocd', 'worker').phase).toBe('Scaling');
    expect(appliedBy('kubectl-client-side-apply', 'ps', 'Update').phase).toBe('Scaling');
    expect(appliedBy('kintsugi-scaling-ps', 'ps').phase).toBe('Scaling');
  });
});

describe('a ScaleOut of PS', () => {
  const job = jobOf({ ps: { replicas: 5, maxReplicas: 7 } });

  it('is held, begins, makes Pods, and asks the job once; when the job is done it has succeeded', () => {
    const begun = withScalers([out(2)], job);
    expect(begun.scalers![0]!.metadata.finalizers).toEqual(['kintsugi.dev/scaling']);
    expect(begun.scalers![0]!.status).toMatchObject({ phase: 'Scaling', from: 5, to: 7, attempt: 0 });
    expect(psOf(begun)).toHaveLength(7);
    expect(begun.job.status).toMatchObject({
      ...{
        phase: 'Scaling',
        currentScaler: `ScaleOut ${begun.scalers![0]!.metadata.name}`,
      },
      ps: '7/7',
    });
    // Evictions may take r of those that there were before.
    expect(budget(begun)).toMatchObject({ minAvailable: 4 });
    expect(asked(begun)).toEqual([{ kind: 'scale', ps: 7 }]);
    const moving = settled(underWay(seen(begun)));
    expect([asked(moving), phase(moving), moving.scalers![0]!.status!.changes]).toEqual([[], 'Scaling', [1]]);
    const done = underWay(seen(begun), 'done');
    expect(actionsOf(reconcile(done), 'resize')).toEqual([{ kind: 'resize', role: 'ps', replicas: 7 }]);
    const over = settled(done);
    expect([phase(over), over.job.spec.replicaSpecs.ps.replicas]).toEqual(['ScaleSucceeded', 7]);
    expect(over.scalers![0]!.metadata.finalizers).toBeUndefined();
    expect(over.job.status).toMatchObject({ phase: 'Running', sizePs: 7 });
    expect(over.job.status!.currentScaler).toBeUndefined();
    expect(budget(over)).toMatchObject({ minAvailable: 6 });
  });

  it('goes on by the number of its change when the operator was killed', () => {
    const moving = settled(underWay(seen(withScalers([out(1)], job))));
    const forgotten = { ...moving, asked: [] };
    expect(quiet(forgotten)).toEqual([]);
    const changes = moving.report!.changes.map((one) => ({ ...one, state: 'done' as const }));
    expect(phase(settled({ ...forgotten, report: { ...moving.report!, changes } }))).toBe('ScaleSucceeded');
  });

  it('that the job takes back gives up what was added: Pods that never joined, and by draining', () => {
    const begun = withScalers([out(2)], job);
    const [first, second] = psOf(begun).slice(-2) as [string, string];
    const waiting = {
      ...begun,
      pods: begun.pods.map((pod) => (pod.metadata.name === second ? lived(pod, { phase: 'Pending' }) : pod)),
    };
    const failed = underWay(seen(waiting), 'cancelled', 'no progress in 60 s: 1 of 7 PS have not joined');
    const back = settled(failed);
    expect(back.scalers![0]!.status).toMatchObject({ phase: 'Draining', reason: 'TakenBack' });
    expect(psOf(back)).not.toContain(second);
    expect(psOf(back)).toContain(first);
    expect(asked(back)).toEqual([{ kind: 'scale', ps: 5 }]);
    const gone = settled(ended(back, first));
    expect(gone.scalers![0]!.status).toMatchObject({
      ...{ phase: 'ScaleFailed', reason: 'TakenBack' },
      message: 'no progress in 60 s: 1 of 7 PS have not joined',
    });
    expect([psOf(gone).length, gone.job.spec.replicaSpecs.ps.replicas]).toEqual([5, 5]);
  });

  it('is tried again as often as it says', () => {
    const begun = withScalers([out(1, { backoffLimit: 1 })], job);
    const again = settled(underWay(seen(begun), 'cancelled', 'no progress'));
    expect(again.scalers![0]!.status).toMatchObject({ phase: 'Scaling', attempt: 1 });
    expect(asked(again)).toEqual([{ kind: 'scale', ps: 6 }]);
    expect(phase(settled(underWay(again, 'cancelled', 'no progress')))).toBe('Draining');
  });

  it('that is deleted while it runs is taken back before it goes', () => {
    const moving = settled(underWay(seen(withScalers([out(1)], job))));
    const [scaler] = moving.scalers!;
    const metadata = { ...scaler!.metadata, deletionTimestamp: '2026-01-01T00:00:00Z' };
    const back = settled({ ...moving, scalers: [{ ...scaler!, metadata } as ScalerObject] });
    expect(back.scalers![0]!.status).toMatchObject({ phase: 'Draining', reason: 'Cancelled' });
    // The job goes for six until it is asked for five again.
    expect(asked(back)).toEqual([{ kind: 'scale', ps: 5 }]);
    const gone = settled({ ...ended(back, psOf(back).at(-1)!), report: reportOf(back.pods) });
    expect([gone.scalers, psOf(gone).length]).toEqual([[], 5]);
  });

  it('grows a job without workers', () => {
    const workerless = jobOf({ worker: { replicas: 0 }, ps: { replicas: 5 } });
    const begun = withScalers([out(1)], workerless);
    expect([phase(begun), psOf(begun).length]).toEqual(['Scaling', 6]);
  });

  it.each([
    ['out' as const, { minReplicas: 7 }, 'BelowMinimum', '6 ps are fewer than the 7 of minReplicas'],
    ['out' as const, { maxReplicas: 5 }, 'AboveMaximum', '6 ps are more than the 5 of maxReplicas'],
    ['in' as const, { maxReplicas: 3 }, 'AboveMaximum', '4 ps are more than the 3 of maxReplicas'],
  ])(
    'or a ScaleIn that would end out of bounds is refused at its start: %s, %j',
    (way, bounds, reason, message) => {
      const scaler = way === 'out' ? out(1) : into({ count: 1 });
      const refused = withScalers([scaler], jobOf({ ps: { replicas: 5, ...bounds } }));
      expect(refused.scalers![0]!.status).toMatchObject({ phase: 'ScaleFailed', reason, message });
    },
  );

  it('whose number the API server refuses says so, tries until its timeout, and is taken back', () => {
    const moving = settled(underWay(seen(withScalers([out(1)], job))));
    const done = underWay(seen(moving), 'done');
    expect(actionsOf(reconcile(done), 'resize')).toEqual([{ kind: 'resize', role: 'ps', replicas: 6 }]);
    const message = 'spec: Invalid value: no';
    const object = { apiVersion: 'kintsugi.dev/v1alpha1', kind: 'TrainingJob', metadata: { name: 'movies' } };
    const refusals = [{ object, status: 422, message, unmade: true }];
    const refused = { ...done, refusals, now: START + 3_600_000 };
    const tries = reconcile(refused);
    expect(actionsOf(tries, 'scalerStatus')[0]!.status).toMatchObject({
      ...{ phase: 'Scaling', reason: 'Refused', message, progressTime: '2026-01-01T01:00:00Z' },
    });
    expect(actionsOf(tries, 'resize')).toHaveLength(1);
    expect(actionsOf(tries, 'wake')).toContainEqual({ kind: 'wake', at: refused.now + 60_000 });
    const told = step(
      refused,
      tries.filter(({ kind }) => kind !== 'resize'),
    );
    const scaling = step(
      told,
      reconcile(told).filter(({ kind }) => kind === 'status'),
    );
    expect(scaling.job.status!.conditions!.find(({ type }) => type === 'Scaling')).toMatchObject({
      ...{ status: 'True', reason: 'Refused', message },
    });
    const late = reconcile({ ...scaling, now: refused.now + 60_000 });
    expect(actionsOf(late, 'resize')).toEqual([]);
    expect(actionsOf(late, 'scalerStatus')[0]!.status).toMatchObject({
      phase: 'Draining',
      reason: 'Refused',
    });
    expect(actionsOf(late, 'event')).toMatchObject([{ reason: 'TakenBack', type: 'Warning' }]);
    // Where it is taken in time, all is well.
    const taken = settled({ ...scaling, refusals: [] });
    expect(taken.scalers![0]!.status).toMatchObject({ phase: 'ScaleSucceeded' });
    expect(taken.scalers![0]!.status).not.toHaveProperty('reason');
  });

  it('over the maximum is refused, with a sentence', () => {
    const over = withScalers([out(3)], job);
    expect(over.scalers![0]!.status).toMatchObject({
      ...{ phase: 'ScaleFailed', reason: 'AboveMaximum' },
      message: '8 ps are more than the 7 of maxReplicas',
    });
    expect(psOf(over)).toHaveLength(5);
  });
});

describe('a ScaleIn of PS', () => {
  const job = jobOf({ ps: { replicas: 5 } });

  it('by count asks the job, deletes what ended by itself, and lowers the budget before', () => {
    const begun = withScalers([into({ count: 2 })], job);
    expect(begun.scalers![0]!.status).toMatchObject({ phase: 'Draining', from: 5, to: 3 });
    expect([psOf(begun).length, asked(begun)]).toEqual([5, [{ kind: 'scale', ps: 3 }]]);
    expect(budget(begun)).toMatchObject({ minAvailable: 2 });
    const moving = settled(underWay(seen(begun)));
    const [a, b] = psOf(moving).slice(-2) as [string, string];
    const half = settled(ended(moving, a));
    expect([phase(half), psOf(half).length]).toEqual(['Draining', 4]);
    const both = ended(half, b);
    const over = settled(underWay(seen({ ...both, asked: [] }), 'done'));
    const last = settled({ ...over, asked: [], report: reportOf(over.pods) });
    expect([phase(last), psOf(last).length, last.job.spec.replicaSpecs.ps.replicas]).toEqual([
      ...['ScaleSucceeded', 3, 3],
    ]);
  });

  it('by names empties those, and takes no others', () => {
    const begun = withScalers([into({ podNames: ['movies-ps-0', 'movies-ps-3'] })], job);
    expect(asked(begun)).toEqual([
      { kind: 'drain', node: 'movies-ps-0' },
      { kind: 'drain', node: 'movies-ps-3' },
    ]);
    expect(begun.job.status!.targetPs).toEqual(['movies-ps-1', 'movies-ps-2', 'movies-ps-4']);
    const gone = settled(ended(settled(underWay(begun)), 'movies-ps-0', 'movies-ps-3'));
    const over = settled({ ...gone, asked: [], report: reportOf(gone.pods) });
    expect([phase(over), psOf(over)]).toEqual([
      'ScaleSucceeded',
      ['movies-ps-1', 'movies-ps-2', 'movies-ps-4'],
    ]);
  });

  it.each([
    [{ count: 3 }, {}, 'BelowMinimum', '2 PS are too few: a group of this job needs 2+1'],
    [{ count: 1 }, { minReplicas: 5 }, 'BelowMinimum', '4 ps are fewer than the 5 of minReplicas'],
    [{ podNames: ['movies-ps-9'] }, {}, 'NoSuchPod', 'no ps of this job is called movies-ps-9'],
  ])('%j is refused: %s', (toDelete, bounds, reason, message) => {
    const refused = withScalers([into(toDelete)], jobOf({ ps: { replicas: 5, ...bounds } }));
    expect(refused.scalers![0]!.status).toMatchObject({ phase: 'ScaleFailed', reason, message });
    expect(asked(refused)).toEqual([]);
  });

  it('that the job takes back leaves all as it was', () => {
    const begun = withScalers([into({ count: 1 })], job);
    const over = settled(underWay(seen(begun), 'cancelled', 'no progress in 60 s: 3 moves were left'));
    expect(over.scalers![0]!.status).toMatchObject({ phase: 'ScaleFailed', reason: 'TakenBack' });
    expect([psOf(over).length, asked({ ...over, asked: [], report: reportOf(over.pods) })]).toEqual([5, []]);
    expect(budget(over)).toMatchObject({ minAvailable: 4 });
  });

  it('that is deleted while it runs asks for what was before', () => {
    const moving = settled(underWay(seen(withScalers([into({ count: 1 })], job))));
    const [scaler] = moving.scalers!;
    const metadata = { ...scaler!.metadata, deletionTimestamp: '2026-01-01T00:00:00Z' };
    const back = settled({ ...moving, scalers: [{ ...scaler!, metadata } as ScalerObject] });
    expect([phase(back), asked(back)]).toEqual(['Scaling', [{ kind: 'scale', ps: 5 }]]);
    expect(settled({ ...back, report: reportOf(back.pods) }).scalers).toEqual([]);
  });

  it('takes a Pod that waits for a machine before one that serves', () => {
    const observed = running(job);
    const waiting = {
      ...observed,
      pods: observed.pods.map((pod) =>
        pod.metadata.name === 'movies-ps-4' ? lived(pod, { phase: 'Pending' }) : pod,
      ),
    };
    const over = settled({ ...seen(waiting), scalers: [into({ count: 1 })] });
    expect([phase(over), psOf(over).length, asked(over)]).toEqual(['ScaleSucceeded', 4, []]);
  });

  it('goes on while the job is repaired: a lost PS has its replacement', () => {
    const moving = settled(underWay(seen(withScalers([into({ count: 1 })], job))));
    const lost = {
      ...moving,
      pods: moving.pods.map((pod) =>
        pod.metadata.name === 'movies-ps-0' ? lived(pod, { deleting: true }) : pod,
      ),
    };
    // Four are there, and four are to be.
    expect(created(reconcile(lost))).toEqual([]);
    expect(phase(settled(lost))).toBe('Draining');
    const two = {
      ...lost,
      pods: lost.pods.map((pod) =>
        pod.metadata.name === 'movies-ps-1' ? lived(pod, { deleting: true }) : pod,
      ),
    };
    expect(names(created(reconcile(two)))).toEqual(['movies-ps-5']);
  });
});

describe('workers', () => {
  it('are made, and ready ones are progress; late ones go again', () => {
    const begun = withScalers([out(2, { role: 'worker' })]);
    expect(begun.job.status).toMatchObject({ phase: 'Running', workers: '4/4' });
    expect([phase(begun), begun.job.spec.replicaSpecs.worker.replicas]).toEqual(['ScaleSucceeded', 4]);
    const first = running();
    const scaler = out(1, { role: 'worker' });
    let observed: ObservedJob = { ...first, scalers: [scaler] };
    for (let pass = 0; pass < 4; pass++) observed = step(observed, quiet(observed));
    const stuck = {
      ...observed,
      scalers: [
        { ...scaler, ...observed.scalers![0]!, status: { phase: 'Scaling', from: 2, to: 3, ready: 2 } },
      ],
      job: first.job,
      pods: [
        ...first.pods,
        lived(
          {
            ...first.pods.at(-1)!,
            metadata: {
              ...first.pods.at(-1)!.metadata,
              name: 'movies-worker-9',
              labels: { ...first.pods.at(-1)!.metadata.labels, 'kintsugi.dev/index': '9' },
            },
          },
          { phase: 'Pending' },
        ),
      ],
    } as ObservedJob;
    (stuck.scalers![0]!.status as { progressTime: string }).progressTime = new Date(START).toISOString();
    expect(actionsOf(reconcile(stuck), 'wake')).toEqual([{ kind: 'wake', at: START + 60_000 }]);
    const late = settled({ ...stuck, now: START + 60_000 });
    expect(late.scalers![0]!.status).toMatchObject({ phase: 'ScaleFailed', message: 'no progress in 60 s' });
    expect(names(late.pods)).not.toContain('movies-worker-9');
  });

  it('that are named hand back their samples and go', () => {
    const over = withScalers([into({ podNames: ['movies-worker-0'] }, { role: 'worker' })]);
    expect([phase(over), over.job.spec.replicaSpecs.worker.replicas]).toEqual(['ScaleSucceeded', 1]);
    expect(names(over.pods).filter((name) => name.includes('worker'))).toEqual(['movies-worker-1']);
  });
});

describe('several', () => {
  it('go one after the other, the oldest first, and an edit meanwhile counts in the end', () => {
    const [first, second] = [out(1), into({ count: 1 })];
    const begun = withScalers([second, first]);
    expect([phase(begun, 1), phase(begun, 0)]).toEqual(['Scaling', 'Pending']);
    expect(begun.scalers![0]!.status).toMatchObject({
      ...{ reason: 'Queued', message: `waits for ScaleOut ${first.metadata.name}` },
    });
    const edited = structuredClone(begun);
    edited.job.spec.replicaSpecs.ps.replicas = 7;
    const done = settled(underWay(seen(edited), 'done'));
    expect([phase(done, 1), done.job.spec.replicaSpecs.ps.replicas]).toEqual(['ScaleSucceeded', 7]);
    // The next one begins from there.
    expect(done.scalers![0]!.status).toMatchObject({ phase: 'Draining', from: 7, to: 6 });
  });

  it('fail when the job ends, and those that wait with them', () => {
    const begun = withScalers([out(1), into({ count: 1 })]);
    const workers = names(begun.pods).filter((name) => name.includes('worker'));
    const over = settled(ended(begun, ...workers));
    expect(over.job.status!.phase).toBe('Succeeded');
    expect([phase(over, 0), phase(over, 1)]).toEqual(['ScaleFailed', 'ScaleFailed']);
    expect(over.scalers!.map(({ metadata }) => metadata.finalizers)).toEqual([undefined, undefined]);
  });

  it('no PS is deleted that serves, whatever is asked', () => {
    const begun = withScalers([into({ count: 2 })], jobOf({ ps: { replicas: 5 } }));
    expect(deleted(reconcile(begun))).toEqual([]);
  });
});
