/**
 * Many jobs, each edited while no operator runs: the next one brings all of them to what they are to be.
 * `KINTSUGI_JOBS=1000` for the goal of docs/kubernetes.md.
 */
import { expect, it } from 'vitest';
import type { KubeObject, ObjectManifest, Pod } from '../../../src/fleet/operator/objects.js';
import { type JobHandle, Operator } from '../../../src/fleet/operator/operator.js';
import { JOB_LABEL, ROLE_LABEL } from '../../../src/fleet/operator/reconcile/names.js';
import type { TrainingJob } from '../../../src/fleet/operator/types.js';
import { MemoryServer, randomOf } from './server.js';
import { jobOf, lived, nodeOf, reportOf } from './support.js';

const JOBS = Number(process.env.KINTSUGI_JOBS ?? 60);
const QUIET = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

const server = new MemoryServer(randomOf(1));
server.put('Node', nodeOf('n1'));
/** Pods of each job by role. */
const pods = new Map<string, Map<string, Pod>>();
const podsOf = (job: string) => [...(pods.get(job)?.values() ?? [])];
const settled = new Set<string>();
let wanted = 3;
let done: (() => void) | undefined;

server.onChange = (kind, object, gone) => {
  const { name, labels } = object.metadata;
  const job = labels?.[JOB_LABEL] ?? '';
  if (kind === 'Pod') {
    const of = pods.get(job) ?? new Map<string, Pod>();
    pods.set(job, of);
    if (gone) of.delete(name);
    else of.set(name, object as Pod);
    if (!gone && !(object as Pod).status?.phase)
      setImmediate(() => {
        const { spec, status } = lived(object);
        server.put('Pod', { ...object, spec, status: { ...status, podIP: '10.0.0.1' } } as Pod);
      });
  }
  if (kind === 'StatefulSet' && !gone) {
    const metadata = {
      name: `${name}-0`,
      namespace: 'ml',
      labels: { [JOB_LABEL]: job, [ROLE_LABEL]: 'scheduler' },
      ownerReferences: [{ apiVersion: 'apps/v1', kind, name, uid: 'set' }],
    };
    if (!pods.get(job)?.has(metadata.name))
      server.put('Pod', { apiVersion: 'v1', kind: 'Pod', metadata, spec: {} } as unknown as KubeObject);
  }
  if (kind === 'TrainingJob') {
    const { status } = object as TrainingJob;
    if (status?.sizePs === wanted && status.ps === `${wanted}/${wanted}` && status.phase === 'Running')
      settled.add(name);
    else settled.delete(name);
    if (settled.size === JOBS) done?.();
  }
};

function begin(): Operator {
  return new Operator({
    ...{ api: server, namespace: 'ml', ownNamespace: 'ml', log: QUIET as never },
    link: (options): JobHandle => ({
      options,
      get report() {
        const job = options.run;
        return reportOf(podsOf(job).filter(({ status }) => status?.phase === 'Running'));
      },
      ...{
        planned: undefined,
        tellPlan: () => {},
        told: undefined,
        gather: () => {},
        heardAt: undefined,
        looked: true,
      },
      ...{ asked: [], saved: undefined, ask: () => {}, save: () => {}, close: async () => {} },
      ...{ observe: () => Promise.reject(new Error('not here')), rebalance: async () => {}, tell: () => {} },
    }),
  });
}

const all = () =>
  new Promise<void>((resolve) => {
    done = resolve;
    if (settled.size === JOBS) resolve();
  });

it(`${JOBS} jobs come to what they are to be after a restart of the operator`, {
  timeout: Math.max(120_000, JOBS * 1000),
}, async () => {
  const first = begin();
  await first.start();
  for (let index = 0; index < JOBS; index++) {
    const name = `job-${index}`;
    const worker = { replicas: 1, args: ['--run', name] };
    server.put('TrainingJob', jobOf({ ps: { replicas: 3 }, worker }, name));
  }
  await all();
  await first.stop();
  wanted = 4;
  settled.clear();
  for (const job of server.of<TrainingJob>('TrainingJob')) {
    const edited = structuredClone(job);
    edited.spec.replicaSpecs.ps.replicas = 4;
    server.put('TrainingJob', edited);
  }
  server.requests.clear();
  const began = performance.now();
  const second = begin();
  await second.start();
  await all();
  const seconds = (performance.now() - began) / 1000;
  console.log(`${JOBS} jobs: ${seconds.toFixed(1)} s, ${JSON.stringify([...server.requests])}`);
  await second.stop();
  for (const { metadata } of server.of<ObjectManifest>('TrainingJob'))
    expect(podsOf(metadata.name).filter((pod) => pod.metadata.labels?.[ROLE_LABEL] === 'ps')).toHaveLength(4);
});
