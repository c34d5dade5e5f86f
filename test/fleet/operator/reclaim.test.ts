/** Machines that are about to go, and the readiness that holds evictions. */
import { describe, expect, it } from 'vitest';
import type { KubeNode, Pod } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import {
  actionsOf,
  changeOf,
  created,
  deleted,
  jobOf,
  lived,
  names,
  nodeOf,
  observedOf,
  reportOf,
  START,
  step,
} from './support.js';

const NODES = ['n1', 'n2', 'n3', 'n4', 'n5'];
const tainted = (key: string): Partial<KubeNode['spec'] & object> => ({
  taints: [{ key, effect: 'NoSchedule' }],
});
const node = (name: string, spec: KubeNode['spec'] = {}): KubeNode => ({ ...nodeOf(name), spec });
const withNodes = (observed: ObservedJob, specs: Record<string, object>): ObservedJob => ({
  ...observed,
  nodes: NODES.map((name) => node(name, specs[name])),
});

/** Each PS has a machine of its own; all of them are there, and ready. */
function running(job = jobOf({ ps: { replicas: 5 } })): ObservedJob {
  const first = observedOf({ job, nodes: NODES.map((name) => node(name)) });
  const then = step(first, reconcile(first));
  const pods = then.pods.map((pod): Pod => {
    const index = Number(/-ps-(\d+)$/.exec(pod.metadata.name)?.[1] ?? 0);
    return lived(pod, { node: NODES[index] ?? 'n1' });
  });
  let observed: ObservedJob = { ...then, pods, report: reportOf(pods) };
  for (let pass = 0; pass < 4; pass++) observed = step(observed, reconcile(observed));
  return observed;
}
const drains = (observed: ObservedJob): string[] =>
  actionsOf(reconcile(observed), 'ask').flatMap(({ change }) =>
    change.kind === 'drain' ? [change.node] : [],
  );

describe('a machine that is about to go', () => {
  it.each([
    ['is cordoned', { unschedulable: true }],
    ['Karpenter takes', tainted('karpenter.sh/disrupted')],
    ['the cluster autoscaler takes', tainted('ToBeDeletedByClusterAutoscaler')],
    ['has a spot notice', tainted('aws-node-termination-handler/spot-itn')],
    ['has a notice of GKE', tainted('cloud.google.com/impending-node-termination')],
    ['has a notice of AKS', tainted('remediator.kubernetes.azure.com/unschedulable')],
    ['has a notice of somebody else', tainted('kintsugi.dev/reclaim')],
  ])('because it %s: its PS is emptied, and another one is made', (_, spec) => {
    const observed = withNodes(running(), { n2: spec });
    expect(names(created(reconcile(observed)))).toEqual(['movies-ps-5']);
    expect(drains(observed)).toEqual(['movies-ps-1']);
    expect(deleted(reconcile(observed))).toEqual([]);
    // The process of the drained PS has ended by itself.
    const replaced = step(observed, reconcile(observed));
    const gone = replaced.pods.map((pod) =>
      pod.metadata.name === 'movies-ps-1' ? lived(pod, { phase: 'Succeeded', node: 'n2' }) : pod,
    );
    expect(deleted(reconcile({ ...replaced, pods: gone }))).toEqual(['movies-ps-1']);
  });

  it('because an annotation says so: its PS is emptied', () => {
    const observed = withNodes(running(), {});
    const nodes = observed.nodes.map((one) =>
      one.metadata.name === 'n2'
        ? { ...one, metadata: { ...one.metadata, annotations: { 'kintsugi.dev/reclaim': 'soon' } } }
        : one,
    );
    expect(drains({ ...observed, nodes })).toEqual(['movies-ps-1']);
  });

  it('because somebody thinks about it is left alone', () => {
    const observed = withNodes(running(), { n2: tainted('DeletionCandidateOfClusterAutoscaler') });
    expect([drains(observed), created(reconcile(observed))]).toEqual([[], []]);
  });

  it('goes with at most r others at once; the next one when the first is empty', () => {
    const cordoned = { unschedulable: true };
    const observed = withNodes(running(), { n1: cordoned, n2: cordoned, n3: cordoned });
    expect(drains(observed)).toEqual(['movies-ps-0']);
    const draining = {
      ...observed,
      report: {
        ...observed.report!,
        changes: [changeOf({ kind: 'drain', leaving: ['movies-ps-0'] })],
      },
    };
    expect(drains(draining)).toEqual([]);
    const pods = observed.pods.filter(({ metadata }) => metadata.name !== 'movies-ps-0');
    expect(drains({ ...observed, pods, report: reportOf(pods) })).toEqual(['movies-ps-1']);
    const two = running(jobOf({ code: { k: 2, r: 2 }, ps: { replicas: 5 } }));
    expect(drains(withNodes(two, { n1: cordoned, n2: cordoned, n3: cordoned }))).toEqual([
      ...['movies-ps-0', 'movies-ps-1'],
    ]);
  });

  it('and cannot be emptied yet is asked for again, and is left when it stays', () => {
    const observed = withNodes(running(), { n1: { unschedulable: true } });
    const asked = [{ key: 'drain movies-ps-0', at: START, underWay: false, problem: 'NOT_ENOUGH_NODES: x' }];
    const actions = reconcile({ ...observed, asked });
    expect(actionsOf(actions, 'ask')).toEqual([]);
    expect(actionsOf(actions, 'wake')).toEqual([{ kind: 'wake', at: START + 5000 }]);
    expect(drains({ ...observed, asked, now: START + 5000 })).toEqual(['movies-ps-0']);
    // The machine stays after all, so the PS that was made for it is too many.
    const surged = step(observed, reconcile(observed));
    const back = withNodes({ ...surged, report: reportOf(surged.pods) }, {});
    expect(actionsOf(reconcile(back), 'ask').map(({ change }) => change)).toEqual([{ kind: 'scale', ps: 5 }]);
  });
});

describe('the readiness gate of PS', () => {
  const opened = (observed: ObservedJob) =>
    actionsOf(reconcile(observed), 'gate').map(({ pod, open }) => `${pod.metadata.name} ${open}`);

  it('is a gate of their Pods, and open while the job is redundant', () => {
    const observed = running();
    const [ps] = observed.pods;
    expect(ps!.spec.readinessGates).toEqual([{ conditionType: 'kintsugi.dev/redundant' }]);
    expect(opened(observed)).toEqual([]);
    const shut = { ...observed, report: { ...observed.report!, redundancy: 'recovering' } };
    expect(opened(shut)).toEqual([0, 1, 2, 3, 4].map((index) => `movies-ps-${index} false`));
    expect(opened(step(shut, reconcile(shut)))).toEqual([]);
    // Users see a PS as ready that serves.
    expect(step(shut, reconcile(shut)).job.status!.ps).toBe('5/5');
  });

  it('is shut from the moment when a machine is cordoned, until its PS is empty or cannot be emptied', () => {
    const observed = withNodes(running(), { n2: { unschedulable: true } });
    const all = [0, 1, 2, 3, 4].map((index) => `movies-ps-${index} false`);
    expect(opened(observed)).toEqual(all);
    const asked = { key: 'drain movies-ps-1', at: START, underWay: true, id: 1 };
    const changes = [changeOf({ kind: 'drain', leaving: ['movies-ps-1'] })];
    const report = { ...observed.report!, changing: true, changes };
    expect(opened({ ...observed, asked: [asked], report })).toEqual(all);
    // The PS is empty, and gone.
    const pods = observed.pods.filter(({ metadata }) => metadata.name !== 'movies-ps-1');
    expect(opened({ ...observed, pods, report: reportOf(pods) })).toEqual([]);
    // No other machine has room for its shards: an eviction goes through now, and parity restores them.
    const problem = 'NOT_ENOUGH_NODES: too few';
    expect(opened({ ...observed, asked: [{ ...asked, underWay: false, problem }] })).toEqual([]);
  });

  it('is shut while shards move, and not while a change waits for PS', () => {
    const observed = running();
    const during = (shardsLeft: number, kind: 'join' | 'scale' | 'rebalance'): ObservedJob => ({
      ...observed,
      report: { ...observed.report!, changing: true, changes: [changeOf({ kind, shardsLeft, to: 5 })] },
    });
    expect(opened(during(3, 'join'))).toHaveLength(5);
    expect(opened(during(3, 'rebalance'))).toHaveLength(5);
    expect(opened(during(0, 'scale'))).toEqual([]);
    const over = { ...changeOf({ kind: 'join', shardsLeft: 3 }), state: 'cancelled' as const };
    expect(opened({ ...observed, report: { ...observed.report!, changes: [over] } })).toEqual([]);
  });

  it('stays as it is while the job is just not heard, and shuts when it has no scheduler', () => {
    const observed = { ...running(), report: undefined };
    const labels = { 'kintsugi.dev/role': 'scheduler', 'kintsugi.dev/job': 'movies' };
    const scheduler = lived({ apiVersion: 'v1', kind: 'Pod', metadata: { name: 's-0', labels } });
    expect(opened({ ...observed, pods: [...observed.pods, scheduler] })).toEqual([]);
    expect(opened(observed)).toHaveLength(5);
  });
});
