/** Scheduler and PS are kept apart, and a scheduler whose machine is gone begins elsewhere at once. */
import { describe, expect, it, onTestFinished } from 'vitest';
import type { KubeNode, ObjectManifest, Pod } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import type { TrainingJob } from '../../../src/fleet/operator/types.js';
import { type Machine, place } from './scheduler-model.js';
import { actionsOf, created, jobOf, lived, nodeOf, observedOf, reportOf, running, step } from './support.js';
import { World } from './world.js';

const SCHEDULER: Pod = {
  ...{ apiVersion: 'v1', kind: 'Pod', spec: {} },
  metadata: {
    ...{ name: 'movies-scheduler-0', namespace: 'ml' },
    labels: { 'kintsugi.dev/job': 'movies', 'kintsugi.dev/role': 'scheduler' },
  },
};

function outOfService(name: string, ready = false): KubeNode {
  const taint = { key: 'node.kubernetes.io/out-of-service', effect: 'NoExecute' };
  return { ...nodeOf(name, ready), spec: { taints: [taint] } };
}

const HOST = 'kubernetes.io/hostname';
const ZONE = 'topology.kubernetes.io/zone';
const preferences = (spec: unknown) => (spec as { affinity?: { podAntiAffinity?: unknown } }).affinity;

/** A scheduler and PS of the job on machines, which are written as `name` or `zone/name`. */
function placed(job: TrainingJob, names: readonly string[]): Machine[] {
  const machines = names.map((each): Machine => {
    const [name = '', zone] = each.split('/').reverse();
    return { labels: { [HOST]: name, ...(zone === undefined ? {} : { [ZONE]: zone }) }, pods: [] };
  });
  const actions = reconcile(observedOf({ job }));
  const set = actionsOf(actions, 'apply').find(({ object }) => object.kind === 'StatefulSet')!.object;
  const { template } = set.spec as { template: object };
  place({ ...SCHEDULER, ...template } as ObjectManifest, machines);
  for (const pod of created(actions)) place(pod, machines);
  return machines;
}

const roleCount = ({ pods }: Machine, role: string): number =>
  pods.filter(({ metadata }) => metadata.labels?.['kintsugi.dev/role'] === role).length;
const countsOf = (machines: readonly Machine[], role: string): number[] =>
  machines.map((one) => roleCount(one, role));

describe('Pods of a role', () => {
  it('spread over machines that have no zones, PS away from the scheduler where there is room', () => {
    const four = placed(jobOf({ worker: { replicas: 8 } }), ['n1', 'n2', 'n3', 'n4']);
    expect(countsOf(four, 'ps')).toEqual([1, 1, 1, 1]);
    expect(countsOf(four, 'worker')).toEqual([2, 2, 2, 2]);
    const five = placed(jobOf(), ['n1', 'n2', 'n3', 'n4', 'n5']);
    expect(five.filter((one) => roleCount(one, 'scheduler') * roleCount(one, 'ps') > 0)).toEqual([]);
    expect(countsOf(five, 'ps').sort()).toEqual([0, 1, 1, 1, 1]);
  });

  it.each(['node', 'zone', 'zone/node'] as const)(
    'spread over zones and in these, for %s',
    (failureDomain) => {
      const nodes = ['a/1', 'a/2', 'a/3', 'b/4', 'b/5', 'b/6', 'c/7', 'c/8', 'c/9'];
      const machines = placed(jobOf({ failureDomain, ps: { replicas: 6 } }), nodes);
      const ps = countsOf(machines, 'ps');
      expect([0, 3, 6].map((at) => ps[at]! + ps[at + 1]! + ps[at + 2]!)).toEqual([2, 2, 2]);
      expect(Math.max(...ps)).toBe(1);
    },
  );

  it('go by what fails together, where zones differ in size', () => {
    const nodes = ['a/1', 'b/2', 'c/3', 'c/4', 'c/5'];
    const of = (failureDomain: 'node' | 'zone') =>
      countsOf(placed(jobOf({ failureDomain, ps: { replicas: 5 } }), nodes), 'ps');
    expect(of('node')).toEqual([1, 1, 1, 1, 1]);
    expect(of('zone').slice(0, 2).sort()).toEqual([1, 2]);
  });

  it('come to machines without a zone among others', () => {
    const machines = placed(jobOf({ ps: { replicas: 4 } }), ['a/1', 'b/2', '3', '4']);
    expect(countsOf(machines, 'ps')).toEqual([1, 1, 1, 1]);
  });

  it('go where the template says', () => {
    const nodeAffinity = { requiredDuringSchedulingIgnoredDuringExecution: {} };
    const of = (affinity: object) =>
      created(reconcile(observedOf({ job: jobOf({ ps: { template: { spec: { affinity } } } }) })))[0]!.spec;
    expect(preferences(of({ nodeAffinity }))).toMatchObject({ nodeAffinity, podAntiAffinity: {} });
    expect(preferences(of({ podAntiAffinity: null }))).toEqual({});
  });
});

describe.each(['zone', 'zone/node'] as const)('PS that are to be apart by %s', (failureDomain) => {
  /** The observation with these zones of the PS. */
  const zoned = (seen: ObservedJob, zones: readonly (string | undefined)[], redundancy = 'full') => {
    const ps = seen.pods.filter(({ metadata }) => metadata.labels?.['kintsugi.dev/role'] === 'ps');
    const pods = seen.pods.map((pod) => {
      const at = ps.indexOf(pod);
      if (at < 0) return pod;
      const { [ZONE]: _, ...others } = pod.metadata.labels ?? {};
      const zone = zones[at];
      const labels = zone === undefined ? others : { ...others, [ZONE]: zone };
      return { ...pod, metadata: { ...pod.metadata, labels } };
    });
    return { ...seen, pods, report: reportOf(pods, { redundancy }) };
  };
  const redundant = (zones: readonly (string | undefined)[], redundancy?: string) => {
    const known = zoned(running(jobOf({ failureDomain })), ['a', 'b', 'c', 'd']);
    const observed = zoned(step(known, reconcile(known)), zones, redundancy);
    const actions = reconcile(observed);
    const { conditions } = step(observed, actions).job.status!;
    return {
      condition: conditions!.find(({ type }) => type === 'Redundant')!,
      events: actionsOf(actions, 'event').map(({ type, reason }) => `${type} ${reason}`),
    };
  };

  it('are not redundant where Pods do not know their zone', () => {
    const { condition, events } = redundant([]);
    expect(condition).toMatchObject({ status: 'False', reason: 'NoZones' });
    expect(condition.message).toBe(
      `movies-ps-0 (and 3 more) has no label ${ZONE}, so what is in one zone is not known: label ` +
        'the machines (Kubernetes 1.35 gives their zones to Pods), or set ' +
        'spec.failureDomain to node in another job',
    );
    expect(events).toContain('Warning RedundantNoZones');
    expect(redundant(['a', 'b', 'c', '']).condition.message).toMatch(/^movies-ps-3 has no label/);
    expect(redundant([], 'degraded').condition).toMatchObject({ reason: 'Degraded' });
  });

  it('are where all know it', () => {
    expect(redundant(['a', 'b', 'c', 'a']).condition).toMatchObject({ status: 'True', reason: 'Full' });
  });
});

describe('a scheduler', () => {
  /** A silent job with its scheduler on n2, where there are these machines. */
  const silent = (nodes: KubeNode[], deleting = true): ObservedJob => {
    const observed = running();
    const pod = lived(SCHEDULER, { node: 'n2', deleting });
    return { ...observed, report: undefined, nodes: [nodeOf('n1'), ...nodes], pods: [...observed.pods, pod] };
  };
  const forced = (observed: ObservedJob) =>
    actionsOf(reconcile(observed), 'delete')
      .filter(({ graceSeconds }) => graceSeconds === 0)
      .map(({ object, ifGone }) => [object.metadata.name, object.metadata.uid, ifGone]);
  const IT = [['movies-scheduler-0', 'uid-movies-scheduler-0', 'n2']];

  it.each([true, false])('is deleted by force when its machine is gone, told to end: %s', (deleting) => {
    expect(forced(silent([], deleting))).toEqual(IT);
    expect(forced(silent([outOfService('n2')], deleting))).toEqual(IT);
  });

  it('stays where its machine may come back, or answers', () => {
    expect(forced(silent([nodeOf('n2', false)]))).toEqual([]);
    expect(forced(silent([outOfService('n2', true)]))).toEqual([]);
  });

  it('stays until it was asked, where another one on its volume would do harm', () => {
    expect(forced({ ...silent([], false), asking: true })).toEqual([]);
    expect(forced({ ...silent([], false), asking: false })).toEqual(IT);
  });

  it('stays while it answers, whatever became of its Node object', () => {
    const { report } = running();
    expect(forced({ ...silent([]), report })).toEqual([]);
    const job = jobOf();
    job.spec.scheduler.store.etcd = { url: 'etcd://e:2379/movies', schedulers: 2 };
    expect(forced({ ...silent([]), report, job: { ...silent([]).job, spec: job.spec } })).toEqual(IT);
  });
});

describe('an operator', () => {
  const lost = async (seed: number, mark: (world: World, node: string) => void) => {
    const world = new World(seed);
    onTestFinished(() => world.operator.stop());
    await world.operator.start();
    world.start(jobOf());
    await world.until(() => world.job().status?.phase === 'Running');
    const [before] = world.pods('scheduler');
    world.silence();
    world.lose(before!.spec.nodeName!);
    await world.until(() => world.pods('scheduler')[0]?.metadata.deletionTimestamp !== undefined);
    mark(world, before!.spec.nodeName!);
    const another = () =>
      world.active('scheduler').find(({ metadata: { uid } }) => uid !== before!.metadata.uid);
    await world.until(() => another() !== undefined);
    expect(another()!.spec.nodeName).not.toBe(before!.spec.nodeName);
  };

  it('has another scheduler made when the Node object of its machine is deleted', () =>
    lost(1, (world, name) => world.server.drop('Node', { name })));

  it('has another one made when its machine is out of service, though it was cordoned before', () =>
    lost(2, ({ server }, name) => {
      server.put('Node', { ...nodeOf(name, false), spec: { unschedulable: true } } as KubeNode);
      setImmediate(() => {
        const node = outOfService(name);
        server.put('Node', { ...node, spec: { ...node.spec, unschedulable: true } } as KubeNode);
      });
    }));

  it('asks the server, because a machine of that name may be there that it has not seen', async () => {
    const world = new World(3);
    onTestFinished(() => world.operator.stop());
    await world.operator.start();
    world.start(jobOf());
    await world.until(() => world.job().status?.phase === 'Running');
    const [before] = world.pods('scheduler');
    const asked = new Promise<void>((resolve) => {
      const get = world.server.get.bind(world.server);
      world.server.get = (async (kind, namespace, name) => {
        if (kind !== 'Node') return get(kind, namespace, name);
        resolve();
        return nodeOf(name);
      }) as typeof get;
    });
    world.silence();
    world.server.drop('Node', { name: before!.spec.nodeName! });
    await asked;
    await world.operator.stop();
    expect(world.pods('scheduler')[0]!.metadata.uid).toBe(before!.metadata.uid);
  });
});
