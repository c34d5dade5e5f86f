/** TLS of a job: in its Pods, and between the operator and the job. */
import { readFileSync } from 'node:fs';
import { expect, it, onTestFinished } from 'vitest';
import { JobLink } from '../../../src/fleet/operator/link.js';
import type { ObjectManifest, Pod } from '../../../src/fleet/operator/objects.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import { accessOf } from '../../../src/fleet/operator/secrets.js';
import { startLocalCluster } from '../../../src/roles/cluster.js';
import { hasOpenssl, makeCertificates } from '../../net/transport/certificates.js';
import { MemoryServer } from './server.js';
import { actionsOf, created, jobOf, observedOf } from './support.js';

const tls = { secretName: 'certificates' };
const secretOf = (name: string, values: Record<string, string>): ObjectManifest => {
  const entries = Object.entries(values).map(([key, value]) => [key, Buffer.from(value).toString('base64')]);
  const metadata = { name, namespace: 'ml' };
  return { apiVersion: 'v1', kind: 'Secret', metadata, data: Object.fromEntries(entries) };
};

it('every role has the Secret, shows its certificate, and verifies others by one name', () => {
  const actions = reconcile(observedOf({ job: jobOf({ tls }) }));
  const set = actionsOf(actions, 'apply').find(({ object }) => object.kind === 'StatefulSet')!.object;
  const { spec: scheduler } = (set as unknown as { spec: { template: Pod } }).spec.template;
  const pods = (created(actions) as unknown as Pod[]).map(({ spec }) => spec);
  for (const spec of [scheduler, ...pods]) {
    expect(spec.volumes).toContainEqual({ name: 'tls', secret: { secretName: 'certificates' } });
    const [container] = spec.containers!;
    const mount = { name: 'tls', mountPath: '/etc/kintsugi/tls', readOnly: true };
    expect(container!.volumeMounts).toContainEqual(mount);
    expect(container!.args!.join(' ')).toContain(
      '--tls-cert /etc/kintsugi/tls/tls.crt --tls-key /etc/kintsugi/tls/tls.key',
    );
    expect(container!.env).toEqual(
      expect.arrayContaining([
        { name: 'KINTSUGI_TLS_CA', value: '/etc/kintsugi/tls/ca.crt' },
        { name: 'KINTSUGI_TLS_NAME', value: 'movies-scheduler.ml.svc' },
      ]),
    );
    expect(container!.readinessProbe).toMatchObject({ httpGet: { path: '/readyz', scheme: 'HTTPS' } });
  }
  const named = jobOf({
    tls: { ...tls, serverName: 'jobs.example' },
    worker: { command: ['node', 'a.mjs'] },
  });
  const worker = (created(reconcile(observedOf({ job: named }))) as unknown as Pod[]).at(-1)!;
  expect(worker.spec.containers![0]!.args).toEqual([]);
  expect(worker.spec.containers![0]!.env).toContainEqual({
    name: 'KINTSUGI_TLS_NAME',
    value: 'jobs.example',
  });
});

it('the operator waits for both Secrets', async () => {
  const server = new MemoryServer(() => 0.5);
  const job = jobOf({ tls });
  expect(await accessOf(server, job)).toBeUndefined();
  server.put('Secret', secretOf('movies-tokens', { token: 'secret' }));
  expect(await accessOf(server, jobOf())).toEqual({ token: 'secret' });
  expect(await accessOf(server, job)).toBeUndefined();
  server.put('Secret', secretOf('certificates', { 'ca.crt': 'PEM' }));
  const access = { token: 'secret', tls: { ca: 'PEM', serverName: 'movies-scheduler.ml.svc' } };
  expect(await accessOf(server, job)).toEqual(access);
});

it.skipIf(!hasOpenssl)('the operator talks with a job that speaks TLS', async () => {
  const certificates = makeCertificates();
  onTestFinished(() => certificates.remove());
  const cluster = await startLocalCluster({ code: '1+1', token: 'secret', tls: certificates.tls });
  onTestFinished(() => cluster.close());
  const ca = readFileSync(certificates.tls.caFile, 'utf8');
  await new Promise<void>((resolve) => {
    const link = new JobLink({
      ...{ address: cluster.address, token: 'secret', run: 'train' },
      tls: { ca, serverName: 'node.test' },
      onChange: () => link.report?.redundancy === 'full' && resolve(),
    });
    onTestFinished(() => link.close());
  });
});
