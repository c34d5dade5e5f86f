/**
 * The operator is killed again and again: SIGKILL when its third to fifth write is answered, before it sees
 * the answer. Every step of a job falls between two operators. test/fleet/operator/killed.test.ts has every
 * write in turn.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { dump, load } from 'js-yaml';
import { afterAll, expect, it } from 'vitest';
import type { KubeObject, ObjectManifest } from '../../src/fleet/operator/objects.js';
import type { ScalerObject } from '../../src/fleet/operator/types.js';
import {
  apply,
  booksOf,
  bothOperators,
  get,
  hurry,
  IMAGE,
  type Items,
  jobOf,
  kubectl,
  listen,
  MINUTES,
  movieJob,
  NAMESPACE,
  onKubernetes,
  pods,
  type Told,
  until,
  waitFor,
  whole,
} from './cluster.js';

const JOB = 'mortal';
const OPERATOR = 'deploy/kintsugi-operator';
const KILLED = 'killed-operators';

/** Runs in the process of each operator. Renewals of the Lease, and what only asks, are no writes. */
const HOOK = `
import https from 'node:https';
import { syncBuiltinESMExports } from 'node:module';
const { request } = https;
let left = Number(process.env.WRITES);
https.request = (options, ...more) => {
  const sent = request(options, ...more);
  const { method = 'GET', path = '' } = options;
  if (method !== 'GET' && !path.includes('/leases') && !path.includes('dryRun'))
    sent.prependListener('response', () => {
      if (--left > 0) return;
      console.log('killed after ' + method + ' ' + path);
      process.kill(process.pid, 'SIGKILL');
    });
  return sent;
};
syncBuiltinESMExports();
`;

/** Begins one operator after another. Nobody waits for the Lease of one that was killed. */
const CHAIN = `
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import https from 'node:https';
const account = '/var/run/secrets/kubernetes.io/serviceaccount';
const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = process.env;
const path = '/apis/coordination.k8s.io/v1/namespaces/${NAMESPACE}/leases/kintsugi-operator';
const ask = (method, body) => new Promise((resolve, reject) => {
  const authorization = 'Bearer ' + readFileSync(account + '/token', 'utf8').trim();
  const headers = { authorization, 'content-type': 'application/json' };
  const sent = https.request({ host, port, path, method, headers, ca: readFileSync(account + '/ca.crt') });
  sent.on('error', reject);
  sent.on('response', async (answer) => {
    let text = '';
    for await (const part of answer) text += part;
    resolve(JSON.parse(text));
  });
  sent.end(body && JSON.stringify(body));
});
for (let life = 0; ; life++) {
  const WRITES = String(3 + (life % 3));
  const args = ['--import', '/chain/hook.mjs', '/app/dist/src/cli/main.js', 'operator'];
  const child = spawn('node', args, { env: { ...process.env, WRITES }, stdio: 'inherit' });
  const signal = await new Promise((resolve) => child.on('close', (_, name) => resolve(name)));
  console.log('life ' + life + ' ended by ' + signal);
  const lease = await ask('GET');
  await ask('PUT', { ...lease, spec: { ...lease.spec, holderIdentity: '' } });
}
`;

function chain(): string {
  const metadata = { name: KILLED, namespace: NAMESPACE };
  const files = { ...{ apiVersion: 'v1', kind: 'ConfigMap', metadata }, data: {} };
  Object.assign(files.data, { 'hook.mjs': HOOK, 'chain.mjs': CHAIN });
  const container = {
    ...{ name: 'chain', image: IMAGE, imagePullPolicy: 'Never', command: ['node', '/chain/chain.mjs'] },
    volumeMounts: [{ name: 'chain', mountPath: '/chain' }],
  };
  const pod = {
    ...{ apiVersion: 'v1', kind: 'Pod', metadata },
    spec: {
      ...{ serviceAccountName: 'kintsugi-operator', terminationGracePeriodSeconds: 0 },
      ...{ containers: [container], volumes: [{ name: 'chain', configMap: { name: KILLED } }] },
    },
  };
  return `${dump(files)}---\n${dump(pod)}`;
}

const kills = async (): Promise<number> =>
  (await kubectl('logs', KILLED)).split('\n').filter((line) => /ended by SIGKILL/.test(line)).length;

async function scale(kind: 'ScaleOut' | 'ScaleIn', given: object): Promise<ScalerObject['status']> {
  const name = `${JOB}-${kind.toLowerCase()}`;
  const spec = { selector: { name: JOB }, role: 'ps', timeoutSeconds: 600, ...given };
  const metadata = { name, namespace: NAMESPACE };
  await apply(JSON.stringify({ apiVersion: 'kintsugi.dev/v1alpha1', kind, metadata, spec }));
  await kubectl('wait', `${kind}/${name}`, '--for=jsonpath={.status.phase}=ScaleSucceeded', '--timeout=400s');
  return (await get<ScalerObject>(kind, name)).status;
}

/** Every object that bears the name of the job, or is labelled as its own. */
async function objects(): Promise<string[]> {
  const kinds = 'pods,services,statefulsets,poddisruptionbudgets,secrets,persistentvolumeclaims,configmaps';
  const isIts = ({ metadata }: KubeObject) =>
    metadata.labels?.['kintsugi.dev/job'] === JOB || metadata.name.includes(`${JOB}-`);
  const { items } = await get<Items>(kinds);
  return items.filter(isIts).map(({ kind, metadata }) => `${kind}/${metadata.name}`);
}

onKubernetes(() => {
  afterAll(async () => {
    await kubectl('delete', `pod/${KILLED}`, `configmap/${KILLED}`, '--ignore-not-found', '--force');
    await kubectl('scale', OPERATOR, '--replicas=2');
    await bothOperators();
  }, 5 * MINUTES);

  it('a job comes to the same end under operators that are killed every few writes', {
    timeout: 20 * MINUTES,
  }, async () => {
    await kubectl('scale', OPERATOR, '--replicas=0');
    await kubectl('wait', '--for=delete', 'pod', '-l', 'app.kubernetes.io/name=kintsugi-operator');
    await apply(chain());
    const job = load(movieJob(JOB, { few: true, seconds: 1500 })) as ObjectManifest;
    await apply(dump(job));
    await waitFor(JOB, '.status.phase', 'Running', 400);
    await waitFor(JOB, '.status.ps', '4/4', 400);
    expect(await kills()).toBeGreaterThan(2);
    const scaledOut = await scale('ScaleOut', { toAdd: { count: 1 } });
    expect(scaledOut).toMatchObject({ from: 4, to: 5, attempt: 0 });
    await waitFor(JOB, '.status.ps', '5/5', 400);
    const scaledIn = await scale('ScaleIn', { toDelete: { count: 1 } });
    expect(scaledIn).toMatchObject({ from: 5, to: 4, attempt: 0 });
    const told: Told = await listen(JOB);
    await kubectl('delete', 'pod', `${JOB}-worker-0`);
    await until(JOB, ({ status }) => status?.currentWorkers?.includes(`${JOB}-worker-2`) ?? false);
    await until(JOB, ({ status }) => whole(status?.workers));
    const before = await kills();
    await hurry(JOB);
    await waitFor(JOB, '.status.phase', 'Succeeded', 400);
    const books = await booksOf(JOB, await listen(JOB, told), { few: true });
    expect([books.trained, books.setAside]).toEqual([books.expected, 0]);
    while (!(await objects()).includes(`ConfigMap/${JOB}-results`)) await pause(500);
    const { status } = await jobOf(JOB);
    // Each Pod was made once, under the next index.
    expect(status).toMatchObject({ phase: 'Succeeded', nextIndex: { ps: 5, worker: 3 }, restartCount: 0 });
    expect(status!.results).toMatchObject({ samples: 10_000, lost: 0, setAside: 0 });
    const named = (role: string) => pods(JOB, role).then((all) => all.map((one) => one.metadata.name).sort());
    expect(await named('ps')).toEqual([0, 1, 2, 3].map((index) => `${JOB}-ps-${index}`));
    expect(await named('worker')).toEqual([1, 2].map((index) => `${JOB}-worker-${index}`));
    const total = await kills();
    console.log({ kills: total, atTheEnd: total - before });
    await kubectl('delete', 'trainingjob', JOB, '--timeout=120s');
    while ((await objects()).length > 0) await pause(500);
  });
});
