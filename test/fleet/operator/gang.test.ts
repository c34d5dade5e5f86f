/** Gang schedulers: each knows the Pods of a job by its own labels, annotations, fields and objects. */
import { describe, expect, it } from 'vitest';
import { crds } from '../../../src/fleet/operator/crds.js';
import type { ObjectManifest, Pod } from '../../../src/fleet/operator/objects.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import type { TrainingJobSpec } from '../../../src/fleet/operator/types.js';
import { actionsOf, created, jobOf, observedOf, step } from './support.js';

type Policy = NonNullable<TrainingJobSpec['runPolicy']['schedulingPolicy']>;
const passOf = (schedulingPolicy: Policy, extras: string[] = []) => {
  const observed = observedOf({ job: jobOf({ runPolicy: { schedulingPolicy } }), extras: new Set(extras) });
  const actions = reconcile(observed);
  const applied = actionsOf(actions, 'apply').map(({ object }) => object);
  const set = applied.find(({ kind }) => kind === 'StatefulSet');
  const { template } = (set?.spec ?? {}) as { template?: Pod };
  const pods = created(actions) as unknown as Pod[];
  return {
    group: applied.find(({ kind }) => kind === 'PodGroup') as (ObjectManifest & { spec: object }) | undefined,
    /** The Pods of all roles. */
    all: template ? [template, ...pods] : pods,
    status: step(observed, actions).job.status!,
  };
};

describe('Volcano', () => {
  it('has a PodGroup, an annotation and its scheduler', () => {
    const { group, all } = passOf({ gang: 'volcano', minAvailable: 5, queue: 'ads' }, ['PodGroup']);
    expect(group).toMatchObject({
      ...{ apiVersion: 'scheduling.volcano.sh/v1beta1', metadata: { name: 'movies', namespace: 'ml' } },
      spec: { minMember: 5, queue: 'ads' },
    });
    expect(all).toHaveLength(7);
    for (const { metadata, spec } of all) {
      expect(spec.schedulerName).toBe('volcano');
      expect(metadata.annotations).toEqual({
        'scheduling.volcano.sh/queue-name': 'ads',
        'scheduling.k8s.io/group-name': 'movies',
      });
      expect(Object.keys(metadata.labels!).filter((key) => !key.includes('kubernetes.io/'))).toEqual(
        expect.not.arrayContaining(['kueue.x-k8s.io/queue-name']),
      );
    }
  });
});

describe('the coscheduling plugin', () => {
  it('has a PodGroup, a label and its scheduler', () => {
    const { group, all } = passOf({ gang: 'coscheduling' }, ['CoschedulingPodGroup']);
    // A scheduler, k+r PS and a worker.
    expect(group).toMatchObject({ apiVersion: 'scheduling.x-k8s.io/v1alpha1', spec: { minMember: 5 } });
    for (const { metadata, spec } of all) {
      expect(spec.schedulerName).toBe('scheduler-plugins-scheduler');
      expect(metadata.labels).toMatchObject({ 'scheduling.x-k8s.io/pod-group': 'movies' });
    }
  });

  it('may have another name', () => {
    const { all } = passOf({ gang: 'coscheduling', schedulerName: 'mine' }, ['CoschedulingPodGroup']);
    expect(new Set(all.map(({ spec }) => spec.schedulerName))).toEqual(new Set(['mine']));
  });
});

describe('KAI', () => {
  it('has a label and its scheduler, and makes the group itself', () => {
    const { group, all, status } = passOf({ gang: 'kai', queue: 'ads' });
    expect(group).toBeUndefined();
    for (const { metadata, spec } of all) {
      expect(spec.schedulerName).toBe('kai-scheduler');
      expect(metadata.labels).toMatchObject({ 'kai.scheduler/queue': 'ads' });
    }
    expect(status.reason).toBeUndefined();
  });
});

describe('Kubernetes', () => {
  it('has a PodGroup that every Pod names', () => {
    const { group, all } = passOf({ gang: 'kubernetes', minAvailable: 7 }, ['NativePodGroup']);
    expect(group).toMatchObject({
      apiVersion: 'scheduling.k8s.io/v1alpha2',
      spec: { schedulingPolicy: { gang: { minCount: 7 } } },
    });
    for (const { spec } of all) {
      expect(spec.schedulingGroup).toEqual({ podGroupName: 'movies' });
      expect(spec.schedulerName).toBeUndefined();
    }
  });
});

describe('a gang that cannot be', () => {
  it.each([
    ['volcano', 'CoschedulingPodGroup', /scheduling\.volcano\.sh.*Volcano is not installed/],
    ['coscheduling', 'PodGroup', /scheduling\.x-k8s\.io.*scheduler-plugins/],
    ['kubernetes', 'PodGroup', /scheduling\.k8s\.io\/v1alpha2.*1\.36.*GenericWorkload/],
  ] as const)('%s without its PodGroup: the job is stuck, says why, and makes no Pod', (gang, other, why) => {
    const { all, group, status } = passOf({ gang }, [other]);
    expect([all, group]).toEqual([[], undefined]);
    expect(status).toMatchObject({ phase: 'Pending', reason: 'Gang' });
    const stuck = status.conditions!.find(({ type }) => type === 'Stuck');
    expect(stuck).toMatchObject({ status: 'True', reason: 'Gang', message: expect.stringMatching(why) });
    // The cluster has it now.
    const kind = { volcano: 'PodGroup', coscheduling: 'CoschedulingPodGroup', kubernetes: 'NativePodGroup' }[
      gang
    ];
    expect(passOf({ gang }, [kind]).status.reason).toBeUndefined();
  });

  it('more Pods than the job has are never there', () => {
    const { all, status } = passOf({ gang: 'kubernetes', minAvailable: 8 }, ['NativePodGroup']);
    const stuck = status.conditions!.find(({ type }) => type === 'Stuck');
    expect([all, stuck!.message]).toEqual([
      [],
      'minAvailable is 8, and the job has 7 Pods: they would wait for ever',
    ]);
  });

  it('minAvailable without a gang is refused', () => {
    expect(passOf({ minAvailable: 3 }, ['PodGroup'])).toMatchObject({ all: [], status: { reason: 'Gang' } });
    const text = JSON.stringify(crds()[0]);
    expect(text).toContain('minAvailable needs gang: without a gang scheduler nobody holds Pods back');
    expect(text).toContain('KAI groups the Pods of a TrainingJob itself, and takes no minAvailable');
  });
});
