/** Checkpoints of a running job are edited: from made-up observations, and at a job. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { ObjectManifest } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob, PlanReport } from '../../../src/fleet/operator/reconcile/observed.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import { startLocalCluster } from '../../../src/roles/cluster.js';
import { linkTo } from './links.js';
import { actionsOf, jobOf, reportOf, running, START, step } from './support.js';

const FIRST: PlanReport = { url: '/shared/movies', everySeconds: 300, keep: 3 };
const checkpoint = { ...FIRST, onSuspend: true };

const withPlan = (
  given: Parameters<typeof jobOf>[0] = { checkpoint },
  plan: PlanReport | null = FIRST,
): ObservedJob => running(jobOf(given), (pods) => ({ report: reportOf(pods, { plan }) }));
function edited(observed: ObservedJob, change: Partial<typeof checkpoint> | undefined): ObservedJob {
  const { job } = observed;
  const { checkpoint: before, ...others } = job.spec;
  const spec = change ? { ...others, checkpoint: { ...checkpoint, ...before, ...change } } : others;
  const metadata = { ...job.metadata, generation: (job.metadata.generation ?? 0) + 1 };
  return { ...observed, job: { ...job, metadata, spec } };
}
const plans = (observed: ObservedJob) => actionsOf(reconcile(observed), 'plan').map(({ plan }) => plan);
const schedulers = (observed: ObservedJob): ObjectManifest[] =>
  actionsOf(reconcile(observed), 'apply')
    .map(({ object }) => object)
    .filter(({ kind }) => kind === 'StatefulSet');

describe('checkpoints that are edited', () => {
  it('are what the job is asked for; its scheduler is not started again', () => {
    const observed = edited(withPlan(), { everySeconds: 60, url: 's3://bucket/movies' });
    const plan = { url: 's3://bucket/movies', everySeconds: 60, keep: 3 };
    expect(actionsOf(reconcile(observed), 'plan')).toEqual([{ kind: 'plan', generation: 2, plan }]);
    expect(schedulers(observed)).toEqual([]);
    expect(plans({ ...observed, report: { ...observed.report!, plan } })).toEqual([]);
  });

  it('may be taken away, and come later', () => {
    expect(plans(edited(withPlan(), undefined))).toEqual([null]);
    const later = edited(withPlan({}, null), { keep: 5 });
    expect(plans(later)).toEqual([{ ...FIRST, keep: 5 }]);
    expect(schedulers(later)).toEqual([]);
  });

  it('are asked for once, and again 30 s after they were refused, or at once after another edit', () => {
    const observed = edited(withPlan(), { keep: 9 });
    const asked = { generation: 2, at: START, underWay: true };
    expect(plans({ ...observed, planned: asked })).toEqual([]);
    const planned = { ...asked, underWay: false, problem: 'BAD_ARGUMENT: no' };
    expect(plans({ ...observed, planned })).toEqual([]);
    expect(actionsOf(reconcile({ ...observed, planned }), 'wake')).toEqual([
      { kind: 'wake', at: START + 30_000 },
    ]);
    expect(plans({ ...observed, planned, now: START + 30_000 })).toHaveLength(1);
    expect(plans(edited({ ...observed, planned }, { keep: 8 }))).toHaveLength(1);
  });

  it('are left alone while the job is not heard, or is formed', () => {
    const observed = edited(withPlan(), { keep: 9 });
    expect(plans({ ...observed, report: undefined })).toEqual([]);
    expect(plans({ ...observed, report: { ...observed.report!, redundancy: 'forming' } })).toEqual([]);
    expect(plans(withPlan())).toEqual([]);
    const slashes = withPlan({ checkpoint: { ...checkpoint, url: 'file:///shared/movies/' } });
    expect(plans(slashes)).toEqual([]);
  });

  it('come before the checkpoint of a pause: it is at the place that is noted', () => {
    const observed = edited(withPlan(), { url: '/elsewhere' });
    const { runPolicy } = observed.job.spec;
    const spec = { ...observed.job.spec, runPolicy: { ...runPolicy, suspend: true } };
    const pods = observed.pods.filter(({ metadata }) => !metadata.name.includes('worker'));
    const pausing = { ...observed, pods, job: { ...observed.job, spec } };
    expect(plans(pausing)).toHaveLength(1);
    expect(actionsOf(reconcile(pausing), 'checkpoint')).toEqual([]);
    const saved = { generation: 2, at: START, underWay: false, number: 4 };
    const early = actionsOf(reconcile({ ...pausing, saved }), 'status').at(-1);
    expect(early?.status.suspended).toBeUndefined();
    const plan = { ...FIRST, url: '/elsewhere' };
    const moved = { ...pausing, report: { ...pausing.report!, plan } };
    expect(actionsOf(reconcile(moved), 'checkpoint')).toHaveLength(1);
    const noted = actionsOf(reconcile({ ...moved, saved }), 'status').at(-1);
    expect(noted?.status.suspended).toEqual({ place: '/elsewhere', checkpoint: 4 });
  });
});

it('a job takes another plan, and none', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-plan-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const cluster = await startLocalCluster({ code: '1+1', token: 'secret' });
  onTestFinished(() => cluster.close());
  const { link, until } = linkTo(cluster.address);
  await until(() => link.report?.redundancy === 'full');
  expect(link.report!.plan).toBeNull();
  const plan = { url: join(directory, 'here'), everySeconds: 0, keep: 2 };
  link.tellPlan(1, plan);
  await until(() => link.planned?.underWay === false);
  expect([link.planned?.problem, link.report!.plan]).toEqual([undefined, plan]);
  link.tellPlan(2, null);
  await until(() => link.planned?.generation === 2 && !link.planned.underWay);
  expect([link.planned?.problem, link.report!.plan]).toEqual([undefined, null]);
});

it('a job whose checkpoints fail says so, and that they are made again', () => {
  const problem = 'checkpoint 7: PLACE_FAILED: no room';
  const failing = running(jobOf({ checkpoint }), (pods) => ({
    report: reportOf(pods, { plan: FIRST, checkpointProblem: problem }),
  }));
  const of = ({ job }: ObservedJob) => job.status!.conditions!.find(({ type }) => type === 'Checkpointing');
  expect(of(running(jobOf({ checkpoint })))).toBeUndefined();
  expect(of(failing)).toMatchObject({ status: 'False', reason: 'Failing', message: problem });
  const mended = { ...failing, report: reportOf(failing.pods, { plan: FIRST }) };
  const actions = reconcile(mended);
  expect(of(step(mended, actions))).toMatchObject({ status: 'True', reason: 'Made' });
  // Nobody knows while the job does not answer.
  const silent = { ...failing, report: undefined };
  expect(of(step(silent, reconcile(silent)))).toMatchObject({ status: 'False', reason: 'Failing' });
});
