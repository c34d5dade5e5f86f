/**
 * Jobs in a queue of Kueue, with its custom resources on a real API server. KINTSUGI_TEST_KUEUE: a folder
 * with them (config/components/crd/bases of its repository). The test does what Kueue's controllers do to a
 * Workload.
 */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import type { QueuedWorkload } from '../../src/fleet/operator/reconcile/queueing.js';
import type { ScalerObject, TrainingJob } from '../../src/fleet/operator/types.js';
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
  patch,
  pods,
  present,
  until,
  waitFor,
} from './cluster.js';
import { readyNodes } from './machines.js';

const { KINTSUGI_TEST_KUEUE: CRDS } = process.env;
if (present && !CRDS)
  console.warn('SKIPPED: no job is queued, KINTSUGI_TEST_KUEUE names no custom resources');
const JOB = 'queued';
const KINDS = /_(workloads|resourceflavors|workloadpriorityclasses)\.yaml$/;
const OF_KUEUE = { apiVersion: 'kueue.x-k8s.io/v1beta2' };
const PRIORITY = 'kueue.x-k8s.io/priority-class';
const POOL = 'kintsugi-test-pool';

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

/** Kueue's kinds, which the operator that begins then knows. */
async function installKueue(): Promise<void> {
  await apply(checkpointsClaim());
  // A kind that is applied again is served anew, and who watches it is behind for seconds.
  const there = await kubectl('get', 'crd', 'workloads.kueue.x-k8s.io', '--ignore-not-found', '-o', 'name');
  if (there !== '') return;
  const files = readdirSync(CRDS!).filter((name) => KINDS.test(name));
  expect(files).toHaveLength(3);
  for (const file of files) await kubectl('apply', '--server-side', '-f', join(CRDS!, file));
  // The operator that leads looks for new kinds once a minute.
  await kubectl('rollout', 'restart', 'deploy/kintsugi-operator');
  await kubectl('rollout', 'status', 'deploy/kintsugi-operator', '--timeout=180s');
}

const flavor = (name: string, spec: object): Promise<string> =>
  apply(JSON.stringify({ ...OF_KUEUE, kind: 'ResourceFlavor', metadata: { name }, spec }));

const workersOf = (job: TrainingJob): number | undefined => job.status?.replicaStatuses?.worker?.active;

const says = (type: string, value: string) => (one: QueuedWorkload) =>
  conditionIn(one, type)?.status === value;

onKubernetes(() => {
  afterAll(async () => {
    await kubectl('label', 'nodes', '--all', `${POOL}-`).catch(() => '');
    await kubectl('taint', 'nodes', '--all', `${POOL}-`).catch(() => '');
  });

  it.skipIf(!CRDS)(
    'a job waits, runs where it is admitted, is evicted, and goes on: each sample exactly once',
    { timeout: 20 * MINUTES },
    async () => {
      await installKueue();
      const nodeLabels = { 'kubernetes.io/os': 'linux' };
      await flavor('spot', { nodeLabels });

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

  it.skipIf(!CRDS)(
    'an admission names machines and bounds the counts; its user changes, suspends and resumes the job',
    { timeout: 20 * MINUTES },
    async () => {
      await installKueue();
      const machines = await readyNodes();
      const pools = { spot: machines.slice(0, 2), calm: machines.slice(2) };
      expect(pools.calm.length).toBeGreaterThan(0);
      for (const [pool, nodes] of Object.entries(pools))
        for (const node of nodes) await kubectl('label', 'node', node, `${POOL}=${pool}`, '--overwrite');
      for (const node of pools.spot) await kubectl('taint', 'node', node, `${POOL}=spot:NoSchedule`);
      const tolerations = [{ key: POOL, operator: 'Equal', value: 'spot', effect: 'NoSchedule' }];
      await flavor('spot', { nodeLabels: { [POOL]: 'spot' }, tolerations });
      await flavor('calm', { nodeLabels: { [POOL]: 'calm' } });
      const high = { kind: 'WorkloadPriorityClass', metadata: { name: 'high' }, value: 7, description: '' };
      await apply(JSON.stringify({ ...OF_KUEUE, ...high }));
      const placed = async (pool: 'spot' | 'calm') => {
        const all = await pods(JOB);
        for (const { spec } of all) {
          expect(spec.nodeSelector).toEqual({ [POOL]: pool });
          expect(pools[pool]).toContain(spec.nodeName);
        }
        return all;
      };

      const metadata = { labels: { 'kueue.x-k8s.io/queue-name': 'ads' } };
      const worker = { replicas: 3, minReplicas: 1 };
      await apply(
        movieJob(JOB, { few: true, seconds: 600, checkpoint: { everySeconds: 0 }, metadata, worker }),
      );
      const waits = await workloadThat(({ metadata: { name } }) => name.startsWith(`trainingjob-${JOB}-`));
      expect(waits.spec.podSets.at(-1)).toMatchObject({ name: 'worker', count: 3, minCount: 1 });

      // Fewer workers than it wants, on machines with a taint.
      await say(admitted(waits, { worker: 2 }));
      await waitFor(JOB, '.status.phase', 'Running', 400);
      await waitFor(JOB, '.status.workers', '2/2', 400);
      const told = await listen(JOB);
      expect(await placed('spot')).toHaveLength(7);
      const admission = (await jobOf(JOB)).status!.conditions!.find(({ type }) => type === 'Admitted');
      expect(admission).toMatchObject({ status: 'True', message: 'by the cluster queue ads, 2 of 3 worker' });

      // The job gets no more than was admitted, however it is asked for.
      await kubectl('label', 'trainingjob', JOB, `${PRIORITY}=high`);
      await patch(JOB, { replicaSpecs: { worker: { replicas: 4 } } });
      const condition = '.status.conditions[?(@.type=="Admitted")].message';
      await waitFor(JOB, condition, 'by the cluster queue ads, 2 of 4 worker', 60);
      const once = (kind: 'ScaleOut' | 'ScaleIn', name: string, what: object) =>
        apply(
          JSON.stringify({
            ...{ apiVersion: 'kintsugi.dev/v1alpha1', kind, metadata: { name, namespace: NAMESPACE } },
            spec: { selector: { name: JOB }, role: 'worker', timeoutSeconds: 120, ...what },
          }),
        );
      const phase = (what: string, wanted: string) =>
        kubectl('wait', what, `--for=jsonpath={.status.phase}=${wanted}`, '--timeout=200s');
      await once('ScaleOut', 'more', { toAdd: { count: 1 } });
      await phase('scaleout/more', 'ScaleFailed');
      expect((await get<ScalerObject>('scaleout', 'more')).status).toMatchObject({ reason: 'AboveMaximum' });
      await once('ScaleIn', 'fewer', { toDelete: { count: 1 } });
      await phase('scalein/fewer', 'ScaleSucceeded');
      await until(JOB, (job) => workersOf(job) === 1);
      await listen(JOB, told);
      await once('ScaleOut', 'again', { toAdd: { count: 1 } });
      await phase('scaleout/again', 'ScaleSucceeded');
      await patch(JOB, { replicaSpecs: { worker: { replicas: 3 } } });
      const runs = await workloadThat(says('PodsReady', 'True'));
      // The custom resource takes no first priority while quota is reserved.
      expect(runs.spec).not.toHaveProperty('priorityClassRef');
      expect(runs.spec.podSets.at(-1)).toMatchObject({ count: 3 });
      expect((await jobOf(JOB)).status!.reason ?? '').toBe('');
      await listen(JOB, told);

      // Kueue moves all of it to other machines, with an update of an admission check.
      await say(evicted(runs));
      await workloadThat(says('QuotaReserved', 'False'));
      expect(await pods(JOB)).toEqual([]);
      const free = await workloadThat(({ spec }) => spec.priority === 7);
      expect(free.metadata.uid).toBe(waits.metadata.uid);
      const update = { name: 'worker', annotations: { request: 'r1' }, labels: { moved: 'yes' } };
      const check = { name: 'provision', state: 'Ready', message: '', podSetUpdates: [update] };
      const moved = admitted(free, {}, 'calm');
      moved.status!.admissionChecks = [{ ...check, lastTransitionTime: '2026-01-01T00:00:00Z' }] as never;
      await say(moved);
      await until(JOB, ({ status }) => status?.life === 2 && status.phase === 'Running');
      await waitFor(JOB, '.status.workers', '3/3', 400);
      for (const { metadata: meta } of await placed('calm')) {
        const isWorker = meta.labels!['kintsugi.dev/role'] === 'worker';
        const notes = [meta.annotations?.request, meta.labels?.moved];
        expect(notes).toEqual(isWorker ? ['r1', 'yes'] : [undefined, undefined]);
      }
      await listen(JOB, told);

      // The user suspends the job, and takes that back.
      await patch(JOB, { runPolicy: { suspend: true } });
      const idle = await workloadThat(({ spec }) => spec.active === false);
      await say(evicted(idle, 'Deactivated'));
      const freed = await workloadThat(says('QuotaReserved', 'False'));
      expect(conditionIn(freed, 'Requeued')).toMatchObject({ status: 'False' });
      expect(await pods(JOB)).toEqual([]);
      await patch(JOB, { runPolicy: { suspend: false } });
      await say(admitted(await workloadThat(({ spec }) => spec.active === true), {}, 'calm'));
      await until(JOB, ({ status }) => status?.life === 3 && status.phase === 'Running');
      await hurry(JOB);
      await waitFor(JOB, '.status.phase', 'Succeeded', 600);
      const done = await workloadThat(says('Finished', 'True'));
      expect(done.metadata.uid).toBe(waits.metadata.uid);
      const books = await booksOf(JOB, await listen(JOB, told), { few: true });
      expect([books.trained, books.setAside]).toEqual([books.expected, 0]);
      await kubectl('delete', 'trainingjob', JOB, '--timeout=120s');
    },
  );
});
