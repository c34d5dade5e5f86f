/**
 * The operator is killed after one or two writes that concern a ScaleOut or ScaleIn, or a moment after it has
 * asked the job for the change: nothing is done twice, forgotten, or taken back though it was done.
 */
import { afterAll, expect, it } from 'vitest';
import type { ScalerObject } from '../../src/fleet/operator/types.js';
import {
  apply,
  booksOf,
  get,
  hurry,
  type Items,
  jobOf,
  kubectl,
  listen,
  MINUTES,
  movieJob,
  NAMESPACE,
  onKubernetes,
  pods,
  type Told,
  until,
  waitFor,
} from './cluster.js';
import { full } from './machines.js';
import { immortals, kills, mortals } from './mortal.js';

const JOB = 'rescaled';
/** ScaleOut and ScaleIn, and the count of a job. */
const SCALING = '/scale(out|in)s/|kintsugi-scaling';

type Kind = ScalerObject['kind'];
const ask = (kind: Kind, name: string, spec: object): Promise<string> =>
  apply(
    JSON.stringify({
      ...{ apiVersion: 'kintsugi.dev/v1alpha1', kind, metadata: { name, namespace: NAMESPACE } },
      spec: { selector: { name: JOB }, role: 'ps', timeoutSeconds: 600, ...spec },
    }),
  );
const scaled = async (kind: Kind, name: string, spec: object): Promise<ScalerObject['status']> => {
  await ask(kind, name, spec);
  await kubectl('wait', `${kind}/${name}`, '--for=jsonpath={.status.phase}=ScaleSucceeded', '--timeout=400s');
  return (await get<ScalerObject>(kind, name)).status;
};
const names = async (role: 'ps' | 'worker'): Promise<string[]> =>
  (await pods(JOB, role))
    .filter(({ metadata, status }) => !metadata.deletionTimestamp && status?.phase === 'Running')
    .map(({ metadata }) => metadata.name)
    .sort();
const sized = async (ps: number, workers: number): Promise<void> => {
  await waitFor(JOB, '.status.ps', `${ps}/${ps}`, 400);
  await waitFor(JOB, '.status.workers', `${workers}/${workers}`, 400);
};
const gone = async (): Promise<void> => {
  while ((await get<Items>('scaleouts,scaleins')).items.some(({ metadata }) => metadata.finalizers?.length));
};

onKubernetes(() => {
  afterAll(async () => {
    await full(false).catch(() => '');
    await immortals();
  }, 5 * MINUTES);

  it('scaling comes to its end under operators that die after one or two of its writes', {
    timeout: 20 * MINUTES,
  }, async () => {
    await apply(movieJob(JOB, { few: true, seconds: 1200, ps: { replicas: 4 } }));
    await waitFor(JOB, '.status.phase', 'Running', 400);
    await sized(4, 2);
    await mortals(['1', '2', '1+5', '2+0'], SCALING);
    const told: Told = await listen(JOB);

    expect(await scaled('ScaleOut', 'out', { toAdd: { count: 1 } })).toMatchObject({
      from: 4,
      to: 5,
      attempt: 0,
    });
    await sized(5, 2);
    const byName = { toDelete: { podNames: [`${JOB}-ps-1`] } };
    expect(await scaled('ScaleIn', 'named', byName)).toMatchObject({ from: 5, to: 4, attempt: 0 });
    await sized(4, 2);
    expect(await names('ps')).toEqual([0, 2, 3, 4].map((index) => `${JOB}-ps-${index}`));
    await scaled('ScaleOut', 'workers', { role: 'worker', toAdd: { count: 1 } });
    await sized(4, 3);
    await listen(JOB, told);
    await scaled('ScaleIn', 'fewer', { role: 'worker', toDelete: { count: 1 } });
    await sized(4, 2);

    // The next one is deleted when all is done but for its own status.
    await ask('ScaleOut', 'late', { toAdd: { count: 1 } });
    await until(JOB, ({ spec }) => spec.replicaSpecs.ps.replicas === 5);
    await kubectl('delete', 'scaleout', 'late', '--timeout=300s');
    await sized(5, 2);
    expect((await jobOf(JOB)).status!.nextIndex).toMatchObject({ ps: 6 });
    expect(await names('ps')).toEqual([0, 2, 3, 4, 5].map((index) => `${JOB}-ps-${index}`));

    // No machine has room for the new PS: it is deleted before it is done, and taken back.
    await full(true);
    await ask('ScaleOut', 'regretted', { toAdd: { count: 1 } });
    await waitFor(JOB, '.status.change.to', '6', 400);
    await kubectl('delete', 'scaleout', 'regretted', '--timeout=300s');
    await full(false);
    await sized(5, 2);
    await gone();
    expect((await jobOf(JOB)).spec.replicaSpecs).toMatchObject({
      ps: { replicas: 5 },
      worker: { replicas: 2 },
    });

    await hurry(JOB);
    await waitFor(JOB, '.status.phase', 'Succeeded', 400);
    const books = await booksOf(JOB, await listen(JOB, told), { few: true });
    expect([books.trained, books.setAside]).toEqual([books.expected, 0]);
    const { status } = await jobOf(JOB);
    // Each Pod was made once, under the next index.
    expect(status).toMatchObject({ nextIndex: { ps: 7, worker: 3 }, restartCount: 0 });
    const log = await kubectl('logs', 'killed-operators');
    const afterAsking = log.split('\n').filter((line) => /killed after it asked/.test(line)).length;
    console.log({ kills: await kills(), afterAsking });
    expect(await kills()).toBeGreaterThan(15);
  });
});
