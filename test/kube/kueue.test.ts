/**
 * Jobs in a queue of Kueue, with its custom resources on a real API server. KINTSUGI_TEST_KUEUE: a folder
 * with them (config/components/crd/bases of its repository). The test does what Kueue's controllers do to a
 * Workload.
 */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { QueuedWorkload } from '../../src/fleet/operator/reconcile/queueing.js';
import { admitted, conditionIn, evicted } from '../fleet/operator/kueue.js';
import {
  apply,
  booksOf,
  checkpointsClaim,
  get,
  hurry,
  jobOf,
  kubectl,
  listen,
  MINUTES,
  movieJob,
  NAMESPACE,
  onKubernetes,
  pods,
  present,
  until,
  waitFor,
} from './cluster.js';

const { KINTSUGI_TEST_KUEUE: CRDS } = process.env;
if (present && !CRDS)
  console.warn('SKIPPED: no job is queued, KINTSUGI_TEST_KUEUE names no custom resources');
const JOB = 'queued';
const KINDS = /_(workloads|resourceflavors|workloadpriorityclasses)\.yaml$/;

const workloads = async (): Promise<QueuedWorkload[]> =>
  (await get<{ items: QueuedWorkload[] }>('workloads.kueue.x-k8s.io')).items;

/** Resolves with the Workload of the job when this holds. */
async function workloadThat(so: (one: QueuedWorkload) => boolean): Promise<QueuedWorkload> {
  for (;;) {
    const found = (await workloads()).find(so);
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

/** Writes the status as Kueue does. */
async function say({ metadata, status }: QueuedWorkload): Promise<void> {
  const what = ['patch', 'workloads.kueue.x-k8s.io', metadata.name, '--subresource=status', '--type=merge'];
  await kubectl(...what, '-p', JSON.stringify({ status }));
}

const says = (type: string, value: string) => (one: QueuedWorkload) =>
  conditionIn(one, type)?.status === value;

onKubernetes(() => {
  it.skipIf(!CRDS)(
    'a job waits, runs where it is admitted, is evicted, and goes on: each sample exactly once',
    { timeout: 20 * MINUTES },
    async () => {
      const files = readdirSync(CRDS!).filter((name) => KINDS.test(name));
      expect(files).toHaveLength(3);
      for (const file of files) await kubectl('apply', '--server-side', '-f', join(CRDS!, file));
      const flavor = { apiVersion: 'kueue.x-k8s.io/v1beta2', kind: 'ResourceFlavor' };
      const nodeLabels = { 'kubernetes.io/os': 'linux' };
      await apply(JSON.stringify({ ...flavor, metadata: { name: 'spot' }, spec: { nodeLabels } }));
      // The operator that leads looks for new kinds once a minute.
      await kubectl('rollout', 'restart', 'deploy/kintsugi-operator');
      await kubectl('rollout', 'status', 'deploy/kintsugi-operator', '--timeout=180s');
      await apply(checkpointsClaim());

      const metadata = { labels: { 'kueue.x-k8s.io/queue-name': 'ads' } };
      const shape = { few: true, seconds: 300, checkpoint: { everySeconds: 0 }, metadata };
      await apply(movieJob(JOB, shape));
      const waits = await workloadThat(({ metadata: { name } }) => name.startsWith(`trainingjob-${JOB}-`));
      await waitFor(JOB, '.status.phase', 'Suspended', 60);
      expect(await pods(JOB)).toEqual([]);
      expect(waits.spec).toMatchObject({ queueName: 'ads', active: true });
      expect(waits.spec.podSets.map(({ name, count }) => [name, count])).toEqual([
        ['scheduler', 1],
        ['ps', 4],
        ['worker', 2],
      ]);

      await say(admitted(waits));
      await waitFor(JOB, '.status.phase', 'Running', 400);
      const runs = await workloadThat(says('PodsReady', 'True'));
      for (const { metadata: meta, spec } of await pods(JOB)) {
        expect(spec.nodeSelector).toEqual(nodeLabels);
        expect(meta.labels!['kueue.x-k8s.io/podset']).toBe(meta.labels!['kintsugi.dev/role']);
      }
      const told = await listen(JOB);

      await say(evicted(runs));
      const free = await workloadThat(says('QuotaReserved', 'False'));
      expect(conditionIn(free, 'Requeued')).toMatchObject({ status: 'True', reason: 'Preempted' });
      expect(free.status?.admission ?? undefined).toBeUndefined();
      expect(await pods(JOB)).toEqual([]);
      expect((await jobOf(JOB)).status).toMatchObject({ phase: 'Suspended', suspended: { checkpoint: 1 } });

      await say(admitted(free));
      await until(JOB, ({ status }) => status?.life === 2 && status.phase === 'Running');
      await hurry(JOB);
      await waitFor(JOB, '.status.phase', 'Succeeded', 600);
      await workloadThat(says('Finished', 'True'));
      const books = await booksOf(JOB, await listen(JOB, told), { few: true });
      expect([books.trained, books.setAside]).toEqual([books.expected, 0]);
      await kubectl('delete', 'trainingjob', JOB, '--timeout=120s');
      await kubectl('wait', '--for=delete', 'workloads.kueue.x-k8s.io', '--all', '--timeout=60s');
      expect((await workloads()).filter(({ metadata: one }) => one.namespace === NAMESPACE)).toEqual([]);
    },
  );
});
