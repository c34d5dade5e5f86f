/**
 * Every Pod of a real job is made anew while it trains, as docs/kubernetes.md says it. KINTSUGI_TEST_ETCD: an
 * etcd that Pods reach, as etcd://host:port.
 */
import { expect, it } from 'vitest';
import {
  apply,
  booksOf,
  follow,
  hurry,
  IMAGE,
  isServing,
  jobOf,
  kubectl,
  MINUTES,
  movieJob,
  onKubernetes,
  patch,
  pods,
  present,
  type Told,
  waitFor,
} from './cluster.js';

const { KINTSUGI_TEST_ETCD: ETCD } = process.env;
if (present && !ETCD) console.warn('SKIPPED: no job is kept in etcd, KINTSUGI_TEST_ETCD names none');

onKubernetes(() => {
  it.skipIf(!ETCD)(
    'each of several schedulers takes a new template, and one that cannot begin takes a better one',
    { timeout: 10 * MINUTES },
    async () => {
      const etcd = { url: `${ETCD}/kintsugi-test/${Date.now()}`, schedulers: 2 };
      await apply(
        movieJob('led-anew', { few: true, seconds: 600, more: { scheduler: { store: { etcd } } } }),
      );
      await waitFor('led-anew', '.status.phase', 'Running');
      const told: Told = new Map();
      const heard = await follow('led-anew', told);
      const edit = (version: string, image = IMAGE) => {
        const spec = { containers: [{ name: 'kintsugi', image }] };
        const template = { metadata: { labels: { version } }, spec };
        return patch('led-anew', { replicaSpecs: { scheduler: { template } } });
      };
      const versions = async () =>
        (await pods('led-anew', 'scheduler')).map(({ metadata }) => metadata.labels?.version);
      const allAre = async (version: string, so: () => Promise<boolean>): Promise<void> => {
        for (;;) {
          const there = await versions();
          if (there.length === 2 && there.every((one) => one === version) && (await so())) return;
          await new Promise((resolve) => setTimeout(resolve, 500));
        }
      };
      const leads = async () => (await pods('led-anew', 'scheduler')).some(isServing);
      await edit('2');
      await allAre('2', leads);
      // The one that leads stays, because nobody with the new template comes up.
      await edit('3', 'kube-local/nothing:1');
      await waitFor('led-anew', '.status.reason', 'Image');
      expect((await versions()).sort()).toEqual(['2', '3']);
      expect(await leads()).toBe(true);
      await edit('4');
      await allAre('4', leads);
      await waitFor('led-anew', '.status.redundancy', 'full');
      await hurry('led-anew');
      await waitFor('led-anew', '.status.phase', 'Succeeded');
      await heard();
      expect(await booksOf('led-anew', told, { few: true })).toMatchObject({
        exactlyOnce: true,
        problems: [],
      });
    },
  );

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
