/** Metrics of a job for Prometheus, where its operator is. */
import { describe, expect, it, onTestFinished } from 'vitest';
import type { KubeObject, ObjectManifest, Pod } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import { actionsOf, created, deleted, jobOf, observedOf, step } from './support.js';
import { World } from './world.js';

const metrics = { intervalSeconds: 15, labels: { release: 'prometheus' } };
const extras = new Set(['PodMonitor']);
const monitorOf = (observed: ObservedJob): ObjectManifest | undefined =>
  actionsOf(reconcile(observed), 'apply').find(({ object }) => object.kind === 'PodMonitor')?.object;

describe('a job with metrics', () => {
  it('has a PodMonitor of its own, with the token of metrics, and roles that know it', () => {
    const observed = observedOf({ job: jobOf({ metrics }), extras });
    expect(monitorOf(observed)).toMatchObject({
      metadata: {
        namespace: 'ml',
        labels: { release: 'prometheus', 'kintsugi.dev/job': 'movies' },
        ownerReferences: [{ kind: 'TrainingJob', name: 'movies' }],
      },
      spec: {
        selector: { matchLabels: { 'kintsugi.dev/job': 'movies' } },
        podMetricsEndpoints: [
          {
            ...{ port: 'http', path: '/metrics', interval: '15s' },
            authorization: { credentials: { name: 'movies-tokens', key: 'metricsToken' } },
          },
        ],
      },
    });
    for (const { spec } of created(reconcile(observed)) as unknown as Pod[])
      expect(spec.containers![0]!.env).toContainEqual({
        name: 'KINTSUGI_METRICS_TOKEN',
        valueFrom: { secretKeyRef: { name: 'movies-tokens', key: 'metricsToken', optional: true } },
      });
  });

  it('that speaks TLS is scraped over it', () => {
    const job = jobOf({ metrics, tls: { secretName: 'certificates' } });
    const spec = monitorOf(observedOf({ job, extras }))!.spec;
    expect(spec).toMatchObject({
      podMetricsEndpoints: [
        {
          scheme: 'https',
          tlsConfig: {
            ca: { secret: { name: 'certificates', key: 'ca.crt' } },
            serverName: 'movies-scheduler.ml.svc',
          },
        },
      ],
    });
  });

  it('has none where nobody has defined that kind, and loses it when nobody wants it', () => {
    expect(monitorOf(observedOf({ job: jobOf({ metrics }) }))).toBeUndefined();
    expect(monitorOf(observedOf({ job: jobOf(), extras }))).toBeUndefined();
    const observed = observedOf({ job: jobOf({ metrics }), extras });
    const then = step(observed, reconcile(observed));
    expect(monitorOf(then)).toBeUndefined();
    expect(deleted(reconcile({ ...then, job: { ...jobOf(), status: then.job.status! } }))).toEqual([
      'movies',
    ]);
  });
});

describe('an operator', () => {
  const runs = async (world: World): Promise<void> => {
    onTestFinished(() => world.operator.stop());
    await world.operator.start();
    world.start(jobOf({ metrics }));
    await world.until(() => world.job().status?.phase === 'Running');
  };

  it('makes PodMonitors where the kind is', async () => {
    const world = new World(3);
    await runs(world);
    await world.until(() => world.server.of<KubeObject>('PodMonitor').length === 1);
  });

  it('is at work where the kind is not', async () => {
    const world = new World(4);
    world.server.undefinedKinds.add('PodMonitor');
    await runs(world);
    expect(world.server.of<KubeObject>('PodMonitor')).toEqual([]);
    expect(world.operator.notReady()).toBeUndefined();
    expect(world.operator.passesMade.get('done')).toBeGreaterThan(0);
  });
});
