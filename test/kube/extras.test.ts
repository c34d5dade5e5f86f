/** Extras of a job: TLS, a network policy, metrics that somebody scrapes. */
import { afterAll, expect, it } from 'vitest';
import type { KubeObject } from '../../src/fleet/operator/objects.js';
import { makeCertificates } from '../net/transport/certificates.js';
import {
  apply,
  booksOf,
  get,
  hurry,
  jobOf,
  kubectl,
  listen,
  MINUTES,
  movieJob,
  onKubernetes,
  patch,
  pods,
  waitFor,
} from './cluster.js';

/** As much of the Prometheus operator as a job wants. */
const MONITORS = JSON.stringify({
  ...{ apiVersion: 'apiextensions.k8s.io/v1', kind: 'CustomResourceDefinition' },
  metadata: { name: 'podmonitors.monitoring.coreos.com' },
  spec: {
    ...{ group: 'monitoring.coreos.com', scope: 'Namespaced' },
    names: { kind: 'PodMonitor', plural: 'podmonitors', singular: 'podmonitor' },
    versions: [
      {
        ...{ name: 'v1', served: true, storage: true },
        schema: { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
      },
    ],
  },
});

/** Asks a PS from another Pod: without a token, with it, without TLS, and by another name. */
const ASK = `
import { readFileSync } from 'node:fs';
import { request } from 'node:https';
const { KINTSUGI_TLS_CA, KINTSUGI_TLS_NAME, KINTSUGI_METRICS_TOKEN } = process.env;
const host = process.argv[1];
const ca = readFileSync(KINTSUGI_TLS_CA);
const ask = (headers, servername = KINTSUGI_TLS_NAME) => new Promise((done) =>
  request({ host, port: 7100, path: '/metrics', ca, servername, headers }, (answer) => {
    answer.resume();
    done(answer.statusCode);
  }).on('error', ({ code }) => done(code)).end());
const authorization = 'Bearer ' + KINTSUGI_METRICS_TOKEN;
const unencrypted = 'http://' + host + ':7100/metrics';
const plain = await fetch(unencrypted).then(({ status }) => status, () => 'no answer');
const other = await ask({}, 'other.test');
console.log(JSON.stringify([await ask({}), await ask({ authorization }), plain, other]));
`;

onKubernetes(() => {
  const certificates = makeCertificates('DNS:guarded-scheduler.kintsugi.svc');
  afterAll(() => certificates.remove());

  it('a job speaks TLS only, has a network policy, and a PodMonitor where that kind is', {
    timeout: 12 * MINUTES,
  }, async () => {
    await apply(MONITORS);
    const { certFile, keyFile, caFile } = certificates.tls;
    const files = { 'tls.crt': certFile, 'tls.key': keyFile, 'ca.crt': caFile };
    const given = Object.entries(files).map(([key, file]) => `--from-file=${key}=${file}`);
    await kubectl('delete', 'secret', 'guarded-tls', '--ignore-not-found');
    await kubectl('create', 'secret', 'generic', 'guarded-tls', ...given);
    const networkPolicy = { mode: 'Job', egress: [{}] };
    const more = { tls: { secretName: 'guarded-tls' }, metrics: {}, networkPolicy };
    await apply(movieJob('guarded', { few: true, seconds: 400, more }));
    await waitFor('guarded', '.status.phase', 'Running');
    await waitFor('guarded', '.status.redundancy', 'full');
    await waitFor('guarded', '.status.ps', '4/4');
    const [ps, worker] = [(await pods('guarded', 'ps'))[0]!, (await pods('guarded', 'worker'))[0]!];
    const node = ['exec', worker.metadata.name, '-c', 'kintsugi', '--', 'node', '--input-type=module', '-e'];
    const answers = JSON.parse(await kubectl(...node, ASK, ps.status!.podIP!));
    expect(answers).toEqual([401, 200, 'no answer', 'ERR_TLS_CERT_ALTNAME_INVALID']);

    // The kind was not there when the operator began: it looks for it once in a minute.
    await kubectl('wait', '--for=create', 'podmonitor/guarded', '--timeout=150s');
    const { metadata } = await jobOf('guarded');
    for (const kind of ['podmonitor', 'networkpolicy']) {
      const { metadata: its } = await get<KubeObject>(kind, 'guarded');
      expect(its.ownerReferences).toMatchObject([{ kind: 'TrainingJob', uid: metadata.uid }]);
    }
    const monitor = await get<KubeObject & { spec: object }>('podmonitor', 'guarded');
    const [key, name] = ['metricsToken', 'guarded-tokens'];
    const how = { scheme: 'https', authorization: { credentials: { key, name } } };
    expect(monitor.spec).toMatchObject({ podMetricsEndpoints: [how] });
    await patch('guarded', { networkPolicy: { mode: 'None', egress: null } });
    await kubectl('wait', '--for=delete', 'networkpolicy/guarded', '--timeout=60s');

    await hurry('guarded');
    await waitFor('guarded', '.status.phase', 'Succeeded');
    const books = await booksOf('guarded', await listen('guarded'), { few: true });
    expect(books).toMatchObject({ exactlyOnce: true, problems: [] });
    await kubectl('delete', 'trainingjob', 'guarded');
    await kubectl('wait', '--for=delete', 'podmonitor/guarded', '--timeout=120s');
    await kubectl('delete', 'crd', 'podmonitors.monitoring.coreos.com');
  });
});
