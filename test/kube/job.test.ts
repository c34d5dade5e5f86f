/** A real job on a real cluster: `npm run test:kube:short`. */
import { expect, it } from 'vitest';
import {
  apply,
  aucs,
  booksOf,
  get,
  type Items,
  jobOf,
  kubectl,
  listen,
  MINUTES,
  movieJob,
  onKubernetes,
  pods,
  refused,
  waitFor,
} from './cluster.js';
import { canLose, lose, mendMachines } from './machines.js';

/** The report about a job that has ended. */
async function reportOf(job: string): Promise<unknown> {
  const { data } = await get<{ data: Record<string, string> }>('configmap', `${job}-results`);
  return JSON.parse(data['report.json']!);
}

onKubernetes(() => {
  mendMachines();

  it('a job trains MovieLens, each sample exactly once, and leaves nothing behind', {
    timeout: 8 * MINUTES,
  }, async () => {
    await apply(movieJob('movies'));
    await waitFor('movies', '.status.phase', 'Running');
    await waitFor('movies', '.status.redundancy', 'full');
    await waitFor('movies', '.status.phase', 'Succeeded');
    const told = await listen('movies');
    expect(aucs(told).length).toBeGreaterThan(0);
    for (const auc of aucs(told)) expect(auc).toBeGreaterThanOrEqual(0.775);
    expect(await booksOf('movies', told)).toMatchObject({ exactlyOnce: true, problems: [] });
    const job = await jobOf('movies');
    expect(job.status).toMatchObject({ restartCount: 0, progress: { percentage: 100, complete: true } });
    const line = await kubectl('get', 'trainingjob', 'movies', '--no-headers');
    expect(line).toMatch(/^movies +Succeeded +4\/4 +0\/2 +full +100 /);
    const { samples, redone, lost, setAside, auc, trainLoss, goodput, durationSeconds, configMap, message } =
      job.status!.results!;
    expect({ samples, redone, lost, setAside, configMap, message }).toEqual({
      ...{ samples: 90_000, redone: 0, lost: 0, setAside: 0, configMap: 'movies-results' },
      message: undefined,
    });
    expect(auc).toBeCloseTo(Math.max(...aucs(told).filter((one) => Math.abs(one - auc!) < 1e-5)), 5);
    for (const number of [trainLoss, goodput, durationSeconds]) expect(number).toBeGreaterThan(0);
    expect(await kubectl('get', 'trainingjob', 'movies', '--no-headers', '-o', 'wide')).toContain(` ${auc} `);
    const report = await reportOf('movies');
    expect(report).toMatchObject({
      phase: 'Succeeded',
      results: job.status!.results,
      dataset: { complete: true },
    });
    // Whatever bears its name is its own, or belongs to what is.
    const kinds = 'pods,services,statefulsets,poddisruptionbudgets,secrets,persistentvolumeclaims,configmaps';
    const mine = (await get<Items>(kinds)).items.filter(({ metadata }) => /movies/.test(metadata.name));
    expect(mine.length).toBeGreaterThan(9);
    const uids = new Set([job.metadata.uid, ...mine.map(({ metadata }) => metadata.uid)]);
    for (const { metadata } of mine)
      expect(metadata.ownerReferences?.some(({ uid }) => uids.has(uid)) ? 'owned' : metadata.name).toBe(
        'owned',
      );
    await kubectl('delete', 'trainingjob', 'movies');
    for (const { kind, metadata } of mine)
      await kubectl('wait', '--for=delete', `${kind}/${metadata.name}`, '--timeout=120s');
  });

  it.skipIf(process.env.SHORT !== undefined)(
    'a report outlives its job where the job says so, and has a digest of all rows',
    { timeout: 5 * MINUTES },
    async () => {
      const results = { deletionPolicy: 'Retain', digest: true };
      const runPolicy = { ttlSecondsAfterFinished: 1, cleanPodPolicy: 'All' };
      await apply(movieJob('kept', { few: true, runPolicy, more: { results } }));
      await kubectl('wait', '--for=create', 'configmap/kept-results', '--timeout=240s');
      await kubectl('wait', '--for=delete', 'trainingjob/kept', '--timeout=120s');
      expect(await reportOf('kept')).toMatchObject({
        phase: 'Succeeded',
        results: { samples: 10_000, digest: expect.stringMatching(/^[0-9a-f]{64}$/), lost: 0 },
      });
      await kubectl('delete', 'configmap', 'kept-results');
    },
  );

  it('what cannot be is refused, with a sentence', async () => {
    const few = movieJob('few', { ps: { replicas: 2 } });
    expect(await refused(few)).toContain('ps.replicas must be at least k+r: a group needs so many PS');
    const bounds = movieJob('few', { ps: { replicas: 4, maxReplicas: 3 } });
    expect(await refused(bounds)).toContain('ps.replicas must be at most ps.maxReplicas');
  });

  it.skipIf(!canLose || process.env.SHORT !== undefined)(
    'a machine with a PS vanishes: its replacement does not wait for it, and nothing is lost',
    { timeout: 10 * MINUTES },
    async () => {
      // Longer than it takes to miss a machine and to be redundant again: a job that has ended tells no more.
      await apply(movieJob('vanish', { epochs: 2, seconds: 45 }));
      await waitFor('vanish', '.status.phase', 'Running');
      await waitFor('vanish', '.status.redundancy', 'full');
      await waitFor('vanish', '.status.ps', '4/4');
      // The operator that leads may be there, too: another one takes over.
      const spared = new Set((await pods('vanish', 'scheduler')).map(({ spec }) => spec.nodeName));
      const lost = (await pods('vanish', 'ps')).find(({ spec }) => !spared.has(spec.nodeName))!;
      const told = await listen('vanish');
      await lose(lost.spec.nodeName!);
      // The Pod of the lost PS stays as it is: nobody says that it has ended.
      await kubectl('wait', '--for=create', 'pod/vanish-ps-4', '--timeout=120s');
      expect(await kubectl('get', 'pod', lost.metadata.name, '-o', 'name')).toContain(lost.metadata.name);
      await waitFor('vanish', '.status.redundancy', 'full');
      await waitFor('vanish', '.status.phase', 'Succeeded');
      await listen('vanish', told);
      const { status } = await jobOf('vanish');
      expect(status).toMatchObject({ restartCount: 0, progress: { complete: true, percentage: 100 } });
      for (const auc of aucs(told)) expect(auc).toBeGreaterThanOrEqual(0.775);
      // Last reports of a worker are lost with its machine: the ledger is the scheduler's.
      const books = await booksOf('vanish', told, { epochs: 2 });
      expect([books.trained, books.setAside]).toEqual([books.expected, 0]);
    },
  );
});
