/**
 * Operators are killed after one or two writes that concern a ScaleOut or ScaleIn, before they have the
 * answer: nothing that was written is done twice, forgotten or taken back.
 */
import { expect, it, onTestFinished } from 'vitest';
import type { ScalerObject } from '../../../src/fleet/operator/types.js';
import { type IsLast, mortals } from './mortal.js';
import { jobOf, scalerOf } from './support.js';
import { World } from './world.js';

const ofScaling: IsLast = (verb, kind) =>
  kind === 'ScaleOut' || kind === 'ScaleIn' || (kind === 'TrainingJob' && verb === 'apply');
/** Each life ends after so many of these writes. */
const after = (count: number) => (): IsLast => {
  let left = count;
  return (verb, kind) => ofScaling(verb, kind) && --left === 0;
};
const never = (): IsLast => () => false;

type Asked = [kind: ScalerObject['kind'], role: 'ps' | 'worker', given: object];

async function scaled([kind, role, given]: Asked, lives: () => IsLast, onApplied = async (_: World) => {}) {
  const world = new World(1);
  const chain = await mortals(world, lives);
  onTestFinished(() => chain.end());
  const whole = () => {
    const { ps = '', workers = '', phase } = world.job()?.status ?? {};
    return phase === 'Running' && [ps, workers].every((one) => /^([0-9]+)\/\1$/.test(one));
  };
  world.start(jobOf());
  await world.until(whole);
  const { onChange } = world.server;
  let resized = 0;
  world.server.onChange = (what, object, gone) => {
    const applied = what === 'TrainingJob' && world.job().spec.replicaSpecs[role].replicas;
    if (applied && applied !== before && resized++ === 0) void onApplied(world);
    onChange(what, object, gone);
  };
  const before = world.job().spec.replicaSpecs[role].replicas;
  const scaler = scalerOf(kind, { role, ...given });
  scaler.metadata.name = 'once';
  const statuses: ScalerObject['status'][] = [];
  const noted = world.server.onChange;
  world.server.onChange = (what, object, gone) => {
    if (what === kind) statuses.push((object as ScalerObject).status);
    noted(what, object, gone);
  };
  world.ask(scaler);
  await world.until(() => world.scalers().every(({ metadata }) => !metadata.finalizers?.length));
  await world.until(
    () => statuses.at(-1)?.phase === 'ScaleSucceeded' || statuses.at(-1)?.reason !== undefined,
  );
  await world.until(whole);
  const { phase, reason, from, to, attempt } = statuses.at(-1)!;
  const { nextIndex, ps, workers, currentPs, currentWorkers } = world.job().status!;
  return {
    result: {
      ...{ phase, reason, from, to, attempt, nextIndex, ps, workers, currentPs, currentWorkers },
      replicas: world.job().spec.replicaSpecs[role].replicas,
      phases: [...new Set(statuses.map((one) => one?.phase))],
      changes: [...new Set(world.changesMade())],
      problems: world.problems,
    },
    killed: chain.killed(),
  };
}

const ASKED: Asked[] = [
  ['ScaleOut', 'ps', { toAdd: { count: 2 } }],
  ['ScaleIn', 'ps', { toDelete: { count: 1 } }],
  ['ScaleIn', 'ps', { toDelete: { podNames: ['movies-ps-0'] } }],
  ['ScaleOut', 'worker', { toAdd: { count: 2 } }],
  ['ScaleIn', 'worker', { toDelete: { count: 1 } }],
];

it.each(ASKED)('a %s of %s %j goes as if nobody had died', async (...asked) => {
  const { result: undisturbed } = await scaled(asked, never);
  expect(undisturbed).toMatchObject({ phase: 'ScaleSucceeded', problems: [] });
  for (const writes of [1, 2]) {
    const { result, killed } = await scaled(asked, after(writes));
    expect(killed).toBeGreaterThan(1);
    expect({ writes, ...result }).toEqual({ writes, ...undisturbed });
  }
});

it.each(ASKED)(
  'a %s of %s %j that is deleted when its count is applied is not taken back',
  async (...asked) => {
    const [kind] = asked;
    const regret = (world: World) => world.server.delete(kind, 'ml', 'once');
    const { result } = await scaled(asked, after(1), regret);
    expect(result).toMatchObject({ phase: 'ScaleSucceeded', replicas: result.to, problems: [] });
    // No Pod and no change goes the way back.
    expect(result.phases).not.toContain(kind === 'ScaleOut' ? 'Draining' : 'Scaling');
    expect(result.changes.every((one) => !one.includes(` ${result.from} `))).toBe(true);
  },
);
