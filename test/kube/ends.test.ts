/** Ends of small jobs, and what stays of them. */
import { setTimeout as pause } from 'node:timers/promises';
import { expect, it } from 'vitest';
import {
  apply,
  get,
  type Items,
  jobOf,
  kubectl,
  MINUTES,
  movieJob,
  onKubernetes,
  pods,
  storyOf,
  waitFor,
} from './cluster.js';

/** One PS, and a worker that does not train: it runs this program. */
const small = (name: string, program: string, runPolicy: object): Promise<string> =>
  apply(
    movieJob(name, {
      ...{ code: { k: 1, r: 0 }, ps: { replicas: 1 }, runPolicy },
      worker: { replicas: 1, command: ['node', '-e', program], args: [] },
    }),
  );
const ENDLESS = 'setInterval(() => {}, 1000); process.on("SIGTERM", () => process.exit(0))';
const names = async (job: string): Promise<string[]> =>
  (await pods(job)).map(({ metadata }) => metadata.name).sort();
/** Roles of its Pods. Those of a machine that was slow for a while were replaced under another index. */
const roles = async (job: string): Promise<string[]> => [
  ...new Set((await pods(job)).map(({ metadata }) => metadata.labels?.['kintsugi.dev/role'] ?? '').sort()),
];
/** Resolves when the job has none but these. */
async function onlyHas(job: string, ...kept: string[]): Promise<void> {
  while ((await roles(job)).some((role) => !kept.includes(role))) await pause(1000);
}
const condition = async (job: string, type: string) =>
  (await jobOf(job)).status?.conditions?.find((one) => one.type === type);

onKubernetes(() => {
  it('a job that has not ended at its deadline fails, and what runs goes', {
    timeout: 5 * MINUTES,
  }, async () => {
    await small('late', ENDLESS, { activeDeadlineSeconds: 10, cleanPodPolicy: 'Running' });
    await waitFor('late', '.status.phase', 'Failed');
    expect(await condition('late', 'Failed')).toMatchObject({
      ...{ status: 'True', reason: 'DeadlineExceeded', message: 'it has not ended in 10 s since its start' },
    });
    await onlyHas('late');
    expect(await storyOf('late')).toContain('Failed');
  });

  it('more failures than the limit fail the job, with the last words', { timeout: 5 * MINUTES }, async () => {
    await small('failing', 'console.error("no good"); process.exit(1)', { backoffLimit: 1 });
    await waitFor('failing', '.status.phase', 'Failed');
    const failed = await condition('failing', 'Failed');
    expect(failed).toMatchObject({ reason: 'BackoffLimitExceeded' });
    expect(failed!.message).toContain('2 Pods failed, and 1 may');
    expect(failed!.message).toContain('no good');
    expect((await jobOf('failing')).status).toMatchObject({ restartCount: 2 });
    // Failed Pods stay, so that their logs can be read.
    expect(await names('failing')).toEqual(expect.arrayContaining(['failing-worker-0', 'failing-worker-1']));
  });

  it('bad input fails the job at once, with the reason', { timeout: 5 * MINUTES }, async () => {
    await apply(
      movieJob('wrong', {
        ...{ code: { k: 1, r: 0 }, ps: { replicas: 1 } },
        worker: { replicas: 1, args: ['--data', '/data/nothing.tsv'] },
      }),
    );
    await waitFor('wrong', '.status.phase', 'Failed');
    const failed = await condition('wrong', 'Failed');
    expect(failed).toMatchObject({ reason: 'BadInput' });
    expect(failed!.message).toContain('/data/nothing.tsv');
  });

  it('the policy says which Pods stay', { timeout: 8 * MINUTES }, async () => {
    const policies = ['None', 'Running', 'All'] as const;
    const jobs = policies.map((policy) => `keeps-${policy.toLowerCase()}`);
    for (const [index, cleanPodPolicy] of policies.entries())
      await small(jobs[index]!, 'process.exit(0)', { cleanPodPolicy });
    for (const job of jobs) await waitFor(job, '.status.phase', 'Succeeded');
    const [none, running, all] = jobs as [string, string, string];
    await onlyHas(running, 'worker');
    await onlyHas(all);
    expect([await roles(none), await roles(running)]).toEqual([['ps', 'scheduler', 'worker'], ['worker']]);
  });

  it('a report that the quota does not let in comes later, and takes over nothing of others', {
    timeout: 8 * MINUTES,
  }, async () => {
    const reported = async (job: string) => {
      const path = "-o=jsonpath={.data['report\\.json']}";
      const text = await kubectl('get', 'configmap', `${job}-results`, path);
      return JSON.parse(text) as Record<string, unknown>;
    };
    await kubectl('create', 'configmap', 'mine-results', '--from-literal=mine=x');
    await kubectl('create', 'quota', 'few', '--hard=count/configmaps=0');
    const jobs = ['full', 'mine'];
    for (const job of jobs) await small(job, 'process.exit(0)', {});
    for (const job of jobs) await waitFor(job, '.status.phase', 'Succeeded');
    const refused = async (job: string) => (await jobOf(job)).status?.results?.reportRefused;
    expect(await refused('full')).toContain('exceeded quota: few');
    expect(await refused('mine')).toContain('there is a ConfigMap of this name');
    const mine = await get<Items['items'][number] & { data: object }>('configmap/mine-results');
    expect([mine.data, mine.metadata.ownerReferences]).toEqual([{ mine: 'x' }, undefined]);
    await kubectl('delete', 'quota/few', 'configmap/mine-results');
    for (const job of jobs) {
      await waitFor(job, '.status.results.configMap', `${job}-results`);
      expect(await refused(job)).toBeUndefined();
      const report = await reported(job);
      expect(report).toMatchObject({ phase: 'Succeeded', job: { name: job }, dataset: null });
      expect(report).not.toHaveProperty('cut');
    }
  });

  it('a job that has ended is deleted after its time, with all that was its own', {
    timeout: 5 * MINUTES,
  }, async () => {
    await small('short', 'process.exit(0)', { ttlSecondsAfterFinished: 5 });
    await waitFor('short', '.status.phase', 'Succeeded');
    await kubectl('wait', '--for=delete', 'trainingjob/short', '--timeout=120s');
    const kinds = 'pods,services,statefulsets,poddisruptionbudgets,secrets,persistentvolumeclaims';
    for (const { kind, metadata } of (await get<Items>(kinds)).items)
      if (/^short-|-short-/.test(metadata.name))
        await kubectl('wait', '--for=delete', `${kind}/${metadata.name}`, '--timeout=120s');
  });
});
