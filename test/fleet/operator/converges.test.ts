/** An operator beside an API server that is late, forgets, refuses and breaks off: jobs come to their end. */
import { expect, it } from 'vitest';
import type { Pod } from '../../../src/fleet/operator/objects.js';
import { jobOf, scalerOf } from './support.js';
import { World } from './world.js';

const FAULTS = { errors: 0.05, breaks: 0.03, forgets: 0.1, late: 6 };

const settled = (world: World, ps: number, workers: number) => (): boolean =>
  world.active('ps').length === ps &&
  world.active('worker').length === workers &&
  world.job().status?.replicaStatuses?.ps?.active === ps &&
  world.job().status?.replicaStatuses?.worker?.active === workers;

async function disturb(world: World): Promise<void> {
  const pick = (pods: Pod[]): Pod | undefined => pods[Math.floor(world.random() * pods.length)];
  const roll = world.random();
  const ps = pick(world.active('ps'));
  const worker = pick(world.active('worker'));
  if (roll < 0.3 && ps) world.evict(ps);
  else if (roll < 0.5 && worker) world.evict(worker);
  // Each further failure of a worker is replaced later: three take four seconds.
  else if (roll < 0.7 && worker && (world.job().status?.restartCount ?? 0) < 3) world.end(worker, 137);
  else if (roll < 0.8 && world.scalers().length < 12) {
    const kind = world.random() < 0.5 ? ('ScaleOut' as const) : ('ScaleIn' as const);
    const count = 1 + Math.floor(world.random() * 2);
    const names = world
      .active('ps')
      .slice(0, count)
      .map(({ metadata }) => metadata.name);
    const toDelete = world.random() < 0.5 ? { count } : { podNames: names };
    world.ask(scalerOf(kind, kind === 'ScaleOut' ? { toAdd: { count } } : { toDelete }));
  } else if (roll < 0.9) {
    const replicas = 4 + Math.floor(world.random() * 3);
    world.edit((job) => {
      job.spec.replicaSpecs.ps.replicas = replicas;
    });
  } else {
    await world.operator.stop();
    await world.begin().start();
  }
}

it.each([1, 2, 3, 4])('seed %i', { timeout: 60_000 }, async (seed) => {
  const world = new World(seed);
  world.server.faults = FAULTS;
  await world.operator.start();
  world.start(jobOf({ runPolicy: { backoffLimit: 100, cleanPodPolicy: 'Running' } }));
  await world.until(settled(world, 4, 2));
  for (let round = 0; round < 12; round++) {
    await disturb(world);
    if (round === 6) world.lose('n1');
    if (world.random() < 0.5) await world.until(() => world.job().status?.phase === 'Running');
  }
  const done = ['ScaleSucceeded', 'ScaleFailed'];
  const over = () =>
    world
      .scalers()
      .every(({ status, metadata }) => done.includes(status?.phase ?? '') && !metadata.finalizers?.length);
  await world.until(over);
  const wanted = world.job().spec.replicaSpecs.ps.replicas ?? 4;
  await world.until(settled(world, wanted, 2));
  // No index was used twice, and none was wasted without end.
  const { ps, worker } = world.job().status!.nextIndex!;
  expect(ps).toBeLessThan(40);
  expect(worker).toBeLessThan(40);
  for (const pod of world.active('worker')) world.end(pod, 0);
  await world.until(() => world.job().status?.phase === 'Succeeded');
  const here = () => world.pods('ps').filter(({ spec }) => spec.nodeName !== 'n1');
  await world.until(() => here().length === 0 && world.pods('scheduler').length === 0);
  expect(world.problems).toEqual([]);
  await world.operator.stop();
});

it('nothing is asked of the API server while nothing changes', async () => {
  const world = new World(9);
  await world.operator.start();
  world.start();
  await world.until(settled(world, 4, 2));
  await world.until(() => world.job().status?.workers === '2/2');
  const rest = async (): Promise<void> => {
    do await new Promise((resolve) => setImmediate(resolve));
    while (world.operator.passes > 0);
  };
  await rest();
  world.server.requests.clear();
  // Somebody touches what a job owns: it gets a pass, which finds everything as it is to be.
  for (const pod of world.active('ps')) world.server.put('Pod', pod);
  await rest();
  expect([...world.server.requests]).toEqual([]);
  await world.operator.stop();
});
