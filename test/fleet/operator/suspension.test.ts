/** A job pauses and goes on, from made-up observations and among faults. */
import { describe, expect, it } from 'vitest';
import type { ObjectManifest } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import type { ScalerObject, ScalerStatus } from '../../../src/fleet/operator/types.js';
import {
  actionsOf,
  created,
  deleted,
  jobOf,
  lived,
  names,
  observedOf,
  reportOf,
  running,
  START,
  scalerOf,
  schedulerPod,
  step,
} from './support.js';
import { World } from './world.js';

const checkpoint = { url: '/shared/movies', everySeconds: 0, keep: 3, onSuspend: true };
const scheduler = schedulerPod();
const psNames = ['movies-ps-0', 'movies-ps-1', 'movies-ps-2', 'movies-ps-3'];

const scheduled = (given: Parameters<typeof jobOf>[0] = { checkpoint }): ObservedJob =>
  running(jobOf(given), (pods) => ({ pods: [...pods, scheduler] }));
const suspended = (observed: ObservedJob, suspend = true): ObservedJob => {
  const { job } = observed;
  const generation = (job.metadata.generation ?? 0) + 1;
  const runPolicy = { ...job.spec.runPolicy, suspend };
  return {
    ...observed,
    job: { ...job, metadata: { ...job.metadata, generation }, spec: { ...job.spec, runPolicy } },
  };
};
const pass = (observed: ObservedJob): ObservedJob => step(observed, reconcile(observed));
const conditionOf = ({ job }: ObservedJob) =>
  job.status!.conditions!.find(({ type }) => type === 'Suspended');
const setOf = (observed: ObservedJob) =>
  observed.owned.find(({ kind }) => kind === 'StatefulSet') as unknown as ObjectManifest & {
    spec: {
      replicas: number;
      template: { spec: { initContainers?: object[]; containers: { args: string[] }[] } };
    };
  };

describe('a job that is suspended', () => {
  it('stops its workers, then makes a checkpoint, and only then loses the rest', () => {
    let observed = suspended(scheduled());
    expect(deleted(reconcile(observed))).toEqual(['movies-worker-0', 'movies-worker-1']);
    observed = pass(observed);
    expect(conditionOf(observed)).toMatchObject({ status: 'False', reason: 'StoppingWorkers' });
    const asks = reconcile(observed);
    expect(actionsOf(asks, 'checkpoint')).toEqual([{ kind: 'checkpoint', generation: 2 }]);
    expect([deleted(asks), created(asks)]).toEqual([[], []]);
    // A checkpoint of an earlier pause does not count.
    const old = { ...observed, saved: { generation: 1, at: START, underWay: false, number: 3 } };
    expect(actionsOf(reconcile(old), 'checkpoint')).toHaveLength(1);
    const saved = { generation: 2, at: START, underWay: false, number: 4 };
    observed = { ...observed, saved };
    const noted = reconcile(observed);
    expect(actionsOf(noted, 'status')[0]!.status.suspended).toEqual({
      ...{ place: '/shared/movies', checkpoint: 4 },
    });
    expect(deleted(noted)).toEqual([]);
    observed = step(observed, noted);
    // The scheduler goes first: it saves what there is at its end.
    expect(deleted(reconcile(observed))).toEqual([]);
    observed = pass(observed);
    expect(setOf(observed).spec.replicas).toBe(0);
    observed = { ...observed, pods: observed.pods.filter((pod) => pod !== scheduler), report: undefined };
    expect(deleted(reconcile(observed))).toEqual(psNames);
    observed = pass(pass(observed));
    expect(observed.job.status).toMatchObject({ phase: 'Suspended', ps: '0/4', redundancy: 'none' });
    expect(conditionOf(observed)).toMatchObject({ status: 'True', reason: 'Saved' });
    expect(reconcile(observed)).toEqual([]);

    observed = pass(suspended({ ...observed, now: START + 5000 }, false));
    expect(observed.job.status).toMatchObject({ life: 2, restore: '/shared/movies', phase: 'Pending' });
    expect(observed.job.status!.suspended).toBeUndefined();
    expect(observed.job.status!.startTime).toBe('2026-01-01T00:00:05Z');
    const begins = reconcile(observed);
    expect(names(created(begins))).toEqual([
      ...['movies-ps-4', 'movies-ps-5', 'movies-ps-6', 'movies-ps-7', 'movies-worker-2', 'movies-worker-3'],
    ]);
    const { args } = setOf(step(observed, begins)).spec.template.spec.containers[0]!;
    expect(args.slice(args.indexOf('--dir'))[1]).toBe('/var/lib/kintsugi/life-2');
    expect(args.slice(args.indexOf('--restore'))[1]).toBe('/shared/movies');
  });

  it('goes on as it was when the pause is taken back before anything is gone', () => {
    const observed = suspended(pass(suspended(scheduled())), false);
    const actions = reconcile(observed);
    expect(names(created(actions))).toEqual(['movies-worker-2', 'movies-worker-3']);
    expect(deleted(actions)).toEqual([]);
    expect(observed.job.status!.life).toBeUndefined();
  });

  it.each(['held', 'saving'])('has no deadline while it is %s, and a whole one when it goes on', (stage) => {
    const runPolicy = { activeDeadlineSeconds: 60 };
    const given = stage === 'saving' ? { runPolicy, checkpoint } : { runPolicy };
    const late = START + 3600_000;
    let observed = pass(pass(suspended(scheduled(given))));
    expect(actionsOf(reconcile(observed), 'wake')).toEqual([]);
    observed = pass({ ...observed, now: late });
    expect(observed.job.status).toMatchObject({ phase: 'Running', startTime: '2026-01-01T00:00:00Z' });
    observed = pass(suspended(observed, false));
    expect(observed.job.status).toMatchObject({ phase: 'Running', startTime: '2026-01-01T01:00:00Z' });
    const again = pass({ ...observed, now: late + 30_000 });
    expect(again.job.status).toMatchObject({ phase: 'Running', startTime: '2026-01-01T01:00:00Z' });
    expect(actionsOf(reconcile(again), 'wake')).toEqual([{ kind: 'wake', at: late + 60_000 }]);
    const told = { ...again.told!, at: late + 60_000 };
    expect(pass({ ...again, told, now: late + 60_000 }).job.status).toMatchObject({
      reason: 'DeadlineExceeded',
    });
  });

  it('that fails in its pause keeps the time of its beginning', () => {
    const begun = pass(suspended(scheduled()));
    const exit = { exitCode: 2, message: 'kintsugi: UNRECOVERABLE: shard 3' };
    const broken = begun.pods.map((pod) =>
      pod.metadata.name === 'movies-ps-0' ? lived(pod, { exit, again: true, ready: false }) : pod,
    );
    const failed = pass({ ...begun, pods: broken, now: START + 5000 });
    expect(failed.job.status).toMatchObject({ phase: 'Failed', startTime: '2026-01-01T00:00:00Z' });
    const later = pass(suspended({ ...failed, now: START + 9000 }, false));
    expect(later.job.status).toMatchObject({ phase: 'Failed', startTime: '2026-01-01T00:00:00Z' });
  });

  it('ends what it began when the pause is taken back later', () => {
    let observed = pass(suspended(scheduled()));
    observed = pass({ ...observed, saved: { generation: 2, at: START, underWay: false, number: 4 } });
    observed = suspended(observed, false);
    expect(created(reconcile(observed))).toEqual([]);
    observed = { ...observed, pods: observed.pods.filter((pod) => pod !== scheduler) };
    expect(deleted(reconcile(observed))).toEqual(psNames);
  });

  it('keeps its PS where there is no place for a checkpoint, or it fails', () => {
    const held = pass(pass(suspended(scheduled({}))));
    expect(conditionOf(held)).toMatchObject({ status: 'False', reason: 'NoCheckpoint' });
    expect(reconcile(held)).toEqual([]);
    const problem = 'PLACE_FAILED: no room';
    const failing = { ...pass(suspended(scheduled())) };
    const failed = { ...failing, saved: { generation: 2, at: START, underWay: false, problem } };
    const actions = reconcile(failed);
    expect(actionsOf(actions, 'wake')).toEqual([{ kind: 'wake', at: START + 15_000 }]);
    expect(conditionOf(step(failed, actions))).toMatchObject({ reason: 'SaveFailed', message: problem });
    expect(actionsOf(reconcile({ ...failed, now: START + 15_000 }), 'checkpoint')).toHaveLength(1);
  });

  it('goes with the newest checkpoint there is, when it need not have one of its own', () => {
    const quick = { checkpoint: { ...checkpoint, onSuspend: false } };
    const observed = pass(suspended(scheduled(quick)));
    const lastCheckpoint = { number: 7, rows: 1, bytes: 1 };
    const noted = reconcile({ ...observed, report: { ...observed.report!, lastCheckpoint } });
    expect(actionsOf(noted, 'status')[0]!.status.suspended).toMatchObject({ checkpoint: 7 });
    expect(actionsOf(reconcile(observed), 'checkpoint')).toHaveLength(1);
  });

  it('before it began has nothing, until it is to begin', () => {
    const observed = pass(observedOf({ job: jobOf({ runPolicy: { suspend: true } }) }));
    expect(observed.job.status).toMatchObject({ phase: 'Suspended' });
    expect(conditionOf(observed)).toMatchObject({ status: 'True', reason: 'NotBegun' });
    expect([observed.owned, observed.pods, reconcile(observed)]).toEqual([[], [], []]);
    const begun = pass(suspended({ ...observed, now: START + 9000 }, false));
    expect(begun.job.status).toMatchObject({ startPs: 4, startTime: '2026-01-01T00:00:09Z' });
    expect(created(reconcile(suspended(observed, false)))).toHaveLength(6);
  });
});

describe('a ScaleOut of a job that pauses', () => {
  const out = (given: object = {}, status?: ScalerStatus): ScalerObject => {
    const scaler = scalerOf('ScaleOut', { toAdd: { count: 1 }, ...given }, status);
    const finalizers = status ? ['kintsugi.dev/scaling'] : [];
    return { ...scaler, metadata: { ...scaler.metadata, finalizers } };
  };
  const deleting = (scaler: ScalerObject): ScalerObject => ({
    ...scaler,
    metadata: { ...scaler.metadata, deletionTimestamp: '2026-01-01T00:00:00Z' },
  });
  const gone = (): ObservedJob => {
    let observed = pass(suspended(scheduled()));
    observed = pass({ ...observed, saved: { generation: 2, at: START, underWay: false, number: 4 } });
    return pass({ ...observed, pods: [], report: undefined });
  };
  const scalerActions = (observed: ObservedJob) =>
    reconcile(observed).filter(({ kind }) => ['adopt', 'letGo', 'scalerStatus'].includes(kind));
  const PAUSED = { phase: 'Pending', reason: 'JobSuspended', message: 'the job is suspended' };

  it('says what it waits for, is not held, and begins when the job runs again', () => {
    for (const paused of [pass(suspended(scheduled())), pass(pass(suspended(scheduled({})))), gone()]) {
      const scaler = out();
      expect(scalerActions({ ...paused, scalers: [scaler] })).toEqual([
        { kind: 'scalerStatus', scaler, status: PAUSED },
      ]);
      const told = pass({ ...paused, scalers: [scaler] });
      expect(scalerActions(told)).toEqual([]);
    }
    const waits = { ...scheduled(), scalers: [out({}, PAUSED as ScalerStatus)] };
    expect(pass(waits).scalers![0]!.status).toMatchObject({ phase: 'Scaling', from: 4, to: 5 });
  });

  it('that is deleted goes at once where it has not begun', () => {
    const scaler = deleting(out({}, PAUSED as ScalerStatus));
    for (const paused of [pass(suspended(scheduled())), gone()])
      expect(scalerActions({ ...paused, scalers: [scaler] })).toEqual([{ kind: 'letGo', scaler }]);
  });

  it('that has begun goes when nothing of the job is left to be taken back', () => {
    const scaler = deleting(out({}, { phase: 'Scaling', from: 4, to: 5, attempt: 0 }));
    expect(scalerActions({ ...pass(suspended(scheduled())), scalers: [scaler] })).toEqual([]);
    expect(scalerActions({ ...gone(), scalers: [scaler] })).toEqual([{ kind: 'letGo', scaler }]);
    // A ScaleOut that is not deleted goes on with the job.
    const stays = out({}, { phase: 'Scaling', from: 4, to: 5, attempt: 0 });
    expect(scalerActions({ ...gone(), scalers: [stays] })).toEqual([]);
  });

  it('that is over is let go', () => {
    const scaler = out({}, { phase: 'ScaleSucceeded', from: 4, to: 5 });
    expect(scalerActions({ ...gone(), scalers: [scaler] })).toEqual([{ kind: 'letGo', scaler }]);
  });
});

describe('a job without a scheduler that answers', () => {
  const unready = (observed: ObservedJob, isGone: (name: string) => boolean): ObservedJob => ({
    ...observed,
    report: undefined,
    pods: observed.pods.map((pod) => (isGone(pod.metadata.name) ? lived(pod, { ready: false }) : pod)),
  });
  const isScheduler = (name: string) => name === scheduler.metadata.name;
  const placeOf = (observed: ObservedJob) =>
    actionsOf(reconcile(observed), 'status')[0]?.status.suspended ?? observed.job.status!.suspended;
  /** A job whose workers never were ready. `given`: its spec; `formed`: whether its PS were. */
  const beginning = (given: Parameters<typeof jobOf>[0], formed: boolean): ObservedJob => {
    const first = pass(observedOf({ job: jobOf({ checkpoint, ...given }) }));
    const pods = [...first.pods, scheduler].map((pod) =>
      formed && !pod.metadata.name.includes('worker') ? pod : lived(pod, { ready: false }),
    );
    return pass({ ...first, pods });
  };
  const workerless = { worker: { replicas: 0 } };

  it('has trained nothing where it never formed', () => {
    for (const given of [{}, workerless]) {
      const observed = pass(suspended(beginning(given, false)));
      expect(placeOf(unready(observed, () => true))).toEqual({ place: '' });
    }
  });

  it.each([
    ['whose PS serve', isScheduler],
    ['whose PS served once', () => true],
  ])('and %s keeps what was trained', (_, isGone) => {
    for (const given of [{}, workerless]) {
      const before = beginning(given, true);
      expect(before.job.status).toMatchObject({ phase: 'Pending' });
      const observed = pass(suspended(unready(before, isGone)));
      expect(placeOf(observed)).toBeUndefined();
      const actions = reconcile(pass(observed));
      expect(placeOf(pass(observed))).toBeUndefined();
      expect(deleted(actions)).toEqual([]);
      // When it answers a checkpoint is made, whatever was known before.
      const answers = { ...observed, report: reportOf(observed.pods) };
      expect(actionsOf(reconcile(pass(answers)), 'checkpoint')).toHaveLength(1);
    }
  });

  it('has trained nothing in a life that never formed, whatever the one before did', () => {
    let observed = pass(suspended(scheduled()));
    expect(observed.job.status).toMatchObject({ formed: true });
    observed = pass({ ...observed, saved: { generation: 2, at: START, underWay: false, number: 4 } });
    observed = pass({ ...observed, pods: [], report: undefined });
    observed = pass(pass(suspended(observed, false)));
    expect(observed.job.status).toMatchObject({ life: 2, phase: 'Pending' });
    expect(observed.job.status).not.toHaveProperty('formed');
    observed = { ...observed, pods: observed.pods.map((pod) => lived(pod, { ready: false })) };
    observed = pass(suspended({ ...observed, saved: undefined }));
    expect(placeOf(pass(observed))).toEqual({ place: '/shared/movies' });
  });
});

it.each([1, 2])(
  'pauses and returns among lost watches, conflicts and an operator that dies: seed %i',
  async (seed) => {
    const world = new World(seed);
    world.server.faults = { errors: 0.05, breaks: 0.05, forgets: 0.3, late: 4 };
    await world.operator.start();
    world.start(jobOf({ checkpoint, runPolicy: { backoffLimit: 100 } }));
    for (const life of [2, 3]) {
      await world.until(() => world.job().status?.phase === 'Running');
      world.edit(({ metadata, spec }) => {
        metadata.generation = (metadata.generation ?? 0) + 1;
        spec.runPolicy.suspend = true;
      });
      const before = world.operator;
      const next = world.begin();
      await before.stop();
      await next.start();
      await world.until(() => world.job().status?.phase === 'Suspended');
      expect([...world.serving]).toEqual([]);
      expect(world.pods('scheduler')).toEqual([]);
      world.edit(({ metadata, spec }) => {
        metadata.generation = (metadata.generation ?? 0) + 1;
        spec.runPolicy.suspend = false;
      });
      await world.until(() => world.job().status?.life === life);
    }
    await world.until(() => world.job().status?.phase === 'Running' && world.active('worker').length === 2);
    expect(world.problems).toEqual([]);
    expect(world.checkpoints).toBeGreaterThanOrEqual(2);
    await world.operator.stop();
  },
);
