/** The API server does not take the report of a job that has ended: it ends, and its report comes later. */
import { expect, it, onTestFinished } from 'vitest';
import { ApiError } from '../../../src/fleet/operator/api/api.js';
import type { KubeObject } from '../../../src/fleet/operator/objects.js';
import { jobOf } from './support.js';
import { World } from './world.js';

const NAME = 'movies-results';

/** A job that has ended while the server took no ConfigMap. `refusals`: how often it was asked for one. */
async function endsUntold(error = new ApiError(403, 'Forbidden', 'exceeded quota: few'), job = jobOf()) {
  const world = new World(1);
  onTestFinished(() => world.operator.stop());
  const state = { world, takes: false, refusals: 0 };
  world.server.refuses = (kind) => {
    if (kind !== 'ConfigMap' || state.takes) return undefined;
    state.refusals++;
    return error;
  };
  world.start(job);
  await world.operator.start();
  await world.until(() => world.job().status?.phase === 'Running');
  for (const pod of world.active('worker')) world.end(pod, 0);
  await world.until(() => world.job().status?.phase === 'Succeeded');
  return state;
}
const reportIn = ({ server }: World) => {
  const all = server.of<KubeObject & { data: Record<string, string> }>('ConfigMap');
  const made = all.find(({ metadata }) => metadata.name === NAME);
  return made && (JSON.parse(made.data['report.json']!) as Record<string, unknown>);
};
const resultsIn = (world: World) => world.job().status?.results;
const isNamed = (world: World) => () => resultsIn(world)?.configMap === NAME;

it.each([
  ['a quota is used up', new ApiError(403, 'Forbidden', 'exceeded quota: few')],
  ['the operator has no right', new ApiError(403, 'Forbidden', 'cannot patch resource "configmaps"')],
  ['it cannot be changed', new ApiError(422, 'Invalid', 'data: field is immutable when `immutable` is set')],
])('%s: the job ends, says so, and has its whole report later', async (_, error) => {
  const state = await endsUntold(error);
  const { world } = state;
  expect(resultsIn(world)).toMatchObject({ samples: 7, reportRefused: error.message });
  expect(resultsIn(world)).not.toHaveProperty('configMap');
  const seen = state.refusals;
  await world.server.until(() => state.refusals >= seen + 3);
  const told = world.server.of<KubeObject & { reason: string }>('Event');
  expect(told.filter(({ reason }) => reason === 'Refused')).toHaveLength(1);
  state.takes = true;
  await world.until(isNamed(world));
  expect(resultsIn(world)).toMatchObject({ samples: 7 });
  expect(resultsIn(world)).not.toHaveProperty('reportRefused');
  expect(reportIn(world)).toMatchObject({
    ...{ phase: 'Succeeded', results: { samples: 7 }, workersEnded: [{ exitCode: 0 }, { exitCode: 0 }] },
  });
  expect(reportIn(world)).not.toHaveProperty('cut');
});

it('an operator that has not asked the job itself tells what its status has', async () => {
  const state = await endsUntold();
  const { world } = state;
  await world.operator.stop();
  state.takes = true;
  await world.begin().start();
  await world.until(isNamed(world));
  expect(reportIn(world)).toMatchObject({
    ...{ phase: 'Succeeded', results: { samples: 7 }, job: { name: 'movies' } },
    cut: expect.stringMatching(/another operator/),
  });
});

it('a ConfigMap of somebody else is left as it is, and the report is made when it is gone', async () => {
  const world = new World(1);
  onTestFinished(() => world.operator.stop());
  const foreign = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: NAME, namespace: 'ml' } };
  world.server.put('ConfigMap', { ...foreign, data: { mine: 'x' } } as KubeObject);
  world.start();
  await world.operator.start();
  await world.until(() => world.job().status?.phase === 'Running');
  for (const pod of world.active('worker')) world.end(pod, 0);
  await world.until(() => world.job().status?.phase === 'Succeeded');
  expect(resultsIn(world)?.reportRefused).toMatch(/there is a ConfigMap of this name.*not.* of the job/);
  const there = world.server.of('ConfigMap').filter(({ metadata }) => metadata.name === NAME);
  expect(there).toMatchObject([{ data: { mine: 'x' } }]);
  world.server.drop('ConfigMap', foreign.metadata);
  await world.until(isNamed(world));
  expect(reportIn(world)).toMatchObject({ results: { samples: 7 } });
});

it('any object of that name that is somebody else’s is left as it is, and the job says so', async () => {
  const world = new World(1);
  onTestFinished(() => world.operator.stop());
  const foreign = {
    ...{ apiVersion: 'v1', kind: 'Service', metadata: { name: 'movies-scheduler', namespace: 'ml' } },
    spec: { selector: { app: 'web' } },
  };
  world.server.put('Service', foreign);
  world.start();
  await world.operator.start();
  await world.until(() => world.job().status?.reason === 'Refused');
  expect(world.server.of('Service')).toMatchObject([{ spec: { selector: { app: 'web' } } }]);
  world.server.drop('Service', foreign.metadata);
  const isMade = () =>
    world.server.of('Service').some(({ metadata }) => metadata.labels?.['kintsugi.dev/job'] === 'movies');
  await world.until(() => isMade() && world.job().status?.reason === undefined);
});

it('few reports are kept for a server that takes none', async () => {
  const { RefusedObjects, MOST_REPORTS } = await import('../../../src/fleet/operator/refusals.js');
  const refused = new RefusedObjects();
  const job = (index: number) => jobOf({}, `job-${index}`);
  for (let index = 0; index < MOST_REPORTS + 2; index++) {
    const object = { kind: 'ConfigMap', metadata: { name: `job-${index}-results`, namespace: 'ml' } };
    const refusal = { status: 403, message: 'no', unmade: true };
    refused.note(job(index), { ...refusal, object: object as KubeObject });
  }
  const kept = Array.from({ length: MOST_REPORTS + 2 }, (_, index) => refused.of(job(index)).length);
  expect(kept).toEqual([0, 0, ...Array.from({ length: MOST_REPORTS }, () => 1)]);
});
