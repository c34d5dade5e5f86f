/** Operators on a real cluster that are killed by SIGKILL when a write is answered, before they see that. */
import { dump } from 'js-yaml';
import { apply, bothOperators, IMAGE, kubectl, NAMESPACE } from './cluster.js';

const OPERATOR = 'deploy/kintsugi-operator';
const KILLED = 'killed-operators';

/**
 * Runs in the process of each operator. Renewals of the Lease, and what only asks, are no writes. ASKS: it
 * also ends a moment after it has asked the job for a change, before it hears what became of that.
 */
const HOOK = `
import https from 'node:https';
import { syncBuiltinESMExports } from 'node:module';
const { request } = https;
const { WRITES, MEANT, ASKS } = process.env;
const meant = new RegExp(MEANT);
let left = Number(WRITES);
const write = process.stderr.write.bind(process.stderr);
process.stderr.write = (text, ...more) => {
  if (ASKS && String(text).includes('operator.ask'))
    setTimeout(() => {
      console.log('killed after it asked the job');
      process.kill(process.pid, 'SIGKILL');
    }, Number(ASKS));
  return write(text, ...more);
};
https.request = (options, ...more) => {
  const sent = request(options, ...more);
  const { method = 'GET', path = '' } = options;
  const isWrite = method !== 'GET' && !path.includes('/leases') && !path.includes('dryRun');
  if (isWrite && meant.test(method + ' ' + path))
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
const lives = process.env.LIVES.split(' ');
for (let life = 0; ; life++) {
  const [WRITES, ASKS = ''] = lives[life % lives.length].split('+');
  const args = ['--import', '/chain/hook.mjs', '/app/dist/src/cli/main.js', 'operator'];
  const child = spawn('node', args, { env: { ...process.env, WRITES, ASKS }, stdio: 'inherit' });
  const signal = await new Promise((resolve) => child.on('close', (_, name) => resolve(name)));
  console.log('life ' + life + ' ended by ' + signal);
  const lease = await ask('GET');
  await ask('PUT', { ...lease, spec: { ...lease.spec, holderIdentity: '' } });
}
`;

/**
 * Has operators one after the other, each of which is killed, in place of those of the deployment. `lives`:
 * after how many writes each, again and again; `2+5`: or 5 ms after it has asked the job. `meant`: writes
 * that count, by method and path.
 */
export async function mortals(lives: readonly string[], meant = '.'): Promise<void> {
  await kubectl('scale', OPERATOR, '--replicas=0');
  await kubectl('wait', '--for=delete', 'pod', '-l', 'app.kubernetes.io/name=kintsugi-operator');
  await apply(chain(lives, meant));
}

/** The operators of the deployment are back. */
export async function immortals(): Promise<void> {
  await kubectl('delete', `pod/${KILLED}`, `configmap/${KILLED}`, '--ignore-not-found', '--force');
  await kubectl('scale', OPERATOR, '--replicas=2');
  await bothOperators();
}

function chain(lives: readonly string[], meant: string): string {
  const env = [
    { name: 'LIVES', value: lives.join(' ') },
    { name: 'MEANT', value: meant },
  ];
  const metadata = { name: KILLED, namespace: NAMESPACE };
  const files = { ...{ apiVersion: 'v1', kind: 'ConfigMap', metadata }, data: {} };
  Object.assign(files.data, { 'hook.mjs': HOOK, 'chain.mjs': CHAIN });
  const container = {
    ...{ name: 'chain', image: IMAGE, imagePullPolicy: 'Never', command: ['node', '/chain/chain.mjs'], env },
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

/** Operators that were killed. */
export const kills = async (): Promise<number> =>
  (await kubectl('logs', KILLED)).split('\n').filter((line) => /ended by SIGKILL/.test(line)).length;
