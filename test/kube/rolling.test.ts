/** Every Pod of a real job is made anew while it trains, as docs/kubernetes.md says it. */
import { expect, it } from 'vitest';
import {
  apply,
  booksOf,
  follow,
  hurry,
  jobOf,
  kubectl,
  MINUTES,
  movieJob,
  onKubernetes,
  patch,
  pods,
  type Told,
  waitFor,
} from './cluster.js';

onKubernetes(() => {
  it('a job takes a new template by one restart after the other, and each sample counts once', {
    timeout: 12 * MINUTES,
  }, async () => {
    await apply(movieJob('rolled', { few: true, seconds: 600 }));
    await waitFor('rolled', '.status.phase', 'Running');
    await waitFor('rolled', '.status.ps', '4/4');
    const told: Told = new Map();
    const first = await follow('rolled', told);
    const metadata = { labels: { version: '2' } };
    const { replicaSpecs } = (await jobOf('rolled')).spec;
    const edited = Object.entries(replicaSpecs).map(([role, { template }]) => [
      role,
      { template: { ...template, metadata } },
    ]);
    await patch('rolled', { replicaSpecs: Object.fromEntries(edited) });
    const old = async (role: string) =>
      (await pods('rolled', role)).filter((pod) => pod.metadata.labels?.version !== '2');
    for (const pod of await old('ps')) {
      await kubectl('delete', 'pod', pod.metadata.name);
      await waitFor('rolled', '.status.redundancy', 'full');
      await waitFor('rolled', '.status.ps', '4/4');
    }
    const workers = (await old('worker')).map((pod) => pod.metadata.name);
    await kubectl('delete', 'pod', ...workers);
    await first();
    await waitFor('rolled', '.status.workers', '2/2');
    const second = await follow('rolled', told);
    await hurry('rolled');
    await waitFor('rolled', '.status.phase', 'Succeeded');
    await second();
    for (const role of ['scheduler', 'ps', 'worker']) expect(await old(role)).toEqual([]);
    expect(await booksOf('rolled', told, { few: true })).toMatchObject({ exactlyOnce: true, problems: [] });
    expect((await jobOf('rolled')).status).toMatchObject({ restartCount: 0, progress: { percentage: 100 } });
  });
});
