/**
 * A real cluster, by kubectl: the one that KUBECONFIG names. The image is on its nodes already
 * (KINTSUGI_TEST_IMAGE). MovieLens is in a folder of every node (KINTSUGI_TEST_DATA). machines.ts has the
 * commands by which machines come and go.
 */
import { execFile, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { dump } from 'js-yaml';
import { afterAll, afterEach, beforeAll, describe } from 'vitest';
import type { RoleEvent } from '../../src/fleet/local/events.js';
import { finishedRanges, samplesReport } from '../../src/fleet/local/samples.js';
import type { KubeObject, Pod } from '../../src/fleet/operator/objects.js';
import type { TrainingJob } from '../../src/fleet/operator/types.js';
import type { DatasetStatus } from '../../src/library/client/dataset.js';

export const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const { KUBECONFIG, KINTSUGI_TEST_IMAGE } = process.env;
export const IMAGE = KINTSUGI_TEST_IMAGE ?? '';
const DATA = process.env.KINTSUGI_TEST_DATA ?? resolve(ROOT, '../shared/data');
export const NAMESPACE = 'kintsugi';
/** In milliseconds. */
export const MINUTES = 60_000;
export const present = Boolean(KUBECONFIG && IMAGE);
if (!present)
  console.warn(
    'SKIPPED: nothing is tested on Kubernetes, KUBECONFIG and KINTSUGI_TEST_IMAGE name no cluster',
  );

export function run(command: string, args: readonly string[], input?: string): Promise<string> {
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

/** Whether a Pod is ready, and nobody has told it to end. */
export const isServing = ({ metadata, status }: Pod): boolean =>
  metadata.deletionTimestamp === undefined &&
  status?.conditions?.find(({ type }) => type === 'Ready')?.status === 'True';

const deleteJobs = () => kubectl('delete', 'trainingjob', '--all', '--timeout=120s');

/**
 * Tests beside the operator of deploy/install.yaml, or after another beginning. They leave no job behind.
 */
export function onKubernetes(
  tests: () => void,
  { begin = install, end = deleteJobs }: { begin?(): Promise<unknown>; end?(): Promise<unknown> } = {},
): void {
  describe.skipIf(!present)('on Kubernetes', () => {
    beforeAll(begin, 5 * MINUTES);
    afterAll(end, 5 * MINUTES);
    tests();
    // The last one is called first.
    afterEach(({ task }) => (task.result?.state === 'fail' ? tellAll() : undefined), MINUTES);
  });
}

/** Prints the state of the cluster, and how it came to it, after a failure. */
async function tellAll(): Promise<void> {
  const asks = [
    ['get', 'nodes,trainingjobs,scaleouts,scaleins,pods,pdb', '-o', 'wide'],
    ['get', 'trainingjobs', '-o', 'yaml'],
    ['get', 'events', '--sort-by=.lastTimestamp'],
    ['logs', '-l', 'app.kubernetes.io/name=kintsugi-operator', '--tail=100', '--prefix'],
  ];
  for (const ask of asks) console.error(await kubectl(...ask).catch((error: Error) => error.message));
}

/** Reasons of the events of a job. */
export async function storyOf(job: string): Promise<string[]> {
  type Told = { reason: string; involvedObject: { kind: string; name: string } };
  const { items } = await get<{ items: Told[] }>('events');
  const isIts = ({ involvedObject: { kind, name } }: Told) => kind === 'TrainingJob' && name === job;
  return items.filter(isIts).map(({ reason }) => reason);
}

export const INSTALL_YAML = join(ROOT, 'deploy/install.yaml');

/** deploy/install.yaml with the image under test. */
export async function install(): Promise<void> {
  const text = readFileSync(INSTALL_YAML, 'utf8').replaceAll('image: kintsugi:latest', `image: ${IMAGE}`);
  await apply(text.replaceAll('imagePullPolicy: IfNotPresent', 'imagePullPolicy: Never'));
  await givePace();
  await bothOperators();
}

/** One leads, and one stands by. */
export async function bothOperators(): Promise<void> {
  await kubectl('rollout', 'status', 'deploy/kintsugi-operator', '--timeout=180s');
}

/** Volumes of some test clusters belong to root. */
const owning = (name: string, mountPath: string) => ({
  name: `own-${name}`,
  ...{ image: IMAGE, imagePullPolicy: 'Never', command: ['chown', '1000:1000', mountPath] },
  securityContext: { runAsUser: 0, runAsNonRoot: false },
  volumeMounts: [{ name, mountPath }],
});
const OWN_STATE = owning('state', '/var/lib/kintsugi');

/** A volume that all Pods of a job have. */
const SHARED = '/checkpoints';
const sharing = (initContainers: object[]) => ({
  spec: {
    initContainers: [...initContainers, owning('shared', SHARED)],
    containers: [{ name: 'kintsugi', volumeMounts: [{ name: 'shared', mountPath: SHARED }] }],
    volumes: [{ name: 'shared', persistentVolumeClaim: { claimName: 'checkpoints' } }],
  },
});
/** A claim of this name. */
export const claim = (name: string): string =>
  dump({
    ...{ apiVersion: 'v1', kind: 'PersistentVolumeClaim' },
    metadata: { name, namespace: NAMESPACE },
    spec: { accessModes: ['ReadWriteMany'], resources: { requests: { storage: '1Gi' } } },
  });
export const checkpointsClaim = (): string => claim('checkpoints');

/** Once a worker has this file it trains as fast as it can. */
const HURRY = '/tmp/hurry';
/** A source that gives each worker so many samples in a second: what takes long on any machine. */
const PACED = `
import { existsSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { fileSource } from '/app/dist/src/data/file-source.js';
import { openReader } from '/app/dist/src/data/open.js';

export default ({ paths, schema }) => {
  const files = fileSource(openReader(schema), paths);
  const perSecond = Number(process.env.SAMPLES_PER_SECOND);
  const limited = paths.some((path) => path.endsWith(process.env.PACED_FILE));
  async function* read(range) {
    for await (const batch of files.read(range)) {
      const until = performance.now() + (1000 * batch.size) / perSecond;
      while (limited && performance.now() < until && !existsSync('${HURRY}')) await pause(50);
      yield batch;
    }
  }
  return { ...files, read };
};
`;
const PACE = {
  ...{ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'paced', namespace: NAMESPACE } },
  data: { 'source.mjs': PACED },
};
export const givePace = (): Promise<string> => apply(dump(PACE));
const FILES = {
  all: {
    train: 'movielens-100k.train.tsv',
    samples: 90_000,
    more: ['--test', '/data/movielens-100k.test.tsv'],
  },
  few: { train: 'movielens-100k.test.tsv', samples: 10_000, more: ['--batch', '64'] },
};

interface Shape {
  epochs?: number;
  /** An epoch takes two workers at least so long, unless they are told to hurry. */
  seconds?: number;
  /** Not all of MovieLens, and without a test at the end: nobody waits long for what was done to the job. */
  few?: boolean;
  code?: { k: number; r: number };
  ps?: object;
  runPolicy?: object;
  worker?: object;
  /** More flags of its workers. */
  flags?: string[];
  /** Checkpoints go to the claim "checkpoints". */
  checkpoint?: object;
  /** Metadata of the job beside its name. */
  metadata?: object;
  /** PS and workers are on machines whose label "pool" is their role, and tolerate a taint of that key. */
  pools?: boolean;
  /** Fields of the spec. */
  more?: {
    scheduler?: { store?: { etcd?: object; [field: string]: unknown }; foreignState?: string } | undefined;
    [field: string]: unknown;
  };
}

const poolOf = (pool: string) => ({
  nodeSelector: { pool },
  tolerations: [{ key: 'pool', operator: 'Exists', effect: 'NoSchedule' }],
});

/** A job that trains MovieLens, and counts every push. */
export function movieJob(
  name: string,
  {
    epochs = 1,
    seconds,
    few,
    code = { k: 2, r: 1 },
    ps = {},
    runPolicy,
    worker,
    flags = [],
    checkpoint,
    metadata = {},
    pools,
    more,
  }: Shape = {},
): string {
  const files = FILES[few ? 'few' : 'all'];
  const data = [
    { name: 'data', hostPath: { path: DATA } },
    { name: 'paced', configMap: { name: 'paced' } },
  ];
  // A job that is kept in etcd has no volume for its state.
  const state = more?.scheduler?.store?.etcd ? [] : [OWN_STATE];
  const rate = seconds === undefined ? 'Infinity' : String(Math.ceil(files.samples / 2 / seconds));
  const mounted = [
    {
      name: 'kintsugi',
      env: [
        { name: 'SAMPLES_PER_SECOND', value: rate },
        { name: 'PACED_FILE', value: files.train },
      ],
      volumeMounts: [
        { name: 'data', mountPath: '/data' },
        { name: 'paced', mountPath: '/paced' },
      ],
    },
  ];
  return dump({
    ...{ apiVersion: 'kintsugi.dev/v1alpha1', kind: 'TrainingJob' },
    metadata: { name, namespace: NAMESPACE, ...metadata },
    spec: {
      ...{ image: IMAGE, imagePullPolicy: 'Never', code },
      ...(checkpoint ? { checkpoint: { url: `${SHARED}/${name}`, ...checkpoint } } : {}),
      replicaSpecs: {
        scheduler: {
          template: checkpoint ? sharing(state) : { spec: { initContainers: state } },
        },
        ps: {
          ...(checkpoint ? { template: sharing([]) } : pools ? { template: { spec: poolOf('ps') } } : {}),
          ...ps,
        },
        worker: {
          replicas: 2,
          args: [
            ...['--data', `/data/${files.train}`, ...files.more, '--audit', '--epochs', String(epochs)],
            ...(seconds === undefined ? [] : ['--source', '/paced/source.mjs']),
            ...flags,
          ],
          template: { spec: { containers: mounted, volumes: data, ...(pools ? poolOf('worker') : {}) } },
          ...worker,
        },
      },
      runPolicy: { cleanPodPolicy: 'None', ...runPolicy },
      ...more,
    },
  });
}

export const waitFor = (job: string, path: string, value: string, seconds = 240): Promise<string> =>
  kubectl('wait', `trainingjob/${job}`, `--for=jsonpath={${path}}=${value}`, `--timeout=${seconds}s`);

export const jobOf = (name: string): Promise<TrainingJob> => get<TrainingJob>('trainingjob', name);

/** Whether as many are ready as there are to be, for example "4/4". */
export const whole = (counts: string | undefined): boolean => /^(\d+)\/\1$/.test(counts ?? '');

/** Lets a job end: all was done to it, so its workers end as soon as they can. */
export async function hurry(job: string): Promise<void> {
  await until(job, ({ status }) => whole(status?.workers));
  for (const told of await touchHurry(job)) if (told instanceof Error) throw told;
}

/** The same for those workers that are there. */
export async function touchHurry(job: string): Promise<(string | Error)[]> {
  const serving = (await pods(job, 'worker')).filter(isServing);
  const touch = ['-c', 'kintsugi', '--', 'touch', HURRY];
  return Promise.all(
    serving.map(({ metadata }) => kubectl('exec', metadata.name, ...touch).catch((error: Error) => error)),
  );
}

export const patch = (job: string, spec: object): Promise<string> =>
  kubectl('patch', 'trainingjob', job, '--type=merge', '-p', JSON.stringify({ spec }));

/** Resolves when `so` holds for the job. */
export async function until(name: string, so: (job: TrainingJob) => boolean): Promise<TrainingJob> {
  for (;;) {
    const job = await jobOf(name);
    if (so(job)) return job;
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}

/** Resolves with names of PS that were not there before, when there are so many. */
export async function newPs(job: string, before: readonly Pod[], count = 1): Promise<string[]> {
  const known = new Set(before.map(({ metadata }) => metadata.name));
  const fresh = ({ status }: TrainingJob) => status?.currentPs?.filter((name) => !known.has(name)) ?? [];
  return fresh(await until(job, (one) => fresh(one).length >= count));
}

export type Lease = KubeObject & { spec: { holderIdentity: string } };
export const leader = async (): Promise<string> =>
  (await get<Lease>('lease', 'kintsugi-operator')).spec.holderIdentity.split('_')[0]!;

/** The operator that leads gets no time to say goodbye. Resolves when another one leads. */
export async function killOperator(): Promise<void> {
  const before = await leader();
  await kubectl('delete', 'pod', before, '--grace-period=0', '--force');
  for (;;) {
    const now = await leader();
    if (now !== '' && now !== before) return;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

/** Notes every value that is written there from now on. `stop` resolves with them, each once. */
export function watched(job: string, path: string): { stop(): Promise<string[]> } {
  const what = ['get', 'trainingjob', job, '--watch', '-o', `jsonpath={${path}}{"\\n"}`];
  const child = spawn('kubectl', ['-n', NAMESPACE, ...what]);
  let text = '';
  child.stdout.on('data', (part: Buffer) => {
    text += part.toString('utf8');
  });
  const closed = new Promise((resolve) => child.on('close', resolve));
  return {
    async stop() {
      child.kill();
      await closed;
      return [...new Set(text.split('\n').filter((line) => line !== ''))];
    },
  };
}

/** Follows everything that the present workers tell until they end. */
export async function follow(job: string, told: Told): Promise<() => Promise<void>> {
  const ends = (await pods(job, 'worker')).map(({ metadata: { name } }) => {
    const child = spawn('kubectl', ['-n', NAMESPACE, 'logs', '-f', name, '-c', 'kintsugi']);
    let text = '';
    child.stdout.on('data', (part: Buffer) => {
      text += part.toString('utf8');
    });
    return new Promise<void>((resolve) =>
      child.on('close', () => {
        told.set(name, eventsIn(text));
        resolve();
      }),
    );
  });
  return () => Promise.all(ends).then(() => {});
}

function eventsIn(text: string): RoleEvent[] {
  return text
    .split('\n')
    .filter((line) => line.startsWith('{') && line.endsWith('}'))
    .map((line) => JSON.parse(line) as RoleEvent);
}

/** Nobody answers for a machine that has vanished. */
async function logOf(pod: string): Promise<RoleEvent[]> {
  return eventsIn(await kubectl('logs', pod, '-c', 'kintsugi', '--request-timeout=20s'));
}

/** Asks the job itself: its data set, and what its audit rows say of the pushes that workers told of. */
const ASK = `
import { connect, checkPushes } from '/app/dist/src/index.js';
import { Dataset } from '/app/dist/src/library/client/dataset.js';
let text = '';
for await (const part of process.stdin) text += part;
const { KINTSUGI_TOKEN: token, KINTSUGI_TLS_CA: caFile, KINTSUGI_TLS_NAME: serverName } = process.env;
const client = await connect('127.0.0.1:7077', { token, ...(caFile ? { tls: { caFile, serverName } } : {}) });
const status = await Dataset.status(client, 'train');
const audit = await checkPushes(client, JSON.parse(text));
console.log(JSON.stringify({ status, audit }));
await client.close();
process.exit(0);
`;

/** Reports of workers while they trained, gathered before their Pods may be gone. */
export type Told = Map<string, RoleEvent[]>;
export async function listen(job: string, told: Told = new Map()): Promise<Told> {
  for (const { metadata } of await pods(job, 'worker'))
    told.set(metadata.name, await logOf(metadata.name).catch(() => told.get(metadata.name) ?? []));
  return told;
}

export async function booksOf(job: string, told: Told, { epochs = 1, few }: Shape = {}) {
  const events = [...told.values()].flat();
  const finished = finishedRanges(events);
  const counts = JSON.stringify(finished.map(({ client, counts: each }) => ({ client, counts: each })));
  const schedulers = (await pods(job, 'scheduler')).filter(isServing);
  const name = schedulers[0]?.metadata.name ?? 'no scheduler';
  const args = ['-n', NAMESPACE, 'exec', '-i', name, '-c', 'kintsugi', '--', 'node'];
  const out = await run('kubectl', [...args, '--input-type=module', '-e', ASK], counts);
  const { status, audit } = JSON.parse(out.trim().split('\n').at(-1)!) as {
    status: DatasetStatus;
    audit: { acked: number; lost: number | null; duplicated: number | null };
  };
  const text = readFileSync(join(DATA, FILES[few ? 'few' : 'all'].train));
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
