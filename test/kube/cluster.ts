/**
 * A real cluster, by kubectl: whatever KUBECONFIG names. The image is on its nodes already
 * (KINTSUGI_TEST_IMAGE). MovieLens is in a folder of every node (KINTSUGI_TEST_DATA). What makes a machine
 * vanish is a command (KINTSUGI_TEST_LOSE), which gets the name of the node.
 */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { dump } from 'js-yaml';
import type { DatasetStatus } from '../../src/client/dataset.js';
import type { RoleEvent } from '../../src/local/events.js';
import { finishedRanges, samplesReport } from '../../src/local/samples.js';
import type { KubeObject, Pod } from '../../src/operator/objects.js';
import type { TrainingJob } from '../../src/operator/types.js';

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const { KUBECONFIG, KINTSUGI_TEST_IMAGE: IMAGE, KINTSUGI_TEST_LOSE } = process.env;
const DATA = process.env.KINTSUGI_TEST_DATA ?? resolve(ROOT, '../shared/data');
export const NAMESPACE = 'kintsugi';
export const present = Boolean(KUBECONFIG && IMAGE);
export const canLose = present && Boolean(KINTSUGI_TEST_LOSE);
if (!present)
  console.warn(
    'SKIPPED: nothing is tested on Kubernetes, KUBECONFIG and KINTSUGI_TEST_IMAGE name no cluster',
  );
else if (!canLose) console.warn('SKIPPED: no node is lost, KINTSUGI_TEST_LOSE names no command');

function run(command: string, args: readonly string[], input?: string): Promise<string> {
  return new Promise((done, failed) => {
    const child = execFile(command, args, { maxBuffer: 1 << 28 }, (error, out, err) =>
      error ? failed(new Error(`${command} ${args.join(' ')}: ${err || error.message}`)) : done(out),
    );
    child.stdin?.end(input ?? '');
  });
}

export const kubectl = (...args: string[]): Promise<string> => run('kubectl', ['-n', NAMESPACE, ...args]);
export const apply = (text: string): Promise<string> => run('kubectl', ['apply', '-f', '-'], text);
export const refused = (text: string): Promise<string> =>
  apply(text).then(
    () => 'accepted',
    (error: Error) => error.message,
  );

export async function get<T>(what: string, ...more: string[]): Promise<T> {
  return JSON.parse(await kubectl('get', what, ...more, '-o', 'json')) as T;
}
export const pods = async (job: string, role?: string): Promise<Pod[]> => {
  const labels = `kintsugi.dev/job=${job}${role ? `,kintsugi.dev/role=${role}` : ''}`;
  return (await get<{ items: Pod[] }>('pods', '-l', labels)).items;
};

export async function lose(node: string): Promise<void> {
  const [command = '', ...args] = KINTSUGI_TEST_LOSE!.split(' ');
  await run(command, [...args, node]);
}

/** deploy/install.yaml with the image under test. */
export async function install(): Promise<void> {
  const text = readFileSync(join(ROOT, 'deploy/install.yaml'), 'utf8');
  const image = `image: ${IMAGE}\n          imagePullPolicy: Never`;
  await apply(text.replaceAll('image: kintsugi:latest', image));
  await kubectl('rollout', 'status', 'deploy/kintsugi-operator', '--timeout=180s');
}

/** Volumes of some test clusters belong to root. */
const OWN_STATE = {
  name: 'own',
  ...{ image: IMAGE, imagePullPolicy: 'Never', command: ['chown', '1000:1000', '/var/lib/kintsugi'] },
  securityContext: { runAsUser: 0, runAsNonRoot: false },
  volumeMounts: [{ name: 'state', mountPath: '/var/lib/kintsugi' }],
};

interface Shape {
  epochs?: number;
  code?: { k: number; r: number };
  ps?: object;
  runPolicy?: object;
}

/** A job that trains MovieLens, and counts every push. */
export function movieJob(
  name: string,
  { epochs = 1, code = { k: 2, r: 1 }, ps = {}, runPolicy }: Shape = {},
): string {
  const files = { train: 'movielens-100k.train.tsv', test: 'movielens-100k.test.tsv' };
  const data = [{ name: 'data', hostPath: { path: DATA } }];
  const mounted = [{ name: 'kintsugi', volumeMounts: [{ name: 'data', mountPath: '/data' }] }];
  return dump({
    ...{ apiVersion: 'kintsugi.dev/v1alpha1', kind: 'TrainingJob', metadata: { name, namespace: NAMESPACE } },
    spec: {
      ...{ image: IMAGE, imagePullPolicy: 'Never', code },
      replicaSpecs: {
        scheduler: { template: { spec: { initContainers: [OWN_STATE] } } },
        ps,
        worker: {
          replicas: 2,
          args: [
            ...['--data', `/data/${files.train}`, '--test', `/data/${files.test}`, '--audit'],
            ...['--epochs', String(epochs)],
          ],
          template: { spec: { containers: mounted, volumes: data } },
        },
      },
      runPolicy: { cleanPodPolicy: 'None', ...runPolicy },
    },
  });
}

export const waitFor = (job: string, path: string, value: string, seconds = 240): Promise<string> =>
  kubectl('wait', `trainingjob/${job}`, `--for=jsonpath={${path}}=${value}`, `--timeout=${seconds}s`);

export const jobOf = (name: string): Promise<TrainingJob> => get<TrainingJob>('trainingjob', name);

async function logOf(pod: string): Promise<RoleEvent[]> {
  const text = await kubectl('logs', pod, '-c', 'kintsugi');
  return text
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as RoleEvent);
}

/** Asks the job itself: its data set, and what its audit rows say of the pushes that workers told of. */
const ASK = `
import { connect, checkPushes } from '/app/dist/src/index.js';
import { Dataset } from '/app/dist/src/client/dataset.js';
let text = '';
for await (const part of process.stdin) text += part;
const client = await connect('127.0.0.1:7077', { token: process.env.KINTSUGI_TOKEN });
const status = await Dataset.status(client, 'train');
const audit = await checkPushes(client, JSON.parse(text));
console.log(JSON.stringify({ status, audit }));
await client.close();
process.exit(0);
`;

/** What workers told while they trained, gathered before their Pods may be gone. */
export type Told = Map<string, RoleEvent[]>;
export async function listen(job: string, told: Told = new Map()): Promise<Told> {
  for (const { metadata } of await pods(job, 'worker'))
    told.set(metadata.name, await logOf(metadata.name).catch(() => told.get(metadata.name) ?? []));
  return told;
}

export async function booksOf(job: string, told: Told, epochs = 1) {
  const events = [...told.values()].flat();
  const finished = finishedRanges(events);
  const counts = JSON.stringify(finished.map(({ client, counts: each }) => ({ client, counts: each })));
  const scheduler = `${job}-scheduler-0`;
  const args = ['-n', NAMESPACE, 'exec', '-i', scheduler, '-c', 'kintsugi', '--', 'node'];
  const out = await run('kubectl', [...args, '--input-type=module', '-e', ASK], counts);
  const { status, audit } = JSON.parse(out.trim().split('\n').at(-1)!) as {
    status: DatasetStatus;
    audit: { acked: number; lost: number | null; duplicated: number | null };
  };
  const text = readFileSync(join(DATA, 'movielens-100k.train.tsv'));
  let inFiles = 0;
  for (const byte of text) if (byte === 10) inFiles++;
  return samplesReport({ inFiles, epochs, status, told: finished.length, pushes: audit });
}

export const aucs = (told: Told): number[] =>
  [...told.values()]
    .flat()
    .filter(({ event }) => event === 'worker.test')
    .map((event) => Number(event.auc));

export type Items = { items: KubeObject[] };
