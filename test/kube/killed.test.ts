/**
 * The operator is killed again and again: SIGKILL when its third to fifth write is answered, before it sees
 * the answer. Every step of a job falls between two operators. test/fleet/operator/killed.test.ts has every
 * write in turn.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { dump, load } from 'js-yaml';
import { afterAll, expect, it } from 'vitest';
import type { KubeObject, ObjectManifest } from '../../src/fleet/operator/objects.js';
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
  whole,
} from './cluster.js';
import { immortals, kills, mortals } from './mortal.js';

const JOB = 'mortal';
async function scale(kind: 'ScaleOut' | 'ScaleIn', given: object): Promise<ScalerObject['status']> {
  const name = `${JOB}-${kind.toLowerCase()}`;
  const spec = { selector: { name: JOB }, role: 'ps', timeoutSeconds: 600, ...given };
  const metadata = { name, namespace: NAMESPACE };
  await apply(JSON.stringify({ apiVersion: 'kintsugi.dev/v1alpha1', kind, metadata, spec }));
  await kubectl('wait', `${kind}/${name}`, '--for=jsonpath={.status.phase}=ScaleSucceeded', '--timeout=400s');
  return (await get<ScalerObject>(kind, name)).status;
}

/** Every object that bears the name of the job, or is labelled as its own. */
async function objects(): Promise<string[]> {
  const kinds = 'pods,services,statefulsets,poddisruptionbudgets,secrets,persistentvolumeclaims,configmaps';
  const isIts = ({ metadata }: KubeObject) =>
    metadata.labels?.['kintsugi.dev/job'] === JOB || metadata.name.includes(`${JOB}-`);
  const { items } = await get<Items>(kinds);
  return items.filter(isIts).map(({ kind, metadata }) => `${kind}/${metadata.name}`);
}

onKubernetes(() => {
  afterAll(immortals, 5 * MINUTES);

  it('a job comes to the same end under operators that are killed every few writes', {
    timeout: 20 * MINUTES,
  }, async () => {
    await mortals(['3', '4', '5']);
    const job = load(movieJob(JOB, { few: true, seconds: 1500 })) as ObjectManifest;
    await apply(dump(job));
    await waitFor(JOB, '.status.phase', 'Running', 400);
    await waitFor(JOB, '.status.ps', '4/4', 400);
    expect(await kills()).toBeGreaterThan(2);
    const scaledOut = await scale('ScaleOut', { toAdd: { count: 1 } });
    expect(scaledOut).toMatchObject({ from: 4, to: 5, attempt: 0 });
    await waitFor(JOB, '.status.ps', '5/5', 400);
    const scaledIn = await scale('ScaleIn', { toDelete: { count: 1 } });
    expect(scaledIn).toMatchObject({ from: 5, to: 4, attempt: 0 });
    const told: Told = await listen(JOB);
    await kubectl('delete', 'pod', `${JOB}-worker-0`);
    await until(JOB, ({ status }) => status?.currentWorkers?.includes(`${JOB}-worker-2`) ?? false);
    await until(JOB, ({ status }) => whole(status?.workers));
    const before = await kills();
    await hurry(JOB);
    await waitFor(JOB, '.status.phase', 'Succeeded', 400);
    const books = await booksOf(JOB, await listen(JOB, told), { few: true });
    expect([books.trained, books.setAside]).toEqual([books.expected, 0]);
    while (!(await objects()).includes(`ConfigMap/${JOB}-results`)) await pause(500);
    const { status } = await jobOf(JOB);
    // Each Pod was made once, under the next index.
    expect(status).toMatchObject({ phase: 'Succeeded', nextIndex: { ps: 5, worker: 3 }, restartCount: 0 });
    expect(status!.results).toMatchObject({ samples: 10_000, lost: 0, setAside: 0 });
    const named = (role: string) => pods(JOB, role).then((all) => all.map((one) => one.metadata.name).sort());
    expect(await named('ps')).toEqual([0, 1, 2, 3].map((index) => `${JOB}-ps-${index}`));
    expect(await named('worker')).toEqual([1, 2].map((index) => `${JOB}-worker-${index}`));
    const total = await kills();
    console.log({ kills: total, atTheEnd: total - before });
    await kubectl('delete', 'trainingjob', JOB, '--timeout=120s');
    while ((await objects()).length > 0) await pause(500);
  });
});
