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
  // No index was wasted while it waited.
  expect(world.job().status!.nextIndex!.ps).toBeLessThan(8);
});
