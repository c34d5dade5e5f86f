/**
 * The operator is killed after a write, before it has the answer, and another one begins: after each write of
 * a job's life in turn, and after every single one. The job comes to the same end.
 */
import { describe, expect, it } from 'vitest';
import type { KubeObject, Pod } from '../../../src/fleet/operator/objects.js';
import type { ScalerObject, TrainingJob } from '../../../src/fleet/operator/types.js';
import { mortals } from './mortal.js';
import { type Faults, randomOf } from './server.js';
import { jobOf, scalerOf } from './support.js';
import { World } from './world.js';

const PLACE = { url: '/shared/movies', everySeconds: 0, keep: 3, onSuspend: true };
const ETCD = {
  size: '1Gi',
  deletionPolicy: 'Delete' as const,
  etcd: { url: 'etcd://e:2379/m', schedulers: 1 },
};
const jobs: Record<string, () => TrainingJob> = {
  'kept in a claim': () => jobOf({ checkpoint: PLACE, runPolicy: { cleanPodPolicy: 'All' } }),
  'kept in etcd': () => jobOf({ scheduler: { store: ETCD }, runPolicy: { cleanPodPolicy: 'Running' } }),
};

/** Kinds of objects that users make. */
const OF_USERS = ['TrainingJob', 'ScaleOut', 'ScaleIn'];
const namesOf = (objects: readonly KubeObject[]) =>
  objects.map(({ kind, metadata }) => `${kind}/${metadata.name}`).sort();

/** Objects of the job: all, and those that nobody would collect when it is deleted. */
function remains({ server }: World) {
  const all = [...server.objects.values()].filter(({ kind }) => kind !== 'Node' && kind !== 'Event');
  const uids = new Set(all.map(({ metadata }) => metadata.uid));
  const isOwned = ({ metadata }: KubeObject) => metadata.ownerReferences?.some(({ uid }) => uids.has(uid));
  const leaked = all.filter((one) => !OF_USERS.includes(one.kind) && !isOwned(one));
  return { left: namesOf(all), leaked: namesOf(leaked) };
}

/** Notes the uids of all objects that are made. Resolves with names that too many of these had. */
function counted(world: World, job: TrainingJob): () => { made: string[]; twice: string[] } {
  const made = new Map<string, Set<string>>();
  const { onChange } = world.server;
  world.server.onChange = (kind, object, gone) => {
    const key = `${kind}/${object.metadata.name}`;
    if (!gone && kind !== 'Event') made.set(key, (made.get(key) ?? new Set()).add(object.metadata.uid ?? ''));
    onChange(kind, object, gone);
  };
  // The Pod of the scheduler has the same name in the next life of the job.
  const most = (name: string) => (job.spec.checkpoint && name === 'Pod/movies-scheduler-0' ? 2 : 1);
  return () => ({
    made: [...made.keys()].sort(),
    twice: [...made].filter(([name, uids]) => uids.size > most(name)).map(([name]) => name),
  });
}

/** A life: made, grown, shrunk, paused and taken up again, ended, deleted. */
async function story(job: TrainingJob, lives: (life: number) => number, faults: Faults = {}, seed = 1) {
  const world = new World(seed);
  world.server.faults = faults;
  const count = counted(world, job);
  const chain = await mortals(world, lives);
  const status = () => world.job()?.status;
  const whole = (ps: number, workers: number) =>
    world.until(
      () =>
        status()?.phase === 'Running' &&
        status()?.ps === `${ps}/${ps}` &&
        status()?.workers === `${workers}/${workers}`,
    );
  const scaled = async (kind: ScalerObject['kind'], given: object) => {
    const scaler = scalerOf(kind, given);
    scaler.metadata.name = kind.toLowerCase();
    world.ask(scaler);
    const isOver = ({ kind: of, status: now, metadata }: ScalerObject) =>
      of === kind && now?.phase === 'ScaleSucceeded' && !metadata.finalizers?.length;
    await world.until(() => world.scalers().some(isOver));
  };
  const suspend = (on: boolean) =>
    world.edit((one) => {
      one.spec.runPolicy.suspend = on;
      one.metadata.generation = (one.metadata.generation ?? 0) + 1;
    });

  world.start(job);
  await whole(4, 2);
  await scaled('ScaleOut', { toAdd: { count: 1 } });
  await whole(5, 2);
  await scaled('ScaleIn', { toDelete: { count: 2 } });
  await whole(3, 2);
  const [lost] = world.active('worker');
  world.evict(lost!);
  await world.until(() => !status()?.currentWorkers?.includes(lost!.metadata.name));
  await whole(3, 2);
  if (job.spec.checkpoint) {
    suspend(true);
    await world.until(() => status()?.phase === 'Suspended');
    suspend(false);
    await whole(3, 2);
  }
  for (const pod of world.active('worker')) world.end(pod, 0);
  const none = (role: 'ps' | 'scheduler') => status()?.replicaStatuses?.[role]?.active === 0;
  await world.until(() => status()?.phase === 'Succeeded' && none('ps') && none('scheduler'));
  const kept = () => world.pods('worker').length === (job.spec.runPolicy.cleanPodPolicy === 'All' ? 0 : 2);
  await world.until(kept);
  const end = world.job();
  const objects = remains(world);
  // A user would try again.
  world.server.faults = { ...faults, errors: 0 };
  await world.server.delete('TrainingJob', 'ml', 'movies');
  if (job.spec.scheduler.store.etcd) {
    await world.until(() => world.active('removal').length > 0);
    world.end(world.active('removal')[0]!, 0);
  }
  await world.until(() => world.job() === undefined && world.server.of<Pod>('Pod').length === 0);
  chain.end();
  const { conditions, ...rest } = end.status!;
  const result = {
    ...{ status: withoutTimes(rest), ...objects, ...count() },
    conditions: conditions!.map((one) => `${one.type}=${one.status} ${one.reason}`).sort(),
    checkpoints: world.checkpoints,
    // An operator that has not heard of a change asks for it again.
    changes: [...new Set(world.changesMade())],
    problems: world.problems,
  };
  return { result, killed: chain.killed() };
}

const TIMES = /time$|At$|seconds$|^lastHeard$|^goodput$|configMap|^observedGeneration$/i;
function withoutTimes(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutTimes);
  if (typeof value !== 'object' || value === null) return value;
  const fields = Object.entries(value).filter(([name]) => !TIMES.test(name));
  return Object.fromEntries(fields.map(([name, one]) => [name, withoutTimes(one)]));
}

const FOR_EVER = () => Number.POSITIVE_INFINITY;

describe.each(Object.entries(jobs))('a job %s', (_, make) => {
  it('comes to the same end after whichever write its operator is killed', { timeout: 240_000 }, async () => {
    const { result: undisturbed } = await story(make(), FOR_EVER);
    expect(undisturbed).toMatchObject({ leaked: [], twice: [], problems: [] });
    for (let last = 1, kills = 1; kills > 0; last++) {
      const { result, killed } = await story(make(), (life) => (life === 0 ? last : FOR_EVER()));
      kills = killed;
      expect({ last, ...result }).toEqual({ last, ...undisturbed });
    }
  });

  it.each([3, 5, 8])('the same when each operator makes %i writes', { timeout: 30_000 }, async (writes) => {
    const { result: undisturbed } = await story(make(), FOR_EVER);
    const { result, killed } = await story(make(), () => writes);
    expect(result).toEqual(undisturbed);
    expect(killed).toBeGreaterThan(5);
  });

  it.each([1, 2, 3, 4])(
    'nothing is made twice or left among faults: seed %i',
    { timeout: 60_000 },
    async (seed) => {
      const random = randomOf(seed);
      const some = () => 3 + Math.floor(random() * 20);
      const faults = { errors: 0.03, breaks: 0.03, forgets: 0.1, late: 4 };
      const { result, killed } = await story(make(), some, faults, seed);
      expect(killed).toBeGreaterThan(2);
      expect(result).toMatchObject({ leaked: [], twice: [], problems: [] });
    },
  );
});
