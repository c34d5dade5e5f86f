/** A real job on a real cluster. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { KubeObject } from '../../src/operator/objects.js';
import {
  apply,
  aucs,
  booksOf,
  canLose,
  get,
  type Items,
  install,
  jobOf,
  kubectl,
  listen,
  lose,
  movieJob,
  pods,
  present,
  refused,
  waitFor,
} from './cluster.js';

const MINUTES = 60_000;

describe.skipIf(!present)('on Kubernetes', () => {
  beforeAll(install, 4 * MINUTES);
  afterAll(async () => {
    await kubectl('delete', 'trainingjob', '--all', '--timeout=120s');
  }, 3 * MINUTES);

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
    // Whatever bears its name is its own, or belongs to what is.
    const kinds = 'pods,services,statefulsets,poddisruptionbudgets,secrets,persistentvolumeclaims';
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

  it('what cannot be is refused, with a sentence', async () => {
    const few = movieJob('few', { ps: { replicas: 2 } });
    expect(await refused(few)).toContain('ps.replicas must be at least k+r: a group needs so many PS');
    const bounds = movieJob('few', { ps: { replicas: 4, maxReplicas: 3 } });
    expect(await refused(bounds)).toContain('ps.replicas must be at most ps.maxReplicas');
  });

  it('PS come and go by an edit while it trains, beside an operator that is killed', {
    timeout: 10 * MINUTES,
  }, async () => {
    await apply(movieJob('edited', { epochs: 2, runPolicy: { cleanPodPolicy: 'None' } }));
    await waitFor('edited', '.status.phase', 'Running');
    await waitFor('edited', '.status.ps', '4/4');
    const replicas = (count: number) =>
      kubectl(
        ...['patch', 'trainingjob', 'edited', '--type=merge', '-p'],
        JSON.stringify({ spec: { replicaSpecs: { ps: { replicas: count } } } }),
      );
    await replicas(5);
    await waitFor('edited', '.status.ps', '5/5');
    // All of them: nobody leads until one is back.
    await kubectl(
      'delete',
      'pods',
      '-l',
      'app.kubernetes.io/name=kintsugi-operator',
      '--grace-period=0',
      '--force',
    );
    await replicas(4);
    await waitFor('edited', '.status.ps', '4/4');
    await waitFor('edited', '.status.redundancy', 'full');
    await waitFor('edited', '.status.phase', 'Succeeded');
    const told = await listen('edited');
    expect(await booksOf('edited', told, 2)).toMatchObject({ exactlyOnce: true, problems: [] });
    const { status } = await jobOf('edited');
    // The newest was emptied, ended by itself, and nothing replaced it.
    expect(status).toMatchObject({ restartCount: 0, nextIndex: { ps: 5, worker: 2 } });
    const left = (await pods('edited', 'ps')).map(({ metadata }) => metadata.name).sort();
    expect(left).toEqual(['edited-ps-0', 'edited-ps-1', 'edited-ps-2', 'edited-ps-3']);
    const budget = await get<KubeObject & { spec: object }>('poddisruptionbudget', 'edited-ps');
    expect(budget.spec).toMatchObject({ minAvailable: 3 });
    await kubectl(
      'patch',
      'trainingjob',
      'edited',
      '--type=merge',
      '-p',
      '{"spec":{"runPolicy":{"cleanPodPolicy":"All"}}}',
    );
    for (const { metadata } of await pods('edited'))
      await kubectl('wait', '--for=delete', `pod/${metadata.name}`, '--timeout=120s');
  });

  it.skipIf(!canLose)(
    'a machine with a PS vanishes: its replacement does not wait for it, and nothing is lost',
    { timeout: 10 * MINUTES },
    async () => {
      await apply(movieJob('vanish', { epochs: 2 }));
      await waitFor('vanish', '.status.phase', 'Running');
      await waitFor('vanish', '.status.redundancy', 'full');
      await waitFor('vanish', '.status.ps', '4/4');
      // The operator that leads may be there, too: another one takes over.
      const spared = new Set((await pods('vanish', 'scheduler')).map(({ spec }) => spec.nodeName));
      const lost = (await pods('vanish', 'ps')).find(({ spec }) => !spared.has(spec.nodeName))!;
      const told = await listen('vanish');
      await lose(lost.spec.nodeName!);
      // Its own Pod stays as it is: nobody says that it has ended.
      await kubectl('wait', '--for=create', 'pod/vanish-ps-4', '--timeout=120s');
      expect(await kubectl('get', 'pod', lost.metadata.name, '-o', 'name')).toContain(lost.metadata.name);
      await waitFor('vanish', '.status.redundancy', 'full');
      await waitFor('vanish', '.status.phase', 'Succeeded');
      await listen('vanish', told);
      const { status } = await jobOf('vanish');
      expect(status).toMatchObject({ restartCount: 0, progress: { complete: true, percentage: 100 } });
      for (const auc of aucs(told)) expect(auc).toBeGreaterThanOrEqual(0.775);
      // What a worker told in its last moments is lost with its machine: the ledger is the scheduler's.
      const books = await booksOf('vanish', told, 2);
      expect([books.trained, books.setAside]).toEqual([books.expected, 0]);
    },
  );
});
