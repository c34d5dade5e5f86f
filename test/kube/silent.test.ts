/** Objects mean what they say, and what a cluster does by itself is not passed over in silence. */
import { dump } from 'js-yaml';
import { expect, it } from 'vitest';
import type { KubeObject, Pod } from '../../src/fleet/operator/objects.js';
import {
  apply,
  get,
  hurry,
  jobOf,
  kubectl,
  MINUTES,
  movieJob,
  NAMESPACE,
  newPs,
  onKubernetes,
  patch,
  pods,
  run,
  until,
  waitFor,
} from './cluster.js';
import { readyNodes } from './machines.js';

const machinesOf = async (job: string, role: string): Promise<string[]> =>
  (await pods(job, role)).map(({ spec }) => spec.nodeName!);
const conditionOf = async (job: string, type: string) =>
  (await jobOf(job)).status?.conditions?.find((one) => one.type === type);
const uidOf = async (what: string): Promise<string> => (await get<KubeObject>(what)).metadata.uid ?? '';

onKubernetes(() => {
  it('PS are on different machines, whether these have zones or not', { timeout: 10 * MINUTES }, async () => {
    const nodes = await readyNodes();
    const wanted = Math.min(4, nodes.length);
    await apply(movieJob('spread', { seconds: 600, ps: { replicas: 4 } }));
    await waitFor('spread', '.status.ps', '4/4');
    expect(new Set(await machinesOf('spread', 'ps')).size).toBe(wanted);
    await kubectl('delete', 'trainingjob/spread', '--timeout=120s');
  });

  it('a worker whose process is told to end is replaced, and the job goes on to its end', {
    timeout: 15 * MINUTES,
  }, async () => {
    await apply(movieJob('signalled', { few: true, seconds: 600, worker: { replicas: 1 } }));
    await until('signalled', ({ status }) => status?.phase === 'Running' && status.workers === '1/1');
    const [worker] = await pods('signalled', 'worker');
    await kubectl('exec', worker!.metadata.name, '-c', 'kintsugi', '--', 'sh', '-c', 'kill 1');
    const job = await until('signalled', ({ status }) => (status?.restartCount ?? 0) > 0);
    expect(job.status).toMatchObject({ phase: 'Running', restartCount: 1 });
    const ended = await get<Pod>(`pod/${worker!.metadata.name}`);
    const [container] = ended.status!.containerStatuses!;
    expect(container!.state!.terminated).toMatchObject({ exitCode: 143 });
    await until('signalled', ({ status }) => status?.currentWorkers?.[0] === 'signalled-worker-1');
    await hurry('signalled');
    await waitFor('signalled', '.status.phase', 'Succeeded', 600);
    expect((await jobOf('signalled')).status?.progress).toMatchObject({ percentage: 100, complete: true });
  });

  it('a deadline does not run while the job is suspended, and begins anew', {
    timeout: 15 * MINUTES,
  }, async () => {
    const runPolicy = { activeDeadlineSeconds: 90 };
    await apply(movieJob('paused', { seconds: 3600, runPolicy }));
    await waitFor('paused', '.status.phase', 'Running');
    const { startTime } = (await jobOf('paused')).status!;
    await patch('paused', { runPolicy: { suspend: true } });
    await until('paused', ({ status }) =>
      Boolean(status?.conditions?.some(({ reason }) => reason === 'NoCheckpoint')),
    );
    const late = Date.parse(startTime!) + 100_000;
    await until('paused', () => Date.now() > late);
    expect((await jobOf('paused')).status?.phase).toBe('Running');
    await patch('paused', { runPolicy: { suspend: false } });
    const again = await until('paused', ({ status }) => status?.startTime !== startTime);
    expect(again.status?.phase).toBe('Running');
    await waitFor('paused', '.status.reason', 'DeadlineExceeded', 200);
  });

  it('a Pod that only has the labels of a job outlives it', { timeout: 10 * MINUTES }, async () => {
    await apply(movieJob('labels', { few: true, seconds: 900 }));
    await waitFor('labels', '.status.phase', 'Running');
    const { metadata, spec } = (await pods('labels', 'worker'))[0]!;
    await apply(
      dump({
        ...{ apiVersion: 'v1', kind: 'Pod' },
        metadata: { name: 'mine', namespace: NAMESPACE, labels: metadata.labels },
        spec: {
          restartPolicy: 'Never',
          containers: [
            {
              name: 'mine',
              image: spec.containers![0]!.image,
              imagePullPolicy: 'Never',
              command: ['sleep', '900'],
            },
          ],
        },
      }),
    );
    await kubectl('wait', 'pod/mine', '--for=condition=Ready', '--timeout=120s');
    await kubectl('delete', 'trainingjob/labels', '--timeout=120s');
    for (const pod of (await pods('labels')).filter((one) => one.metadata.name !== 'mine'))
      await kubectl('wait', '--for=delete', `pod/${pod.metadata.name}`, '--timeout=120s');
    expect((await get<Pod>('pod/mine')).metadata.deletionTimestamp).toBeUndefined();
    await kubectl('delete', 'pod/mine', '--grace-period=1');
  });

  it('a job that is made again at once has objects of its own, and trains', {
    timeout: 15 * MINUTES,
  }, async () => {
    const text = movieJob('again', { few: true });
    await apply(text);
    await waitFor('again', '.status.phase', 'Running');
    for (let round = 0; round < 3; round++) {
      await kubectl('delete', 'trainingjob/again', '--timeout=120s');
      await apply(text);
      const uid = await uidOf('trainingjob/again');
      await newPs('again', [], 3);
      const kinds = ['secret/again-tokens', 'service/again-scheduler', 'statefulset/again-scheduler'];
      for (const what of kinds)
        expect((await get<KubeObject>(what)).metadata.ownerReferences).toMatchObject([{ uid }]);
    }
    await waitFor('again', '.status.phase', 'Succeeded', 600);
  });

  it('a scheduler whose volume is gone begins nothing anew, and its workers do not fail the job', {
    timeout: 10 * MINUTES,
  }, async () => {
    const flags = ['--connect-timeout', '3s'];
    await apply(movieJob('emptied', { few: true, seconds: 900, flags, runPolicy: { backoffLimit: 0 } }));
    await until('emptied', ({ status }) => status?.phase === 'Running' && status.guarded === true);
    const uids = async () => (await pods('emptied', 'ps')).map(({ metadata }) => metadata.uid).sort();
    const before = await uids();
    await kubectl('delete', 'pvc', 'state-emptied-scheduler-0', '--wait=false');
    await kubectl('delete', 'pod', 'emptied-scheduler-0', '--timeout=120s');
    const job = await until('emptied', ({ status }) => status?.reason === 'StateLost');
    expect(job.status?.phase).not.toBe('Failed');
    expect((await conditionOf('emptied', 'Stuck'))?.message).toMatch(/no state at this place.*--restore/);
    // These are made again, and find no scheduler.
    await kubectl('delete', 'pod', '-l', 'kintsugi.dev/job=emptied,kintsugi.dev/role=worker');
    const { status } = await until('emptied', (one) => (one.status?.excusedPods?.length ?? 0) > 3);
    expect(status).toMatchObject({ reason: 'StateLost', restartCount: 0 });
    expect(await uids()).toEqual(before);
    await kubectl('delete', 'trainingjob/emptied', '--timeout=120s');
  });

  it('nobody changes the tokens of a job', { timeout: 10 * MINUTES }, async () => {
    await apply(movieJob('tokens', { few: true, seconds: 900 }));
    await waitFor('tokens', '.status.phase', 'Running');
    const patched = kubectl('patch', 'secret/tokens-tokens', '-p', '{"stringData":{"token":"another"}}');
    await expect(patched).rejects.toThrow(/immutable/);
    await kubectl('delete', 'trainingjob/tokens', '--timeout=120s');
  });

  it('PS that do not know their zones are told of', { timeout: 10 * MINUTES }, async () => {
    const zones = await kubectl(
      'get',
      'nodes',
      '-o=jsonpath={.items[*].metadata.labels.topology\\.kubernetes\\.io/zone}',
    );
    if (zones.trim() !== '') return console.warn('LEFT OUT: machines have zones');
    await apply(movieJob('zoneless', { few: true, seconds: 600, more: { failureDomain: 'zone' } }));
    await waitFor('zoneless', '.status.redundancy', 'full');
    await until('zoneless', ({ status }) =>
      Boolean(status?.conditions?.some(({ reason }) => reason === 'NoZones')),
    );
    expect(await conditionOf('zoneless', 'Redundant')).toMatchObject({ status: 'False' });
    await kubectl('delete', 'trainingjob/zoneless', '--timeout=120s');
  });

  it('edits of what the job owns are undone, and the server is left in peace', {
    timeout: 10 * MINUTES,
  }, async () => {
    const networkPolicy = { mode: 'Job', egress: [] };
    await apply(movieJob('edited', { seconds: 900, more: { networkPolicy } }));
    await waitFor('edited', '.status.phase', 'Running');
    const merge = (what: string, spec: object) =>
      kubectl('patch', what, '--type=merge', '-p', JSON.stringify({ spec }));
    await merge('pdb/edited-ps', { minAvailable: 0 });
    await kubectl('wait', 'pdb/edited-ps', '--for=jsonpath={.spec.minAvailable}=3', '--timeout=60s');
    await kubectl('scale', 'statefulset/edited-scheduler', '--replicas=0');
    const back = '--for=jsonpath={.spec.replicas}=1';
    await kubectl('wait', 'statefulset/edited-scheduler', back, '--timeout=60s');
    await until('edited', ({ status }) => status?.redundancy === 'full');
    // An apply that changes nothing leaves the version, so a field that the server writes otherwise
    // shows here.
    const kinds = ['service/edited-scheduler', 'pdb/edited-ps', 'networkpolicy/edited'];
    type Kept = KubeObject & { metadata: { generation?: number } };
    const generations = () =>
      Promise.all(kinds.map(async (what) => (await get<Kept>(what)).metadata.generation));
    const before = await generations();
    await kubectl('annotate', 'trainingjob/edited', 'looked=again');
    await waitFor('edited', '.status.redundancy', 'full');
    expect(await generations()).toEqual(before);
    await kubectl('delete', 'trainingjob/edited', '--timeout=120s');
  });

  it('a job that has ended holds up no drain', { timeout: 10 * MINUTES }, async () => {
    await apply(movieJob('over', { few: true, runPolicy: { cleanPodPolicy: 'None' } }));
    await waitFor('over', '.status.phase', 'Succeeded', 600);
    await kubectl('wait', '--for=delete', 'pdb/over-ps', '--timeout=60s');
    const [ps] = await pods('over', 'ps');
    const evicted = JSON.stringify({
      ...{ apiVersion: 'policy/v1', kind: 'Eviction' },
      metadata: { name: ps!.metadata.name, namespace: NAMESPACE },
    });
    const path = `/api/v1/namespaces/${NAMESPACE}/pods/${ps!.metadata.name}/eviction`;
    await run('kubectl', ['create', '--raw', path, '-f', '-'], evicted);
  });
});
