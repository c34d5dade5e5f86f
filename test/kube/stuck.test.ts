/** Jobs that cannot be, and jobs that wait for something: each says why. */
import { load } from 'js-yaml';
import { expect, it } from 'vitest';
import type { KubeObject, Pod, PodSpec } from '../../src/fleet/operator/objects.js';
import { mergePodSpec } from '../../src/fleet/operator/reconcile/merge.js';
import type { TrainingJob } from '../../src/fleet/operator/types.js';
import { MERGES } from '../fleet/operator/merges.js';
import {
  apply,
  get,
  IMAGE,
  jobOf,
  kubectl,
  MINUTES,
  movieJob,
  NAMESPACE,
  onKubernetes,
  pods,
  refused,
  run,
  until,
  waitFor,
} from './cluster.js';

/** True: only what takes little time. */
const SHORT = process.env.SHORT !== undefined;

type Job = TrainingJob & { spec: { [field: string]: unknown } };
/** A job with a change to it. */
function changed(name: string, change: (job: Job) => void): string {
  const job = load(movieJob(name, { few: true })) as Job;
  change(job);
  return JSON.stringify(job);
}
const stuckOf = ({ status }: TrainingJob) => status?.conditions?.find(({ type }) => type === 'Stuck');
/** Resolves with the message when the job is stuck for this reason. */
const stuck = async (name: string, reason: string): Promise<string> => {
  await waitFor(name, '.status.reason', reason, 60);
  const job = await jobOf(name);
  expect(stuckOf(job)).toMatchObject({ status: 'True', reason });
  return stuckOf(job)!.message!;
};
const patchJson = (name: string, ...operations: object[]): Promise<string> =>
  kubectl('patch', 'trainingjob', name, '--type=json', '-p', JSON.stringify(operations));
type Counted = KubeObject & { reason: string; count: number; involvedObject: { name: string } };
/** Resolves with the counts of the events about refusals of a job, when one of them is so. */
async function counted(job: string, so: (count: number) => boolean): Promise<number[]> {
  for (;;) {
    const { items } = await get<{ items: Counted[] }>('events');
    const its = items.filter((one) => one.reason === 'Refused' && one.involvedObject.name === job);
    const counts = its.map(({ count }) => count);
    if (counts.some(so)) return counts;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
const quota = (most: number) =>
  JSON.stringify({
    ...{ apiVersion: 'v1', kind: 'ResourceQuota', metadata: { name: 'few', namespace: NAMESPACE } },
    spec: { hard: { pods: String(most) } },
  });

/** Resolves with the number of Pods when those of all jobs are gone. */
async function onlyOperators(): Promise<number> {
  await kubectl('delete', 'trainingjob', '--all', '--timeout=60s');
  await kubectl('wait', '--for=delete', 'pods', '-l', 'kintsugi.dev/job', '--timeout=60s');
  return (await get<{ items: Pod[] }>('pods')).items.length;
}

/** Lists of objects in an order that does not depend on who has merged them. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value))
    return value.map(sorted).sort((a, b) => JSON.stringify(a).localeCompare(JSON.stringify(b)));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => a.localeCompare(b))
      .map(([key, one]) => [key, sorted(one)]),
  );
}

onKubernetes(() => {
  it('templates are merged as kubectl merges a strategic patch', { timeout: MINUTES }, async () => {
    for (const { what, base, given, patch } of MERGES) {
      const whole = { containers: [{ name: 'kintsugi', image: 'k:1' }], ...base } as PodSpec;
      const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'p' }, spec: whole };
      const args = ['patch', '--local', '--type=strategic', '-o', 'json', '-f', '-', '-p'];
      const answer = await run(
        'kubectl',
        [...args, JSON.stringify({ spec: patch ?? given })],
        JSON.stringify(pod),
      );
      const theirs = (JSON.parse(answer) as Pod).spec;
      const ours = mergePodSpec(whole, given as PodSpec);
      for (const field of Object.keys(ours))
        expect([what, field, sorted(theirs[field])]).toEqual([what, field, sorted(ours[field])]);
    }
  });

  it('what can never be is refused when it is applied, and nothing is made', async () => {
    const named = (name: string) => changed(name, () => {});
    expect(await refused(named('1st'))).toContain('begins with a letter');
    expect(await refused(named('my.movies'))).toContain('begins with a letter');
    expect(await refused(named('m'.repeat(43)))).toContain('at most 42 characters');
    const place = (url: string) =>
      changed('place', ({ spec }) => {
        spec.checkpoint = { url } as TrainingJob['spec']['checkpoint'];
      });
    for (const url of ['checkpoints', 's3:/bucket/x', 's3://', 'gs://bucket/x'])
      expect(await refused(place(url))).toContain('a place is an absolute path of a directory');
    const store = (given: object) =>
      changed('sized', ({ spec }) => Object.assign(spec, { scheduler: { store: given } }));
    for (const size of ['0', '1 Gi', '-1Gi', '1GB', 'much'])
      expect(await refused(store({ size }))).toContain('spec.scheduler.store.size');
    expect(await refused(store({ etcd: { url: 'http://etcd:2379/x' } }))).toContain(
      'etcd is etcd://HOST:2379',
    );
    const typed = changed('typed', ({ spec }) => {
      spec.replicaSpecs.ps.template = { spec: { containers: {} } } as never;
    });
    expect(await refused(typed)).toContain('spec.replicaSpecs.ps.template.spec.containers');
    expect((await get<{ items: KubeObject[] }>('trainingjobs,services,statefulsets')).items).toEqual([]);
  });

  it.skipIf(SHORT)('the longest name is one with which all is made', { timeout: 3 * MINUTES }, async () => {
    const name = `${'m'.repeat(41)}x`;
    await apply(changed(name, () => {}));
    await kubectl('wait', '--for=create', `pod/${name}-scheduler-0`, '--timeout=60s');
    await kubectl('wait', '--for=create', `pod/${name}-worker-1`, '--timeout=60s');
    await kubectl('delete', 'trainingjob', name);
  });

  it('a template keeps what it does not name, as restricted Pods need it', {
    timeout: 3 * MINUTES,
  }, async () => {
    const level = (value: string) =>
      run('kubectl', ['label', 'namespace', NAMESPACE, `pod-security.kubernetes.io/enforce${value}`]);
    await level('=restricted');
    try {
      const job = changed('strict', ({ spec }) => {
        const { ps, worker } = spec.replicaSpecs;
        const container = { name: 'kintsugi', securityContext: { readOnlyRootFilesystem: false } };
        ps.template = { spec: { securityContext: { fsGroup: 2000 }, containers: [container] } };
        // Workers without data would end, and the job with them.
        worker.template = { spec: { nodeSelector: { disk: 'none' } } } as never;
      });
      await apply(job);
      await kubectl('wait', '--for=create', 'pod/strict-ps-3', '--timeout=60s');
      const [ps] = await pods('strict', 'ps');
      expect(ps!.spec.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: 1000, fsGroup: 2000 });
      // An init container of the scheduler is root, which only the controller of StatefulSets would say.
      const message = await stuck('strict', 'Admission');
      expect(message).toMatch(/^Pod strict-scheduler-0: .*violates PodSecurity "restricted/);
    } finally {
      await level('-');
      await kubectl('delete', 'trainingjob', 'strict', '--ignore-not-found');
    }
  });

  it.skipIf(SHORT)(
    'a quota: nothing is written again and again, and the job goes on when there is room',
    {
      timeout: 4 * MINUTES,
    },
    async () => {
      const others = await onlyOperators();
      await apply(quota(others + 2));
      try {
        await apply(changed('tight', () => {}));
        expect(await stuck('tight', 'Quota')).toContain('exceeded quota: few');
        const line = await kubectl('get', 'trainingjob', 'tight', '--no-headers');
        expect(line).toMatch(/^tight +Pending +Quota +/);
        // An event that is written again has been refused for 30 s at least, so there were several passes.
        const counts = await counted('tight', (count) => count > 10);
        expect(counts.length).toBeLessThanOrEqual(4);
        expect((await jobOf('tight')).status!.nextIndex).toEqual({ ps: 4, worker: 2 });
      } finally {
        await kubectl('delete', 'resourcequota', 'few');
      }
      await waitFor('tight', '.status.phase', 'Running');
      const made = (await pods('tight', 'ps')).map(({ metadata: { name } }) => name).sort();
      expect(made).toEqual(['tight-ps-0', 'tight-ps-1', 'tight-ps-2', 'tight-ps-3']);
      expect((await jobOf('tight')).status!.reason).toBeUndefined();
      await kubectl('delete', 'trainingjob', 'tight');
    },
  );

  it('a field that is misspelt, a machine, an image, a Secret: each has its reason', {
    timeout: 4 * MINUTES,
  }, async () => {
    const roleWith = (name: string, role: 'scheduler' | 'ps', spec: object) =>
      changed(name, (job) => {
        job.spec.replicaSpecs[role].template = { spec } as never;
      });
    await apply(roleWith('misspelt', 'ps', { volums: [] }));
    await apply(roleWith('misspelt-too', 'scheduler', { volums: [] }));
    await apply(roleWith('ordered', 'ps', { securityContext: { $patch: 'delete' } }));
    await apply(roleWith('nowhere', 'ps', { nodeSelector: { disk: 'none' } }));
    await apply(changed('pictureless', ({ spec }) => Object.assign(spec, { image: 'localhost/none:1' })));
    await apply(changed('keyless', ({ spec }) => Object.assign(spec, { auth: { secretName: 'none' } })));
    await apply(changed('plain', ({ spec }) => Object.assign(spec, { tls: { secretName: 'none-tls' } })));
    expect(await stuck('misspelt', 'Refused')).toContain('unknown field "spec.volums"');
    expect(await stuck('misspelt-too', 'Refused')).toMatch(/^StatefulSet misspelt-too-scheduler: .*volums/);
    expect(await stuck('ordered', 'BadTemplate')).toContain(
      '"replicaSpecs.ps.template.spec.securityContext.$patch"',
    );
    expect(await stuck('nowhere', 'Unschedulable')).toContain("didn't match Pod's node affinity");
    expect(await stuck('pictureless', 'Image')).toContain('localhost/none:1');
    expect(await stuck('keyless', 'Secret')).toContain('secret "none" not found');
    expect(await stuck('plain', 'Secret')).toContain('secret "none-tls" not found');
    await kubectl('delete', 'trainingjob', '--all');
  });

  it.skipIf(SHORT)(
    'a volume that is not writable: the job waits, and goes on when it is',
    {
      timeout: 5 * MINUTES,
    },
    async () => {
      const owned = load(movieJob('closed', { few: true })) as Job;
      const template = structuredClone(owned.spec.replicaSpecs.scheduler.template);
      // Whatever the volumes of this cluster are, nobody but root may write here.
      const close = {
        ...{ name: 'close', image: IMAGE, imagePullPolicy: 'Never' },
        command: ['sh', '-c', 'chown 0:0 /var/lib/kintsugi && chmod 755 /var/lib/kintsugi'],
        securityContext: { runAsUser: 0, runAsNonRoot: false },
        volumeMounts: [{ name: 'state', mountPath: '/var/lib/kintsugi' }],
      };
      owned.spec.replicaSpecs.scheduler.template = { spec: { initContainers: [close] } };
      await apply(JSON.stringify(owned));
      // Before that its claim may wait for a volume, which is another reason of the same name.
      const said = /^closed-scheduler-0: .*STORE_FAILED: .*EACCES/;
      const job = await until('closed', (one) => said.test(stuckOf(one)?.message ?? ''));
      expect(stuckOf(job)).toMatchObject({ status: 'True', reason: 'Volume' });
      expect((await jobOf('closed')).status!.phase).toBe('Pending');
      await patchJson('closed', {
        op: 'replace',
        path: '/spec/replicaSpecs/scheduler/template',
        value: template,
      });
      // The Pod never was ready, and is replaced all the same.
      await waitFor('closed', '.status.phase', 'Running');
      expect((await jobOf('closed')).status!.reason).toBeUndefined();
      await kubectl('delete', 'trainingjob', 'closed');
    },
  );
});
