/** Scheduler and PS are kept apart, and a scheduler whose machine is gone begins elsewhere at once. */
import { describe, expect, it, onTestFinished } from 'vitest';
import type { KubeNode, Pod } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import { actionsOf, created, jobOf, lived, nodeOf, observedOf, running } from './support.js';
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

const preferences = (spec: unknown) =>
  (spec as { affinity?: { podAntiAffinity: Record<string, unknown> } }).affinity?.podAntiAffinity;
const awayFrom = (role: string) => ({
  preferredDuringSchedulingIgnoredDuringExecution: [
    {
      weight: 100,
      podAffinityTerm: {
        topologyKey: 'kubernetes.io/hostname',
        labelSelector: { matchLabels: { 'kintsugi.dev/job': 'movies', 'kintsugi.dev/role': role } },
      },
    },
  ],
});

it('scheduler and PS prefer other machines than each other, unless the template says otherwise', () => {
  const actions = reconcile(observedOf());
  const set = actionsOf(actions, 'apply').find(({ object }) => object.kind === 'StatefulSet')!.object;
  const { template } = set.spec as { template: { spec: object } };
  expect(preferences(template.spec)).toEqual(awayFrom('ps'));
  const pods = created(actions);
  expect(preferences(pods[0]!.spec)).toEqual(awayFrom('scheduler'));
  expect(preferences(pods.at(-1)!.spec)).toBeUndefined();
  const own = { nodeAffinity: {} };
  const job = jobOf({ ps: { template: { spec: { affinity: own } } } });
  expect(created(reconcile(observedOf({ job })))[0]!.spec).toMatchObject({ affinity: own });
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
