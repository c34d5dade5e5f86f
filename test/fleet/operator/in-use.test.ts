/** A Workload of Kueue keeps its quota while Pods of its job are there. */
import { expect, it, onTestFinished } from 'vitest';
import { ApiError } from '../../../src/fleet/operator/api/api.js';
import type { ObjectManifest } from '../../../src/fleet/operator/objects.js';
import type { QueuedWorkload } from '../../../src/fleet/operator/reconcile/queueing.js';
import type { TrainingJob } from '../../../src/fleet/operator/types.js';
import { admitted, conditionIn, evicted, FLAVORS } from './kueue.js';
import { jobOf } from './support.js';
import { World } from './world.js';

const IN_USE = 'kueue.x-k8s.io/resource-in-use';
const HIGH = 'kueue.x-k8s.io/priority-class';
const checkpoint = { url: '/shared/movies', everySeconds: 0, keep: 3, onSuspend: true };

function queuedJob(given: Parameters<typeof jobOf>[0] = {}): TrainingJob {
  const job = jobOf({ checkpoint, ...given });
  const labels = { 'kueue.x-k8s.io/queue-name': 'ads-queue' };
  const annotations = { 'provreq.kueue.x-k8s.io/zone': 'a', mine: 'x' };
  return { ...job, metadata: { ...job.metadata, labels, annotations } };
}

async function beside(job: TrainingJob) {
  const world = new World(3);
  const { server } = world;
  onTestFinished(() => world.operator.stop());
  for (const flavor of FLAVORS) server.put('ResourceFlavor', flavor);
  for (const [name, value] of [
    ['low', 1],
    ['high', 7],
  ] as const) {
    const kind = 'WorkloadPriorityClass';
    const object = { apiVersion: 'kueue.x-k8s.io/v1beta2', kind, metadata: { name }, value };
    server.put(kind, object as ObjectManifest);
  }
  const workloads = (): QueuedWorkload[] => server.of<QueuedWorkload>('Workload');
  world.start(job);
  await world.operator.start();
  await world.until(() => workloads().length === 1 && world.job().status?.phase === 'Suspended');
  return { world, server, workloads, workload: () => workloads()[0]! };
}
async function running(job = queuedJob()) {
  const all = await beside(job);
  all.server.put('Workload', admitted(all.workload()));
  await all.world.until(() => all.world.job().status?.phase === 'Running');
  return all;
}

it('is held for its job, and has its annotations for provisioning', async () => {
  const { workload } = await beside(queuedJob());
  expect(workload().metadata.finalizers).toEqual([IN_USE]);
  expect(workload().metadata.annotations).toMatchObject({ 'provreq.kueue.x-k8s.io/zone': 'a' });
  expect(workload().metadata.annotations).not.toHaveProperty('mine');
});

it('one that somebody deletes keeps its quota until the last Pod has gone, and comes anew', async () => {
  const { world, server, workloads, workload } = await running();
  const { uid } = workload().metadata;
  let podsAtTheEnd: number | undefined;
  const { onChange } = server;
  server.onChange = (kind, object, gone) => {
    if (kind === 'Workload' && gone) podsAtTheEnd = server.of('Pod').length;
    onChange(kind, object, gone);
  };
  await server.delete('Workload', 'ml', workload().metadata.name);
  expect(workload().metadata.deletionTimestamp).toBeDefined();
  await world.until(() => workloads().some(({ metadata }) => metadata.uid !== uid));
  expect(podsAtTheEnd).toBe(0);
  expect(world.checkpoints).toBe(1);
  expect(world.job().status).toMatchObject({ phase: 'Suspended', suspended: { checkpoint: 1 } });
  server.put('Workload', admitted(workload()));
  await world.until(() => world.job().status?.phase === 'Running' && world.job().status?.life === 2);
});

it('is let go when the job has ended', async () => {
  const { world, workload } = await running();
  for (const pod of world.active('worker')) world.end(pod, 0);
  await world.until(() => conditionIn(workload(), 'Finished')?.status === 'True');
  await world.until(() => workload().metadata.finalizers?.length === 0);
});

it('is let go after its job was deleted, when the Pods have gone', async () => {
  const { world, server, workloads, workload } = await running();
  const job = world.job();
  server.drop('TrainingJob', job.metadata);
  // This is what the garbage collector does.
  for (const set of server.of('StatefulSet')) server.drop('StatefulSet', set.metadata);
  await server.delete('Workload', 'ml', workload().metadata.name);
  for (const pod of world.pods('scheduler')) server.drop('Pod', pod.metadata);
  await world.until(() => workloads().length === 0);
  expect(server.of('Pod')).toEqual([]);
});

it('the priority of a job that runs may be changed', async () => {
  const job = queuedJob();
  job.metadata.labels![HIGH] = 'low';
  const { world, workload } = await running(job);
  expect(workload().spec).toMatchObject({ priority: 1, priorityClassRef: { name: 'low' } });
  world.edit(({ metadata }) => {
    metadata.labels = { ...metadata.labels, [HIGH]: 'high' };
  });
  await world.until(() => workload().spec.priority === 7);
  expect(workload().spec.priorityClassRef).toMatchObject({ name: 'high' });
  expect(world.job().status?.phase).toBe('Running');
});

it('a first priority counts when the job queues again: no Workload with quota takes one', async () => {
  const { world, server, workload } = await running();
  const written: object[] = [];
  const { onChange } = server;
  server.onChange = (kind, object, gone) => {
    if (kind === 'Workload') written.push((object as QueuedWorkload).spec.priorityClassRef ?? {});
    onChange(kind, object, gone);
  };
  world.edit(({ metadata, spec }) => {
    metadata.labels = { ...metadata.labels, [HIGH]: 'high' };
    spec.runPolicy.suspend = true;
  });
  await world.until(() => workload().spec.active === false);
  expect(written.every((one) => Object.keys(one).length === 0)).toBe(true);
  server.put('Workload', evicted(workload(), 'Deactivated'));
  await world.until(() => conditionIn(workload(), 'QuotaReserved')?.status === 'False');
  await world.until(() => workload().spec.priority === 7);
});

it('quota is given back though a change of the Workload is refused', async () => {
  const job = queuedJob();
  job.metadata.labels![HIGH] = 'low';
  const { world, server, workload } = await running(job);
  server.refuses = (kind) =>
    kind === 'Workload' ? new ApiError(422, 'Invalid', 'the priority is not to be changed') : undefined;
  world.edit(({ metadata }) => {
    metadata.labels = { ...metadata.labels, [HIGH]: 'high' };
  });
  await world.until(() => world.job().status?.reason === 'Refused');
  server.put('Workload', evicted(workload()));
  await world.until(() => conditionIn(workload(), 'QuotaReserved')?.status === 'False');
  expect(server.of('Pod')).toEqual([]);
});

it('a job that cannot run as it is admitted holds no quota, and queues anew when it is changed', async () => {
  const pools = (pool: string) => ({ template: { spec: { nodeSelector: { pool } } } });
  const { world, server, workload, workloads } = await beside(queuedJob({ ps: pools('mine') }));
  const { uid } = workload().metadata;
  server.put('Workload', admitted(workload()));
  await world.until(() => conditionIn(workload(), 'Finished')?.reason === 'FailedToStart');
  expect(conditionIn(workload(), 'Finished')!.message).toMatch(/pool=spot for ps, and the template has mine/);
  await world.until(() => world.job().status?.reason === 'Queue');
  expect(server.of('Pod')).toEqual([]);
  world.edit(({ spec }) => {
    spec.replicaSpecs.ps.template = { spec: { nodeSelector: { pool: 'spot' } } } as never;
  });
  await world.until(() => workloads().some(({ metadata }) => metadata.uid !== uid));
  server.put('Workload', admitted(workload()));
  await world.until(() => world.job().status?.phase === 'Running');
});
