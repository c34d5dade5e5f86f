/** Schedulers take a new template: those that stand by first, and the one that leads last. */
import { describe, expect, it } from 'vitest';
import type { KubeObject, Pod } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { STEADY_MS } from '../../../src/fleet/operator/reconcile/outdated.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import { actionsOf, deleted, jobOf, lived, running, START } from './support.js';

const isSet = ({ kind }: KubeObject): boolean => kind === 'StatefulSet';

type Life = Parameters<typeof lived>[1] & { revision?: string; since?: number };

/** A running job with these schedulers, whose StatefulSet has a new template. */
function edited(lives: readonly Life[], status: object = {}): ObservedJob {
  const job = jobOf();
  if (lives.length > 1) job.spec.scheduler.store.etcd = { url: 'etcd://e:2379/movies', schedulers: 2 };
  const observed = running(job);
  const owned = observed.owned.map((one) =>
    isSet(one)
      ? {
          ...one,
          metadata: { ...one.metadata, generation: 2 },
          status: { updateRevision: 'new', observedGeneration: 2, ...status },
        }
      : one,
  );
  const schedulers = lives.map(({ revision = 'old', since = START - 60_000, ...life }, index): Pod => {
    const labels = {
      ...{ 'kintsugi.dev/job': 'movies', 'kintsugi.dev/role': 'scheduler' },
      'controller-revision-hash': revision,
    };
    const metadata = { name: `movies-scheduler-${index}`, namespace: 'ml', labels };
    const pod = lived({ apiVersion: 'v1', kind: 'Pod', metadata }, life);
    const [container] = pod.status!.containerStatuses!;
    if (container!.state?.running && life.phase === undefined)
      container!.state.running = { startedAt: new Date(since).toISOString() };
    return pod;
  });
  return { ...observed, owned, pods: [...observed.pods, ...schedulers] };
}

const LEADS = { ready: true };
const STANDS_BY = { ready: false };
const going = (lives: readonly Life[], status?: object) => deleted(reconcile(edited(lives, status)));

it('a StatefulSet replaces no Pod by itself: it would wait for ever for one that stands by', () => {
  expect(edited([LEADS]).owned.find(isSet)).toMatchObject({
    spec: { updateStrategy: { type: 'OnDelete' } },
  });
});

describe('a scheduler of an older template', () => {
  it('goes at once where it is alone, ready or not', () => {
    expect(going([LEADS])).toEqual(['movies-scheduler-0']);
    expect(going([{ phase: 'Pending', node: 'n1', waiting: 'ImagePullBackOff' }])).toEqual([
      'movies-scheduler-0',
    ]);
  });

  it('goes when the controller has seen the template, and while nobody else is replaced', () => {
    expect(going([LEADS], { observedGeneration: 1 })).toEqual([]);
    expect(going([{ ...LEADS, revision: 'new' }])).toEqual([]);
    expect(going([LEADS, { ...STANDS_BY, deleting: true }])).toEqual([]);
    expect(going([LEADS, STANDS_BY])).toEqual(['movies-scheduler-1']);
    expect(going([STANDS_BY, LEADS])).toEqual(['movies-scheduler-0']);
  });

  it('goes on leading until one of the new template has run for a while', () => {
    const fresh = { ...STANDS_BY, revision: 'new' };
    expect(going([LEADS, fresh])).toEqual(['movies-scheduler-0']);
    expect(going([LEADS, { ...fresh, phase: 'Pending' }])).toEqual([]);
    expect(going([LEADS, { ...fresh, exit: { exitCode: 2 }, again: true }])).toEqual([]);
    const young = reconcile(edited([LEADS, { ...fresh, since: START }]));
    expect(deleted(young)).toEqual([]);
    expect(actionsOf(young, 'wake')).toContainEqual({ kind: 'wake', at: START + STEADY_MS });
  });

  it('stays where the job pauses', () => {
    const observed = edited([LEADS]);
    observed.job.spec.runPolicy.suspend = true;
    expect(deleted(reconcile(observed))).not.toContain('movies-scheduler-0');
  });
});
