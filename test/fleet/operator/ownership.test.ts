/** Objects that have the labels of a job, and are not the job's. */
import { expect, it, onTestFinished } from 'vitest';
import type { KubeObject, Pod } from '../../../src/fleet/operator/objects.js';
import { lived } from './support.js';
import { World } from './world.js';

function begin(): World {
  const world = new World(1);
  onTestFinished(() => world.operator.stop());
  return world;
}

/** An owner of the kind of a job, by its uid. */
const jobOwner = (uid: string) => [
  { apiVersion: 'kintsugi.dev/v1alpha1', kind: 'TrainingJob', name: 'movies', uid, controller: true },
];
const podOf = (name: string, role: string, ownerReferences?: object[]): Pod =>
  lived({
    ...{ apiVersion: 'v1', kind: 'Pod' },
    metadata: {
      ...{ name, namespace: 'ml', labels: { 'kintsugi.dev/job': 'movies', 'kintsugi.dev/role': role } },
      ...(ownerReferences ? { ownerReferences } : {}),
    },
  } as KubeObject);

it('Pods that carry the labels of a job that is gone, and are not owned by it, stay', async () => {
  const world = begin();
  const other = [{ apiVersion: 'apps/v1', kind: 'ReplicaSet', name: 'movies', uid: 'x', controller: true }];
  const mine = [podOf('mine', 'ps'), podOf('others', 'worker', other)];
  const orphans = [
    podOf('movies-ps-7', 'ps', jobOwner('uid-old')),
    podOf('movies-removal-uid-old', 'removal'),
  ];
  await world.operator.start();
  for (const pod of [...mine, ...orphans]) world.server.put('Pod', pod);
  const left = () => world.server.of<Pod>('Pod').map(({ metadata }) => metadata.name);
  await world.until(() => left().length <= 2);
  expect(left()).toEqual(['mine', 'others']);
  const rest = world.server.of<Pod>('Pod').filter(({ metadata }) => metadata.deletionTimestamp !== undefined);
  expect(rest).toEqual([]);
});

it('a Pod of somebody else is no scheduler of the job, whatever its labels say', async () => {
  const world = begin();
  world.server.put('Pod', podOf('mine', 'scheduler'));
  world.server.put('Pod', podOf('movies-scheduler-1', 'scheduler'));
  world.start();
  await world.operator.start();
  await world.until(() => world.job().status?.phase === 'Running');
  expect(world.job().status?.replicaStatuses?.scheduler).toMatchObject({ active: 1 });
});

it('a job that is made again waits for what an earlier one has left, and uses none of it', async () => {
  const world = begin();
  const left: KubeObject[] = ['Service', 'StatefulSet', 'Secret', 'PodDisruptionBudget'].map((kind) => ({
    ...{ apiVersion: kind === 'StatefulSet' ? 'apps/v1' : 'v1', kind, spec: { replicas: 0 } },
    metadata: {
      name: kind === 'Secret' ? 'movies-tokens' : kind.startsWith('Pod') ? 'movies-ps' : 'movies-scheduler',
      ...{ namespace: 'ml', labels: { 'kintsugi.dev/job': 'movies' } },
      ...{ ownerReferences: jobOwner('uid-old') as never, uid: `old-${kind}` },
    },
  }));
  for (const object of left) world.server.put(object.kind as 'Service', object);
  world.start();
  await world.operator.start();
  const stuck = () => world.job().status?.conditions?.find(({ type }) => type === 'Stuck');
  await world.until(() => stuck()?.status === 'True');
  expect(stuck()!.reason).toBe('EarlierJob');
  for (const { kind, metadata } of left) expect(stuck()!.message).toContain(`${kind} ${metadata.name}`);
  expect(world.server.of('Pod')).toEqual([]);
  expect(world.job().status?.nextIndex).toEqual({ ps: 0, worker: 0 });
  // The Secret goes last: no watch tells of it.
  for (const { kind, metadata } of left.filter(({ kind }) => kind !== 'Secret'))
    world.server.drop(kind as 'Service', metadata);
  await world.until(() => !stuck()!.message!.includes('Service'));
  expect(world.server.of('Pod')).toEqual([]);
  world.server.drop('Secret', { name: 'movies-tokens', namespace: 'ml' });
  await world.until(() => world.job().status?.phase === 'Running');
  const made = left.map(({ kind }) => world.server.of<KubeObject>(kind as 'Service')[0]!.metadata);
  for (const { ownerReferences } of made) expect(ownerReferences).toMatchObject([{ uid: 'uid-movies' }]);
  expect(stuck()).toMatchObject({ status: 'False' });
});

it('a job that is made again waits for a claim that goes with an earlier StatefulSet', async () => {
  const world = begin();
  const owner = { apiVersion: 'apps/v1', kind: 'StatefulSet', name: 'movies-scheduler', uid: 'old-set' };
  const metadata = { name: 'state-movies-scheduler-0', namespace: 'ml', uid: 'old-claim' };
  world.server.put('PersistentVolumeClaim', {
    ...{ apiVersion: 'v1', kind: 'PersistentVolumeClaim' },
    metadata: { ...metadata, ownerReferences: [owner] as never },
  });
  world.start();
  await world.operator.start();
  const stuck = () => world.job().status?.conditions?.find(({ type }) => type === 'Stuck');
  await world.until(() => stuck()?.reason === 'EarlierJob');
  expect(stuck()!.message).toContain('PersistentVolumeClaim state-movies-scheduler-0');
  expect([...world.server.of('StatefulSet'), ...world.server.of('Pod')]).toEqual([]);
  world.server.drop('PersistentVolumeClaim', metadata);
  await world.until(() => world.job().status?.phase === 'Running');
});

it('the scheduler of an earlier job is none of the one that is made again', async () => {
  const world = begin();
  const set = [{ apiVersion: 'apps/v1', kind: 'StatefulSet', name: 'movies-scheduler', uid: 'old' }];
  const old = podOf('movies-scheduler-0', 'scheduler', set);
  const env = [{ name: 'KINTSUGI_JOB_UID', value: 'uid-old' }];
  world.server.put('Pod', { ...old, spec: { ...old.spec, containers: [{ name: 'kintsugi', env }] } } as Pod);
  world.start();
  await world.operator.start();
  await world.until(() => (world.job().status?.currentPs?.length ?? 0) > 0);
  expect(world.job().status?.replicaStatuses?.scheduler).toMatchObject({ active: 0 });
});
