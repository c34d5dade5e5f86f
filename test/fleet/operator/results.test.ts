/** Results of a job: in its status, and in a ConfigMap with the whole report. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { missingOf } from '../../../src/fleet/operator/gathered.js';
import type { ObservedEnd, ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import { startLocalCluster } from '../../../src/roles/cluster.js';
import { writeDemoData } from '../../../src/training/loop/demo-data.js';
import { start } from '../../cli/support.js';
import { linkTo } from './links.js';
import { actionsOf, created, jobOf, lived, running, START } from './support.js';
import { World } from './world.js';

const at = (second: number): string => new Date(START + 1000 * second).toISOString();
const FINDINGS = { samples: 90_000, redone: 12, setAside: 0, lost: 0, goodput: 81 };
const TOLD: ObservedEnd = {
  ...{ at: START, underWay: false },
  findings: { results: FINDINGS, report: { events: [{ number: 1, kind: 'node.lost' }] } },
};

/** Both workers have found all samples trained; their messages. */
function trained(messages: readonly string[], more: Partial<ObservedJob> = {}, job = jobOf()): ObservedJob {
  const observed = running(job, () => more);
  const pods = observed.pods.map((pod) => {
    const index = ['movies-worker-0', 'movies-worker-1'].indexOf(pod.metadata.name);
    if (index < 0) return pod;
    const exit = { exitCode: 0, finishedAt: at(-10 * index), message: messages[index] ?? '' };
    return lived(pod, { phase: 'Succeeded', exit });
  });
  return { ...observed, pods, now: START + 60_000 };
}

const statusAfter = (observed: ObservedJob) => actionsOf(reconcile(observed), 'status')[0]?.status;
const reportAfter = (observed: ObservedJob) => actionsOf(reconcile(observed), 'report')[0]?.object;
const textOf = (observed: ObservedJob): string =>
  (reportAfter(observed) as unknown as { data: Record<string, string> }).data['report.json']!;

describe('a job whose samples are trained', () => {
  it('is asked what came of it before it ends, and makes nothing meanwhile', () => {
    const asked = reconcile(trained([], { told: undefined }));
    expect(actionsOf(asked, 'gather')).toEqual([{ kind: 'gather', digest: false }]);
    expect(created(asked)).toEqual([]);
    expect(actionsOf(asked, 'status').every(({ status }) => status.phase === 'Running')).toBe(true);
    const waits = trained([], { told: { at: START, underWay: true } });
    expect(actionsOf(reconcile(waits), 'gather')).toEqual([]);
    expect(statusAfter(waits)?.phase ?? 'Running').toBe('Running');
    expect(statusAfter(trained([], { told: TOLD }))?.phase).toBe('Succeeded');
  });

  it('is asked for a digest only where the spec says so', () => {
    const job = jobOf({ results: { deletionPolicy: 'Delete', digest: true } });
    const asked = reconcile(trained([], { told: undefined }, job));
    expect(actionsOf(asked, 'gather')).toEqual([{ kind: 'gather', digest: true }]);
  });

  it('is asked again where the answer is from before it went on', () => {
    const stale = trained([], { told: { ...TOLD, at: START - 600_000 } });
    expect(actionsOf(reconcile(stale), 'gather')).toHaveLength(1);
  });

  it('ends without its books where no scheduler answers for a minute', () => {
    const away = trained([], { told: undefined, report: undefined });
    const soon = { ...away, now: START + 30_000 };
    expect(actionsOf(reconcile(soon), 'wake')).toContainEqual({ kind: 'wake', at: START + 60_000 });
    expect(statusAfter(soon)?.phase).not.toBe('Succeeded');
    expect(statusAfter(away)).toMatchObject({
      phase: 'Succeeded',
      results: { message: 'the job has not told its books: no scheduler answers' },
    });
  });

  it('has its results in the status', () => {
    const told = trained(
      [
        '{"samples":30000,"trainLoss":0.4,"auc":0.78123456,"logloss":0.5}\n',
        '{"samples":60000,"trainLoss":0.7,"auc":0.77}\n',
      ],
      { told: TOLD },
    );
    expect(statusAfter(told)?.results).toEqual({
      ...FINDINGS,
      ...{ auc: 0.781235, logloss: 0.5, trainLoss: 0.6 },
      ...{ durationSeconds: 60, configMap: 'movies-results' },
    });
  });

  it('takes no other last words for results', () => {
    const told = trained(['{"auc":null}', '{broken'], { told: TOLD });
    expect(statusAfter(told)?.results).toEqual({
      ...FINDINGS,
      ...{ durationSeconds: 60, configMap: 'movies-results' },
    });
  });

  it('keeps them when it is looked at again', () => {
    const told = trained(['{"auc":0.7}'], { told: TOLD });
    const [{ status } = { status: {} }] = actionsOf(reconcile(told), 'status');
    const over = { ...told, job: { ...told.job, status }, told: undefined, now: START + 90_000 };
    expect(actionsOf(reconcile(over), 'status')).toEqual([]);
    expect(reportAfter(over)).toBeUndefined();
  });
});

it('a job that has failed tells what it has trained', () => {
  const job = jobOf({ runPolicy: { activeDeadlineSeconds: 30 } });
  const late = { ...running(job), now: START + 60_000 };
  const asked = reconcile({ ...late, told: undefined });
  expect(actionsOf(asked, 'gather')).toHaveLength(1);
  expect(created(asked)).toEqual([]);
  const told = { ...late, told: { ...TOLD, at: START + 59_000 } };
  expect(statusAfter(told)).toMatchObject({ phase: 'Failed', results: FINDINGS });
});

describe('the ConfigMap with the report', () => {
  it('is made before the job has ended, and has everything that was told', () => {
    const told = trained(['{"samples":3,"trainLoss":0.5,"mine":"x"}'], { told: TOLD });
    const actions = reconcile(told);
    const kinds = actions.map((one) => one.kind);
    expect(kinds.indexOf('report')).toBeLessThan(kinds.indexOf('status'));
    expect(JSON.parse(textOf(told))).toMatchObject({
      job: { name: 'movies', uid: 'uid-movies' },
      ...{ phase: 'Succeeded', results: FINDINGS, events: [{ kind: 'node.lost' }] },
      workersEnded: expect.arrayContaining([
        expect.objectContaining({ name: 'movies-worker-0', exitCode: 0, mine: 'x' }),
      ]),
    });
  });

  it('goes with the job, or outlives it', () => {
    const own = reportAfter(trained([], { told: TOLD }))!;
    expect(own.metadata).toMatchObject({ name: 'movies-results', namespace: 'ml' });
    expect(own.metadata.ownerReferences).toEqual([expect.objectContaining({ uid: 'uid-movies' })]);
    const job = jobOf({ results: { deletionPolicy: 'Retain', digest: false } });
    const kept = reportAfter(trained([], { told: TOLD }, job))!;
    expect(kept.metadata).not.toHaveProperty('ownerReferences');
    expect(kept.metadata.labels).toMatchObject({ 'kintsugi.dev/job': 'movies' });
  });

  it('is cut where it would be too long, and says so', () => {
    const events = Array.from({ length: 9000 }, (_, number) => ({ number, text: 'ü'.repeat(99) }));
    const findings = { results: FINDINGS, report: { events, nodes: ['a'] } };
    const text = textOf(trained([], { told: { ...TOLD, findings } }));
    expect(Buffer.byteLength(text)).toBeLessThan(2 ** 20);
    const { cut, nodes, events: left } = JSON.parse(text) as Record<string, unknown>;
    expect(cut).toMatch(
      /^The whole report has \d+ bytes, and a ConfigMap has at most 1 MiB: events are left/,
    );
    expect([nodes, left]).toEqual([['a'], undefined]);
  });
});

it('samples that an epoch lacks are lost', () => {
  const status = { name: 'train', epochs: 2, ranges: 4, finished: 4, open: 0, redone: 0, setAside: [] };
  expect(missingOf({ ...status, samples: [10, 8], complete: true })).toBe(2);
  expect(missingOf({ ...status, samples: [10, 10], complete: true })).toBe(0);
  expect(missingOf({ ...status, samples: [10, 4], complete: false })).toBeUndefined();
});

it('an operator asks a job, and the API server has the results', async () => {
  const world = new World(1);
  world.start();
  await world.operator.start();
  onTestFinished(() => world.operator.stop());
  await world.until(() => world.job().status?.phase === 'Running');
  for (const pod of world.active('worker')) world.end(pod, 0);
  await world.until(() => world.job().status?.phase === 'Succeeded');
  expect(world.job().status?.results).toMatchObject({ samples: 7, configMap: 'movies-results' });
  const there = world.server.of('ConfigMap').map(({ metadata }) => metadata.name);
  expect(there.sort()).toEqual(['movies-begun', 'movies-results']);
});

it('a worker leaves its results, and a link gathers those of the job', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-results-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const [train, test, results] = ['train.tsv', 'test.tsv', 'results'].map((name) =>
    join(directory, name),
  ) as [string, string, string];
  await writeDemoData({ train, test, rows: 300, testRows: 50, keys: 50, seed: 1 });
  const cluster = await startLocalCluster({ code: '1+1', token: 'secret' });
  onTestFinished(() => cluster.close());
  const flags = [
    '--scheduler',
    cluster.address,
    '--data',
    train,
    '--test',
    test,
    '--dim',
    '4',
    '--batch',
    '32',
  ];
  const env = { KINTSUGI_TOKEN: 'secret', KINTSUGI_RESULTS: results };
  const worker = start(['worker', ...flags, '--log-format', 'json'], env);
  expect((await worker.ended).code).toBe(0);
  const written = JSON.parse(readFileSync(results, 'utf8')) as Record<string, number>;
  expect(written.samples).toBe(300);
  for (const name of ['auc', 'logloss', 'trainLoss', 'seconds'])
    expect(written[name], name).toBeGreaterThan(0);
  const { link, until } = linkTo(cluster.address);
  await until(() => link.report !== undefined);
  link.gather(true);
  await until(() => link.told?.underWay === false);
  const { findings, problem } = link.told!;
  expect(problem).toBeUndefined();
  expect(findings?.results).toMatchObject({ samples: 300, redone: 0, lost: 0, setAside: 0 });
  expect(findings?.results.digest).toMatch(/^[0-9a-f]{64}$/);
  expect(findings?.results.rows).toBeGreaterThan(0);
  expect(findings?.report).toMatchObject({
    dataset: { complete: true },
    status: { redundancy: expect.any(String) },
  });
  expect(() => JSON.stringify(findings)).not.toThrow();
});
