/** The API server does not take what a job wants: the job says so, and the rest of it goes on. */
import { expect, it, onTestFinished } from 'vitest';
import { ApiError } from '../../../src/fleet/operator/api/api.js';
import type { KubeObject } from '../../../src/fleet/operator/objects.js';
import { jobOf } from './support.js';
import { World } from './world.js';

type Told = KubeObject & { reason: string; message: string; type: string };

it('one event tells of a scheduler that is refused, and its PS are made and healed', async () => {
  const world = new World(1);
  onTestFinished(() => world.operator.stop());
  const { server } = world;
  const apply = server.apply.bind(server);
  let refusals = 0;
  server.apply = async (kind, object) => {
    if (kind !== 'StatefulSet' || refusals >= 4) return apply(kind, object);
    refusals++;
    throw new ApiError(422, 'Invalid', 'spec.template.spec.initContainers[0]: Not found: "state"');
  };
  await world.operator.start();
  world.start(jobOf());
  await world.until(() => world.active('ps').length === 4 && refusals >= 2);
  world.evict(world.active('ps')[0]!);
  await world.until(() => world.active('ps').length === 4 && refusals >= 4);
  await world.until(() => world.job().status?.phase === 'Running');
  const told = server.of<Told>('Event').filter(({ reason }) => reason === 'Refused');
  expect(told).toMatchObject([
    {
      type: 'Warning',
      message:
        'the API server does not take StatefulSet movies-scheduler: ' +
        'spec.template.spec.initContainers[0]: Not found: "state"',
    },
  ]);
  // Only one Pod was replaced.
  expect(world.job().status!.nextIndex).toEqual({ ps: 5, worker: 2 });
});

it('a field of the template that the server does not know is a refusal, though it says 500', async () => {
  const world = new World(1);
  onTestFinished(() => world.operator.stop());
  const { server } = world;
  const message =
    'failed to create typed patch object (ml/movies-scheduler; apps/v1, Kind=StatefulSet): ' +
    '.spec.template.spec.volums: field not declared in schema';
  server.refuses = (kind) => (kind === 'StatefulSet' ? new ApiError(500, '', message) : undefined);
  await world.operator.start();
  world.start(jobOf());
  await world.until(() => world.job().status?.reason === 'Refused' && world.active('ps').length === 4);
  expect(server.of<Told>('Event').filter(({ reason }) => reason === 'Refused')).toHaveLength(1);
});

it('Pods that are refused burn no index, write no status, and keep their names', async () => {
  const world = new World(1);
  onTestFinished(() => world.operator.stop());
  const { server } = world;
  let [refusals, full] = [0, true];
  server.refuses = (kind, { metadata }) => {
    if (kind !== 'Pod' || !full) return undefined;
    refusals++;
    return new ApiError(403, 'Forbidden', `pods "${metadata.name}" is forbidden: exceeded quota: few`);
  };
  await world.operator.start();
  world.start(jobOf());
  const serves = () =>
    world.job().status?.conditions?.find(({ type }) => type === 'SchedulerReady')?.status === 'True';
  await server.until(() => refusals >= 12 && serves());
  const [writes, seen] = [server.requests.get('update'), refusals];
  await server.until(() => refusals >= seen + 12);
  expect(server.requests.get('update')).toBe(writes);
  expect(world.job().status!.nextIndex).toEqual({ ps: 4, worker: 2 });
  full = false;
  await world.until(() => world.active('ps').length === 4 && world.active('worker').length === 2);
  const names = [...world.active('ps'), ...world.active('worker')].map(({ metadata }) => metadata.name);
  expect(names.sort()).toEqual([
    ...['movies-ps-0', 'movies-ps-1', 'movies-ps-2', 'movies-ps-3', 'movies-worker-0', 'movies-worker-1'],
  ]);
});

it('another operator, which knows nothing of refusals, burns no index either', async () => {
  const world = new World(1);
  onTestFinished(() => world.operator.stop());
  const { server } = world;
  let [refusals, full] = [0, true];
  server.refuses = (kind, { metadata }) => {
    if (kind !== 'Pod' || !full) return undefined;
    refusals++;
    return new ApiError(403, 'Forbidden', `pods "${metadata.name}" is forbidden: exceeded quota: few`);
  };
  const isStuck = () => world.job()?.status?.reason === 'Quota';
  await world.operator.start();
  world.start(jobOf());
  await server.until(() => refusals >= 12 && isStuck());
  for (let successor = 0; successor < 3; successor++) {
    await world.operator.stop();
    const before = refusals;
    await world.begin().start();
    await server.until(() => refusals >= before + 5 && isStuck());
    expect(world.job().status!.nextIndex).toEqual({ ps: 4, worker: 2 });
  }
  full = false;
  await world.until(() => world.active('ps').length === 4 && world.active('worker').length === 2);
  expect(world.job().status!.nextIndex).toEqual({ ps: 4, worker: 2 });
  await world.until(() => world.job().status?.reason === undefined);
});

it('an index is not used again after an answer that is missing', async () => {
  const world = new World(1);
  onTestFinished(() => world.operator.stop());
  const { server } = world;
  const attempts: string[] = [];
  server.refuses = (kind, { metadata: { name } }) => {
    if (kind !== 'Pod' || name !== 'movies-ps-0') return undefined;
    attempts.push(name);
    // Nobody knows what has become of the first attempt.
    if (attempts.length === 1) return new ApiError(0, 'Disconnected', 'no answer');
    return new ApiError(403, 'Forbidden', 'exceeded quota');
  };
  await world.operator.start();
  world.start(jobOf());
  await world.until(() => world.active('ps').length === 4);
  expect(attempts).toHaveLength(2);
  expect(world.active('ps').map(({ metadata }) => metadata.name)).toContain('movies-ps-4');
});
