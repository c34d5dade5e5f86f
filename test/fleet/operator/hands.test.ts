/** Requests to the API server that depend on what it answers. */
import { expect, it } from 'vitest';
import { ApiError } from '../../../src/fleet/operator/api/api.js';
import { Hands } from '../../../src/fleet/operator/hands.js';
import type { KubeObject, ObjectManifest } from '../../../src/fleet/operator/objects.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import { actionsOf, jobOf, observedOf } from './support.js';

const QUIET = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
const ROLLS =
  'StatefulSet.apps "movies-scheduler" is invalid: spec.updateStrategy.rollingUpdate: Invalid value: ' +
  '{"partition":0}: only allowed for updateStrategy \'RollingUpdate\'';

/**
 * An API server that answers as a real one does where an operator of before has applied a StatefulSet without
 * a strategy: the defaults of the server have no owner until somebody applies them.
 */
function serverOf(message: string) {
  const applied: ObjectManifest[] = [];
  const written: KubeObject[] = [];
  let owned = false;
  const apply = async (kind: string, object: ObjectManifest) => {
    applied.push(object);
    const { updateStrategy } = object.spec as { updateStrategy?: { type: string } };
    if (kind === 'StatefulSet' && updateStrategy?.type === 'OnDelete' && !owned)
      throw new ApiError(422, 'Invalid', message);
    if (updateStrategy?.type === 'RollingUpdate') owned = true;
    return object;
  };
  const get = async (_: string, __: string, name: string) => {
    throw new ApiError(404, 'NotFound', name);
  };
  const never = () => {};
  const hands = new Hands({
    ...{ api: { apply, get, create: async () => ({}) } as never, log: QUIET as never, now: () => 0 },
    ...{ onAsk: never, onCheckpoint: never, onPlan: never, onGather: never, onWake: never },
    onWritten: (_, object) => written.push(object),
  });
  const set = actionsOf(reconcile(observedOf()), 'apply').find(
    ({ object }) => object.kind === 'StatefulSet',
  )!;
  return { hands, set, applied, written };
}

/** An API server that answers to applied jobs with these errors first. */
function jobsServer() {
  const answers: ApiError[] = [];
  const events: KubeObject[] = [];
  const apply = async (_: string, object: ObjectManifest) => {
    const error = answers.shift();
    if (error) throw error;
    return object;
  };
  const create = async (_: string, object: KubeObject) => {
    events.push(object);
    return object;
  };
  const never = () => {};
  const hands = new Hands({
    ...{ api: { apply, create } as never, log: QUIET as never, now: () => 0 },
    ...{ onAsk: never, onCheckpoint: never, onPlan: never, onGather: never, onWake: never, onWritten: never },
  });
  return { hands, answers, events };
}

const strategies = (objects: readonly KubeObject[]) =>
  objects.map((one) => (one as { spec?: { updateStrategy?: unknown } }).spec?.updateStrategy);

it('a StatefulSet of an operator that applied no strategy first gets the one that it has', async () => {
  const { hands, set, applied, written } = serverOf(ROLLS);
  await hands.do(jobOf(), set);
  expect(strategies(applied)).toEqual([
    { type: 'OnDelete' },
    // All else is as it is to be, so no Pod is made of a template of before.
    { type: 'RollingUpdate', rollingUpdate: { partition: 0 } },
    { type: 'OnDelete' },
  ]);
  for (const object of applied)
    expect((object.spec as { template: unknown }).template).toEqual(
      (set.object.spec as { template: unknown }).template,
    );
  expect(strategies(written)).toEqual([{ type: 'OnDelete' }]);
  expect(hands.refusals.of(jobOf())).toEqual([]);
});

it('a number that is refused is noted and told, until it is taken', async () => {
  const { hands, answers, events } = jobsServer();
  const resize = { kind: 'resize' as const, role: 'ps' as const, replicas: 9 };
  answers.push(new ApiError(422, 'Invalid', 'spec: Invalid value: 9 is too many'));
  await expect(hands.do(jobOf(), resize)).rejects.toThrow('9 is too many');
  expect(hands.refusals.of(jobOf())).toMatchObject([
    { object: { kind: 'TrainingJob', metadata: { name: 'movies' } }, status: 422 },
  ]);
  expect(events).toMatchObject([{ reason: 'Refused', message: expect.stringContaining('9 is too many') }]);
  await hands.do(jobOf(), resize);
  expect(hands.refusals.of(jobOf())).toEqual([]);
});

it('a StatefulSet that is refused for something else is applied once', async () => {
  const { hands, set, applied } = serverOf('spec.template: Invalid value: "x"');
  await expect(hands.do(jobOf(), set)).rejects.toThrow('Invalid value: "x"');
  expect(applied).toHaveLength(1);
  expect(hands.refusals.of(jobOf())).toHaveLength(1);
});

it('an object of an earlier job of the same name is not taken over', async () => {
  const applied: ObjectManifest[] = [];
  const { object } = actionsOf(reconcile(observedOf()), 'apply')[0]!;
  const owner = { ...object.metadata.ownerReferences![0]!, uid: 'uid-old' };
  const there = { ...object, metadata: { ...object.metadata, ownerReferences: [owner] } };
  const never = () => {};
  const api = { get: async () => there, apply: async (_: string, one: ObjectManifest) => applied.push(one) };
  const hands = new Hands({
    ...{ api: { ...api, create: async () => ({}) } as never, log: QUIET as never, now: () => 0 },
    ...{ onAsk: never, onCheckpoint: never, onPlan: never, onGather: never, onWake: never, onWritten: never },
  });
  await expect(hands.do(jobOf(), { kind: 'apply', object })).rejects.toThrow(
    /of an earlier job of this name/,
  );
  expect(applied).toEqual([]);
});
