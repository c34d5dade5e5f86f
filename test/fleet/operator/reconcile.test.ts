/** Passes over a job, from made-up observations. */
import { describe, expect, it } from 'vitest';
import type { ObjectManifest, Pod } from '../../../src/fleet/operator/objects.js';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { memoryBudget } from '../../../src/fleet/operator/reconcile/pods.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import {
  actionsOf,
  created,
  deleted,
  jobOf,
  lived,
  names,
  nodeOf,
  observedOf,
  reportOf,
  running,
  START,
  schedulerPod,
  step,
} from './support.js';

const statusOf = (observed: ObservedJob) => observed.job.status!;
const withPod = (observed: ObservedJob, name: string, change: (pod: Pod) => Pod): ObservedJob => ({
  ...observed,
  pods: observed.pods.map((pod) => (pod.metadata.name === name ? change(pod) : pod)),
});
/** Passes until nothing is to be done any more. */
function settled(observed: ObservedJob, limit = 8): ObservedJob {
  const actions = reconcile(observed).filter(({ kind }) => kind !== 'wake');
  if (actions.length === 0) return observed;
  if (limit === 0) throw new Error(`it does not settle: ${JSON.stringify(actions)}`);
  return settled(step(observed, actions), limit - 1);
}

describe('a new job', () => {
  it('gets tokens, an address, a scheduler, PS, workers and a disruption budget, all its own', () => {
    const actions = reconcile(observedOf());
    expect(actions[0]!.kind).toBe('status');
    const [secret] = actionsOf(actions, 'secret');
    expect(secret!.keys).toEqual(['token', 'nodeToken', 'metricsToken']);
    const applied = actionsOf(actions, 'apply').map(({ object }) => object);
    expect(applied.map(({ kind, metadata }) => `${kind}/${metadata.name}`)).toEqual([
      'Service/movies-scheduler',
      'StatefulSet/movies-scheduler',
      'PodDisruptionBudget/movies-ps',
    ]);
    // k+r+1, so that one can be drained.
    expect(names(created(actions))).toEqual([
      ...['movies-ps-0', 'movies-ps-1', 'movies-ps-2', 'movies-ps-3', 'movies-worker-0', 'movies-worker-1'],
    ]);
    for (const object of [secret!.object, ...applied, ...created(actions)]) {
      expect(object.metadata.namespace).toBe('ml');
      expect(object.metadata.ownerReferences).toEqual([
        expect.objectContaining({ kind: 'TrainingJob', name: 'movies', uid: 'uid-movies', controller: true }),
      ]);
    }
    expect(applied[2]!.spec).toMatchObject({ minAvailable: 3 });
  });

  it('is Pending until it has formed, and then Running', () => {
    const first = observedOf();
    const then = step(first, reconcile(first));
    expect(statusOf(then)).toMatchObject({ phase: 'Pending', nextIndex: { ps: 4, worker: 2 }, ps: '0/4' });
    const forming = { ...then, report: reportOf(then.pods, { redundancy: 'forming' }) };
    expect(statusOf(step(forming, reconcile(forming))).phase).toBe('Pending');
    const observed = running();
    expect(statusOf(observed)).toMatchObject({
      phase: 'Running',
      redundancy: 'full',
      ps: '4/4',
      workers: '2/2',
    });
    expect(reconcile(observed)).toEqual([]);
  });

  it.each([
    [{}, 4],
    [{ minReplicas: 6, maxReplicas: 8 }, 6],
    [{ maxReplicas: 3 }, 3],
    [{ minReplicas: 3, maxReplicas: 8 }, 4],
  ])('has k+r+1 PS by default, within its bounds: %j', (ps, count) => {
    const first = observedOf({ job: jobOf({ ps }) });
    const then = step(first, reconcile(first));
    expect(statusOf(then)).toMatchObject({ startPs: count, ps: `0/${count}` });
  });

  it('without workers is Running when it has formed', () => {
    const job = jobOf({ worker: { replicas: 0 } });
    const first = observedOf({ job });
    const then = step(first, reconcile(first));
    const forming = { ...then, report: reportOf(then.pods, { redundancy: 'forming' }) };
    expect(statusOf(step(forming, reconcile(forming))).phase).toBe('Pending');
    const observed = running(job);
    expect(statusOf(observed)).toMatchObject({ phase: 'Running', ps: '4/4', workers: '0/0' });
    expect(reconcile(observed)).toEqual([]);
  });

  it('hands the policy of tables on to workers, in one argument', () => {
    const args = ['--data', 'train.tsv', '--table-policy', 'admit=counter(2),evict=ttl(2000)'];
    const pods = created(reconcile(observedOf({ job: jobOf({ worker: { args } }) }))) as unknown as Pod[];
    expect(pods.at(-1)!.spec.containers![0]!.args!.slice(-4)).toEqual(args);
  });

  it('leaves out a flag that the job gives itself: a flag is given once', () => {
    const args = ['--drain-timeout', '90s', '--connect-timeout=5s', '--limit', 'retryMs=9'];
    const [ps] = created(reconcile(observedOf({ job: jobOf({ ps: { args } }) }))) as unknown as Pod[];
    const all = ps!.spec.containers![0]!.args!;
    expect(all.slice(-args.length)).toEqual(args);
    expect(all.filter((arg) => arg.startsWith('--drain-timeout'))).toEqual(['--drain-timeout']);
    expect(all.filter((arg) => arg.startsWith('--connect-timeout'))).toEqual(['--connect-timeout=5s']);
    expect(all).not.toContain('45s');
    expect(all).toEqual(
      expect.arrayContaining(['--scheduler', '$(KINTSUGI_SCHEDULER)', '--name', '$(POD_NAME)']),
    );
  });

  it('keeps what the template of a role says, and has its flags behind its own', () => {
    const container = {
      name: 'kintsugi',
      resources: { limits: { memory: '2Gi' } },
      env: [{ name: 'A', value: 'b' }],
    };
    const template = {
      metadata: { labels: { team: 'ads' } },
      spec: { nodeSelector: { disk: 'fast' }, containers: [{ name: 'side', image: 'side:1' }, container] },
    };
    const job = jobOf({ ps: { template, args: ['--standby'] }, worker: { command: ['node', 'train.mjs'] } });
    const pods = created(reconcile(observedOf({ job }))) as unknown as Pod[];
    const [ps, worker] = [pods[0]!, pods.at(-1)!];
    expect(ps.metadata.labels).toMatchObject({ team: 'ads', 'kintsugi.dev/role': 'ps' });
    expect(ps.spec).toMatchObject({ nodeSelector: { disk: 'fast' }, terminationGracePeriodSeconds: 45 });
    const [main, side] = ps.spec.containers!;
    expect(side!.name).toBe('side');
    expect(main!.args!.at(-1)).toBe('--standby');
    expect(main!.args).toContain(String(memoryBudget(template)));
    expect(main!.env!.map(({ name }) => name)).toEqual(expect.arrayContaining(['A', 'KINTSUGI_NODE_TOKEN']));
    expect(main!.env).toContainEqual({ name: 'KINTSUGI_MEMORY', value: 'auto' });
    expect(worker.spec.containers![0]).toMatchObject({ command: ['node', 'train.mjs'], args: [] });
    // Workers are clients: the token of nodes is not theirs.
    expect(worker.spec.containers![0]!.env!.map(({ name }) => name)).not.toContain('KINTSUGI_NODE_TOKEN');
  });

  it('is left alone while it is deleted', () => {
    const job = jobOf();
    job.metadata.deletionTimestamp = new Date(START).toISOString();
    expect(reconcile(observedOf({ job }))).toEqual([]);
  });
});

describe('an object of the job that somebody edits', () => {
  const edited = (kind: string, change: (spec: Record<string, unknown>) => void): string[] => {
    const observed = running(jobOf({ networkPolicy: { mode: 'Job' } }));
    const owned = structuredClone(observed.owned) as (ObjectManifest & { spec: Record<string, unknown> })[];
    change(owned.find((one) => one.kind === kind)!.spec);
    return names(actionsOf(reconcile({ ...observed, owned }), 'apply').map(({ object }) => object));
  };

  it('is applied again', () => {
    expect(edited('PodDisruptionBudget', (spec) => Object.assign(spec, { minAvailable: 0 }))).toEqual([
      'movies-ps',
    ]);
    expect(edited('PodDisruptionBudget', (spec) => delete spec.minAvailable)).toEqual(['movies-ps']);
    expect(edited('StatefulSet', (spec) => Object.assign(spec, { replicas: 0 }))).toEqual([
      'movies-scheduler',
    ]);
    expect(
      edited('Service', ({ selector }) => Object.assign(selector as object, { 'kintsugi.dev/role': 'ps' })),
    ).toEqual(['movies-scheduler']);
    expect(edited('NetworkPolicy', ({ ingress }) => (ingress as object[]).push({}))).toEqual(['movies']);
  });

  it('is left as it is where only the server has added to it', () => {
    expect(
      edited('Service', (spec) => Object.assign(spec, { sessionAffinity: 'None', type: 'ClusterIP' })),
    ).toEqual([]);
    expect(
      edited('Service', ({ ports }) => Object.assign((ports as object[])[0]!, { protocol: 'TCP' })),
    ).toEqual([]);
    expect(edited('StatefulSet', (spec) => Object.assign(spec, { revisionHistoryLimit: 10 }))).toEqual([]);
  });
});

describe('a lost PS', () => {
  it('is replaced, under a new index, while its Pod still ends on a machine that is gone', () => {
    const observed = withPod(running(), 'movies-ps-1', (pod) => lived(pod, { deleting: true }));
    const actions = reconcile(observed);
    expect(names(created(actions))).toEqual(['movies-ps-4']);
    expect(deleted(actions)).toEqual([]);
    // The lost Pod may stay like this for ever: one replacement is enough.
    expect(created(reconcile(settled(observed)))).toEqual([]);
  });

  it('is replaced before Kubernetes gives its machine up, when the job has', () => {
    const silent = withPod(running(), 'movies-ps-1', (pod) => lived(pod, { node: 'n2' }));
    const nodes = [nodeOf('n1'), nodeOf('n2', false)];
    expect(created(reconcile({ ...silent, nodes }))).toEqual([]);
    const report = reportOf(silent.pods);
    const given = {
      ...report,
      nodes: report.nodes.map((one) => ({ ...one, alive: one.name !== 'movies-ps-1' })),
    };
    const actions = reconcile({ ...silent, nodes, report: given });
    expect([names(created(actions)), deleted(actions)]).toEqual([['movies-ps-4'], ['movies-ps-1']]);
    // While its machine answers, its process is started again in its Pod.
    expect(created(reconcile({ ...silent, nodes: [nodeOf('n1'), nodeOf('n2')], report: given }))).toEqual([]);
  });

  it('of which two are gone at once has two replacements, and no index is used again', () => {
    const two = ['movies-ps-0', 'movies-ps-3'].reduce(
      (observed, name) => withPod(observed, name, (pod) => lived(pod, { deleting: true })),
      running(),
    );
    const then = settled(two);
    expect(
      then.pods
        .filter(({ metadata }) => metadata.deletionTimestamp === undefined)
        .map(({ metadata }) => metadata.name),
    ).toEqual(expect.arrayContaining(['movies-ps-4', 'movies-ps-5']));
    const gone = { ...then, pods: then.pods.filter(({ metadata }) => metadata.name !== 'movies-ps-5') };
    expect(names(created(reconcile(gone)))).toEqual(['movies-ps-6']);
  });
});

describe('fewer PS', () => {
  const fewer = (observed: ObservedJob): ObservedJob => {
    const job = jobOf({ ps: { replicas: 3 } });
    return { ...observed, job: { ...job, status: statusOf(observed) } };
  };

  it('are what the job is asked for; it empties some, and only those that ended are deleted', () => {
    const observed = fewer(running());
    const actions = reconcile(observed);
    expect(actionsOf(actions, 'ask')).toEqual([
      { kind: 'ask', key: 'scale 3', change: { kind: 'scale', ps: 3 }, timeoutMs: 30_000 },
    ]);
    expect(deleted(actions)).toEqual([]);
    const asked = [{ key: 'scale 3', at: START, underWay: true }];
    expect(actionsOf(reconcile({ ...observed, asked }), 'ask')).toEqual([]);
    const drained = withPod(observed, 'movies-ps-3', (pod) =>
      lived(pod, { phase: 'Succeeded', exit: { exitCode: 0 } }),
    );
    expect(deleted(reconcile(drained))).toEqual(['movies-ps-3']);
    expect(created(reconcile(drained))).toEqual([]);
    const budget = actionsOf(actions, 'apply').find(({ object }) => object.kind === 'PodDisruptionBudget');
    expect(budget!.object.spec).toMatchObject({ minAvailable: 2 });
  });

  it('that the job takes back are asked for again, later, and the reason is told', () => {
    const asked = [{ key: 'scale 3', at: START, underWay: false, problem: 'no progress' }];
    const observed = { ...fewer(running()), asked };
    const actions = reconcile(observed);
    expect(actionsOf(actions, 'ask')).toEqual([]);
    expect(actionsOf(actions, 'wake')).toEqual([{ kind: 'wake', at: START + 30_000 }]);
    expect(actionsOf(reconcile({ ...observed, now: START + 30_000 }), 'ask')).toHaveLength(1);
    const scaling = actionsOf(actions, 'status')[0]!.status.conditions!.find(
      ({ type }) => type === 'Scaling',
    );
    expect(scaling).toMatchObject({ reason: 'TakenBack', message: 'no progress' });
  });

  it('do not start the scheduler again', () => {
    const of = (observed: ObservedJob) =>
      actionsOf(reconcile(observed), 'apply').filter(({ object }) => object.kind === 'StatefulSet');
    expect(of(fewer(running()))).toEqual([]);
  });
});

describe('a worker', () => {
  const failed = (observed: ObservedJob, name: string, exit: object): ObservedJob =>
    withPod(observed, name, (pod) => lived(pod, { phase: 'Failed', exit: { exitCode: 1, ...exit } }));

  it('that is killed is replaced at once, the next one after a pause, and each counts once', () => {
    const one = settled(failed(running(), 'movies-worker-0', { exitCode: 137, signal: 9 }));
    expect(statusOf(one)).toMatchObject({
      phase: 'Running',
      restartCount: 1,
      nextIndex: { ps: 4, worker: 3 },
    });
    const finishedAt = new Date(START).toISOString();
    const two = failed(one, 'movies-worker-1', { finishedAt });
    const actions = reconcile(two);
    expect([created(actions), actionsOf(actions, 'wake')]).toEqual([
      [],
      [{ kind: 'wake', at: START + 1000 }],
    ]);
    const later = reconcile({ ...two, now: START + 1000 });
    expect(names(created(later))).toEqual(['movies-worker-3']);
    expect(actionsOf(later, 'status')[0]!.status.restartCount).toBe(2);
  });

  it('that a signal ends before all is trained is replaced, and its results are no last words', () => {
    const exit = { exitCode: 143, reason: 'Error', message: '{"samples":90,"trainLoss":0.5}\n' };
    const one = settled(failed(running(jobOf({ worker: { replicas: 1 } })), 'movies-worker-0', exit));
    expect(statusOf(one)).toMatchObject({
      phase: 'Running',
      restartCount: 1,
      currentWorkers: ['movies-worker-1'],
    });
    const restarting = statusOf(one).conditions!.find(({ type }) => type === 'Restarting');
    expect(restarting!.message).toBe('movies-worker-0: exit code 143 (Error)');
  });

  it('that fails too often ends the job, with its last words', () => {
    const exit = { exitCode: 1, reason: 'Error', message: 'x\nkintsugi: INTERNAL: broken\n' };
    let observed = running(jobOf({ runPolicy: { backoffLimit: 1 } }));
    observed = settled(failed(observed, 'movies-worker-0', exit));
    observed = settled(failed(observed, 'movies-worker-1', exit));
    expect(statusOf(observed).conditions!.find(({ type }) => type === 'Failed')).toMatchObject({
      ...{ status: 'True', reason: 'BackoffLimitExceeded' },
      message: '2 Pods failed, and 1 may; movies-worker-1: exit code 1 (Error): kintsugi: INTERNAL: broken',
    });
  });

  it.each([
    ['kintsugi: BAD_DATA: train.tsv line 7', 'BadInput'],
    ['kintsugi: UNRECOVERABLE: shard 3', 'Unrecoverable'],
    ['', 'BadInput'],
  ])('that says "%s" and exits with 2 ends the job at once: %s', (message, reason) => {
    const observed = settled(failed(running(), 'movies-worker-0', { exitCode: 2, message }));
    expect(statusOf(observed)).toMatchObject({ phase: 'Failed' });
    expect(statusOf(observed).conditions!.at(-1)).toMatchObject({ type: 'Failed', reason });
  });

  it('that could not reach the job, or was evicted, does not end it', () => {
    const away = { exitCode: 2, message: 'kintsugi: UNREACHABLE: nobody answers' };
    expect(statusOf(settled(failed(running(), 'movies-worker-0', away))).phase).toBe('Running');
    const evicted = withPod(running(), 'movies-worker-0', (pod) =>
      lived(pod, { phase: 'Succeeded', disrupted: true }),
    );
    const actions = reconcile(evicted);
    expect([names(created(actions)), deleted(actions)]).toEqual([['movies-worker-2'], ['movies-worker-0']]);
    expect(statusOf(step(evicted, actions)).restartCount).toBe(0);
  });
});

describe('a job ends', () => {
  const done = (observed: ObservedJob): ObservedJob =>
    ['movies-worker-0', 'movies-worker-1'].reduce(
      (state, name) =>
        withPod(state, name, (pod) => lived(pod, { phase: 'Succeeded', exit: { exitCode: 0 } })),
      observed,
    );

  it('when all workers have: with success, told once', () => {
    const observed = done(running());
    const actions = reconcile(observed);
    expect(actionsOf(actions, 'status')[0]!.status).toMatchObject({
      ...{ phase: 'Succeeded', completionTime: '2026-01-01T00:00:00Z' },
    });
    expect(actionsOf(actions, 'event')).toMatchObject([{ type: 'Normal', reason: 'Succeeded' }]);
    expect(actionsOf(reconcile(step(observed, actions)), 'event')).toEqual([]);
    const onlyOne = withPod(running(), 'movies-worker-0', (pod) => lived(pod, { phase: 'Succeeded' }));
    expect(reconcile(settled(onlyOne))).toEqual([]);
    expect(statusOf(settled(onlyOne)).phase).toBe('Running');
  });

  it.each([
    ['None', [], 1],
    ['Running', ['movies-ps-0', 'movies-ps-1', 'movies-ps-2', 'movies-ps-3'], 0],
    [
      'All',
      ['movies-ps-0', 'movies-ps-1', 'movies-ps-2', 'movies-ps-3', 'movies-worker-0', 'movies-worker-1'],
      0,
    ],
  ] as const)('with cleanPodPolicy %s', (cleanPodPolicy, gone, replicas) => {
    const observed = done(running(jobOf({ runPolicy: { cleanPodPolicy } })));
    const ended = step(observed, reconcile(observed));
    const actions = reconcile(ended);
    expect(deleted(actions).sort()).toEqual(['movies-ps', ...gone]);
    const set = step(ended, actions).owned.find(({ kind }) => kind === 'StatefulSet') as unknown as {
      spec: { replicas: number };
    };
    expect(set.spec.replicas).toBe(replicas);
  });

  it.each([
    ['Running', ['movies-ps-1', 'movies-ps-2', 'movies-ps-3']],
    ['All', ['movies-ps-0', 'movies-ps-1', 'movies-ps-2', 'movies-ps-3']],
  ] as const)('and a PS that failed stays for its logs with cleanPodPolicy %s or goes', (policy, gone) => {
    const observed = done(running(jobOf({ runPolicy: { cleanPodPolicy: policy } })));
    const ended = step(observed, reconcile(observed));
    const pods = ended.pods.map((pod) =>
      pod.metadata.name === 'movies-ps-0' ? lived(pod, { phase: 'Failed', exit: { exitCode: 1 } }) : pod,
    );
    expect(deleted(reconcile({ ...ended, pods })).filter((name) => name.includes('-ps-'))).toEqual([...gone]);
  });

  it('and its PS stay until its scheduler has saved what there is', () => {
    const observed = done(running());
    const labels = { 'kintsugi.dev/role': 'scheduler', 'kintsugi.dev/job': 'movies' };
    const scheduler = lived({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'movies-scheduler-0', labels },
    });
    const ended = step(observed, reconcile(observed));
    expect(deleted(reconcile({ ...ended, pods: [...ended.pods, scheduler] }))).toEqual([]);
    expect(deleted(reconcile(ended)).filter((name) => /-ps-\d/.test(name))).toHaveLength(4);
  });

  it.each(['None', 'Running', 'All'] as const)(
    'and its disruption budget with its state saved: no drain waits for it, with %s',
    (cleanPodPolicy) => {
      const hasBudget = ({ owned }: ObservedJob) => owned.some(({ kind }) => kind === 'PodDisruptionBudget');
      const budgetGoes = (observed: ObservedJob) => deleted(reconcile(observed)).includes('movies-ps');
      const observed = done(running(jobOf({ runPolicy: { cleanPodPolicy } })));
      const ended = step(observed, reconcile(observed));
      const saving = { ...ended, pods: [...ended.pods, schedulerPod()] };
      expect([hasBudget(ended), budgetGoes(saving), budgetGoes(ended)]).toEqual([
        ...[true, cleanPodPolicy === 'None', true],
      ]);
      const owned = ended.owned.filter(({ kind }) => kind !== 'PodDisruptionBudget');
      expect(
        names(actionsOf(reconcile({ ...ended, owned }), 'apply').map(({ object }) => object)),
      ).not.toContain('movies-ps');
    },
  );

  it('with failure at its deadline, and is deleted after its time', () => {
    const job = jobOf({ runPolicy: { activeDeadlineSeconds: 60, ttlSecondsAfterFinished: 10 } });
    const observed = running(job);
    expect(actionsOf(reconcile(observed), 'wake')).toEqual([{ kind: 'wake', at: START + 60_000 }]);
    const late = settled({ ...observed, now: START + 60_000 });
    expect(statusOf(late).conditions!.at(-1)).toMatchObject({ type: 'Failed', reason: 'DeadlineExceeded' });
    expect(actionsOf(reconcile(late), 'wake')).toEqual([{ kind: 'wake', at: START + 70_000 }]);
    expect(deleted(reconcile({ ...late, now: START + 70_000 }))).toEqual(['movies']);
  });

  it('and what is left of its shards stays where more was lost than the code restores', () => {
    const exit = { exitCode: 2, message: 'kintsugi: UNRECOVERABLE: shard 3' };
    const observed = settled(
      withPod(running(), 'movies-worker-0', (pod) => lived(pod, { phase: 'Failed', exit })),
    );
    expect(statusOf(observed).phase).toBe('Failed');
    expect(observed.pods.filter(({ metadata }) => metadata.name.includes('-ps-'))).toHaveLength(4);
  });
});
