/** Rules of the custom resources, by the API server itself. No operator looks after this namespace. */
import { expect, it } from 'vitest';
import { crds } from '../../src/fleet/operator/crds.js';
import { apply, MINUTES, onKubernetes, run } from './cluster.js';

const NAMESPACE = 'strict';
const ns = ['-n', NAMESPACE];
type Given = Record<string, unknown>;
type Stored = { spec: { replicaSpecs: { ps: { template: object } } } };
const jobOf = (name: string, { ps, worker, scheduler, ...spec }: Given = {}) => ({
  ...{ apiVersion: 'kintsugi.dev/v1alpha1', kind: 'TrainingJob', metadata: { name, namespace: NAMESPACE } },
  spec: {
    ...{ image: 'kintsugi:1', code: { k: 2, r: 1 } },
    replicaSpecs: {
      ...{ worker: { replicas: 1, ...(worker as Given) }, ps: ps ?? {} },
      ...(scheduler ? { scheduler } : {}),
    },
    ...spec,
  },
});
const told = (done: Promise<string>): Promise<string> =>
  done.then(
    () => 'accepted',
    (error: Error) => error.message,
  );
const create = (given: Given): Promise<string> =>
  told(run('kubectl', ['create', '--dry-run=server', '-f', '-'], JSON.stringify(jobOf('tried', given))));
/** Applied on the server, which gets every null. */
const onServer = (name: string, given: Given): Promise<string> =>
  told(run('kubectl', ['apply', '--server-side', '-f', '-'], JSON.stringify(jobOf(name, given))));
const patch = (name: string, spec: Given): Promise<string> =>
  told(run('kubectl', [...ns, 'patch', 'trainingjob', name, '--type=merge', '-p', JSON.stringify({ spec })]));
const phase = (name: string, value: string): Promise<string> =>
  run('kubectl', [
    ...[...ns, 'patch', 'trainingjob', name, '--subresource=status', '--type=merge'],
    ...['-p', JSON.stringify({ status: { phase: value } })],
  ]);

async function begin(): Promise<void> {
  await apply(JSON.stringify({ apiVersion: 'v1', kind: 'List', items: crds() }));
  const names = crds().map(({ metadata }) => `crd/${metadata.name}`);
  await run('kubectl', ['wait', '--for=condition=Established', '--timeout=60s', ...names]);
  await apply(JSON.stringify({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: NAMESPACE } }));
}
const end = () => run('kubectl', ['delete', 'namespace', NAMESPACE, '--timeout=60s']);

onKubernetes(
  () => {
    it(
      'fields that are fixed can be neither added, changed nor taken away',
      async () => {
        const fields: [name: string, one: unknown, other: unknown, says: string][] = [
          ['groups', 2, 3, 'groups are fixed'],
          ['managedBy', 'a.dev/x', 'a.dev/y', 'managedBy of a job is fixed'],
          ['tls', { secretName: 'a' }, { secretName: 'b' }, 'tls of a job is fixed'],
          [
            'auth',
            { secretName: 'a' },
            { secretName: 'b' },
            'auth of a job is fixed while it is not Suspended',
          ],
        ];
        await apply(JSON.stringify(jobOf('bare')));
        await apply(JSON.stringify(jobOf('full', Object.fromEntries(fields))));
        for (const [name, one, other, says] of fields) {
          expect(await patch('bare', { [name]: one })).toContain(says);
          expect(await patch('full', { [name]: other })).toContain(says);
          expect(await patch('full', { [name]: null })).toContain(says);
          expect(await patch('full', { [name]: one })).toBe('accepted');
        }
        for (const name of ['code', 'failureDomain', 'scheduler'] as const) {
          const other = {
            code: { k: 3, r: 1 },
            failureDomain: 'zone',
            scheduler: { store: { size: '2Gi' } },
          };
          expect(await patch('bare', { [name]: other[name] })).toContain('fixed');
        }
        // The rest may change.
        expect(await patch('full', { image: 'kintsugi:2' })).toBe('accepted');
      },
      MINUTES,
    );

    it(
      'auth may change while the job is suspended',
      async () => {
        await apply(JSON.stringify(jobOf('paused', { auth: { secretName: 'a' } })));
        await phase('paused', 'Running');
        const suspend = { runPolicy: { suspend: true } };
        expect(await patch('paused', { ...suspend, auth: { secretName: 'b' } })).toContain('auth of a job');
        expect(await patch('paused', suspend)).toBe('accepted');
        expect(await patch('paused', { auth: { secretName: 'b' } })).toContain('auth of a job');
        await phase('paused', 'Suspended');
        expect(await patch('paused', { auth: { secretName: 'b' } })).toBe('accepted');
        expect(await patch('paused', { auth: null })).toBe('accepted');
        await phase('paused', 'Pending');
        expect(await patch('paused', { auth: { secretName: 'a' } })).toContain('auth of a job');
      },
      MINUTES,
    );

    it(
      'mode "Job" says what its Pods reach: null is no list, whoever drops it',
      async () => {
        const says = 'networkPolicy.egress says what the Pods of mode "Job" reach';
        for (const egress of [undefined, null]) {
          const open = { networkPolicy: { mode: 'Job', ...(egress === undefined ? {} : { egress }) } };
          expect(await create(open)).toContain(says);
          const text = JSON.stringify(jobOf('tried', open));
          expect(await told(apply(text))).toContain(says);
          expect(await onServer('tried', open)).toMatch(/networkPolicy/);
        }
        for (const egress of [[], [{}], [{ ports: [{ port: 443 }] }]])
          expect(await create({ networkPolicy: { mode: 'Job', egress } })).toBe('accepted');
        expect(await create({ networkPolicy: { egress: [] } })).toContain('need mode "Job"');
        expect(await create({})).toBe('accepted');
      },
      MINUTES,
    );

    it(
      'numbers of PS and workers are within their bounds',
      async () => {
        const refusals: [Given, string][] = [
          [{ ps: { minReplicas: 5, maxReplicas: 4 } }, 'ps.minReplicas must be at most ps.maxReplicas'],
          [{ ps: { maxReplicas: 2 } }, 'ps.maxReplicas must be at least k+r'],
          [{ ps: { minReplicas: 2 } }, 'ps.minReplicas must be at least k+r'],
          [{ ps: { replicas: 5, minReplicas: 6 } }, 'ps.replicas must be at least ps.minReplicas'],
          [
            { worker: { replicas: 2, minReplicas: 3, maxReplicas: 1 } },
            'worker.minReplicas must be at most worker.maxReplicas',
          ],
        ];
        for (const [given, says] of refusals) expect(await create(given)).toContain(says);
        const none = { replicas: 2, minReplicas: 0, maxReplicas: 4 };
        const says = 'autoscale of worker needs a worker.minReplicas of at least 1';
        expect(await create({ worker: none, autoscale: { roles: ['worker'] } })).toContain(says);
        expect(await create({ worker: none })).toBe('accepted');
        for (const ps of [{ minReplicas: 6, maxReplicas: 8 }, { maxReplicas: 3 }, { replicas: 3 }])
          expect(await create({ ps })).toBe('accepted');
      },
      MINUTES,
    );

    it(
      'a template says nothing of the restart policy, which is a field of the role',
      async () => {
        const template = { spec: { restartPolicy: 'Always' } };
        for (const role of ['scheduler', 'ps', 'worker'])
          expect(await create({ [role]: { template } })).toContain('a template has no restartPolicy');
        expect(await create({ worker: { restartPolicy: 'OnFailure' } })).toBe('accepted');
      },
      MINUTES,
    );

    it(
      'the container of the role has nothing in a template that the operator relies on',
      async () => {
        const withContainer = (name: string, fields: object, init: object[] = []) => ({
          template: { spec: { containers: [{ name, ...fields }], initContainers: init } },
        });
        const fields = [
          { command: ['node', 'train.mjs'] },
          { args: ['ps', '--memory', '1Gi'] },
          { restartPolicy: 'Always' },
          { terminationMessagePath: '/tmp/words' },
          { terminationMessagePolicy: 'File' },
        ];
        for (const each of fields) {
          for (const role of ['scheduler', 'ps', 'worker'])
            expect(await create({ [role]: withContainer('kintsugi', each) })).toContain(
              'the container "kintsugi" of a template has no command',
            );
          expect(await create({ ps: withContainer('side', { image: 'side:1', ...each }) })).toBe('accepted');
        }
        const sidecar = [{ name: 'log', image: 'log:1', restartPolicy: 'Always' }];
        expect(await create({ ps: withContainer('kintsugi', { image: 'x:1' }, sidecar) })).toBe('accepted');
      },
      MINUTES,
    );

    it(
      'null takes a field of a template away, where kubectl does not drop it',
      async () => {
        const main = { name: 'kintsugi', env: null, readinessProbe: null, securityContext: null };
        const spec = { securityContext: null, affinity: null, volumes: null, containers: [main] };
        const given = { ps: { template: { spec } } };
        expect(await create(given)).toBe('accepted');
        expect(await onServer('nulls', given)).toBe('accepted');
        const stored = JSON.parse(
          await run('kubectl', [...ns, 'get', 'tj', 'nulls', '-o', 'json']),
        ) as Stored;
        expect(stored.spec.replicaSpecs.ps.template).toEqual({ spec });
        const sized = { ...main, resources: null };
        expect(await onServer('sized', { worker: { template: { spec: { containers: [sized] } } } })).toBe(
          'accepted',
        );
      },
      MINUTES,
    );
  },
  { begin, end },
);
