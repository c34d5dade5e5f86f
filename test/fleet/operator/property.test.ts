/** No pass does harm, whatever is observed. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { KubeObject, Pod } from '../../../src/fleet/operator/objects.js';
import { memoryOf } from '../../../src/fleet/operator/reconcile/memory.js';
import type { Action, ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { podOf } from '../../../src/fleet/operator/reconcile/pods.js';
import { bytesOf } from '../../../src/fleet/operator/reconcile/quantity.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import type { ScalerObject, ScalerStatus } from '../../../src/fleet/operator/types.js';
import {
  actionsOf,
  changeOf,
  created,
  deleted,
  jobOf,
  lived,
  names,
  nodeOf,
  observedOf,
  START,
  scalerOf,
  step,
} from './support.js';

/** Number of drawn observations: docs/kubernetes.md tells of a run with `KINTSUGI_OBSERVATIONS=100000`. */
const RUNS = Number(process.env.KINTSUGI_OBSERVATIONS ?? 300);
const TIMEOUT_MS = Math.max(60_000, RUNS * 100);

const life = fc.record({
  phase: fc.constantFrom('Pending', 'Running', 'Running', 'Running', 'Succeeded', 'Failed'),
  node: fc.constantFrom('n1', 'n2', 'gone', undefined),
  deleting: fc.boolean(),
  exit: fc.option(
    fc.record({
      exitCode: fc.constantFrom(0, 1, 2, 137),
      message: fc.constantFrom('', 'kintsugi: BAD_DATA: x', 'kintsugi: UNREACHABLE: x'),
      reason: fc.constantFrom('Error', 'OOMKilled'),
    }),
    { nil: undefined },
  ),
  ...{ again: fc.boolean(), restarts: fc.nat(3) },
  disrupted: fc.boolean(),
  waiting: fc.constantFrom(undefined, undefined, 'ContainerCreating', 'ErrImagePull'),
});
const MEMORY = fc.constantFrom('1Gi', '1536Mi', '2Gi', '3Gi', undefined);
const RESTARTS = fc.constantFrom(undefined, 'Never' as const, 'OnFailure' as const);
const PLAN = fc.constantFrom(
  ...[undefined, { url: '/a', everySeconds: 60, keep: 3 }, { url: '/b', everySeconds: 60, keep: 3 }],
);
const pod = fc.record({
  ...{ role: fc.constantFrom('ps' as const, 'worker' as const), index: fc.nat(9), life, memory: MEMORY },
});
const PHASES = [
  ...([undefined, 'Pending', 'Scaling', 'Draining', 'Deleting', 'ScaleSucceeded', 'ScaleFailed'] as const),
];
/** ScaleOut and ScaleIn in every state, and changes as the job reports them. */
const scaling = fc.record({
  scalers: fc.array(
    fc.record({
      ...{
        kind: fc.constantFrom('ScaleOut' as const, 'ScaleIn' as const),
        count: fc.integer({ min: 1, max: 3 }),
      },
      ...{ role: fc.constantFrom('ps', 'worker'), named: fc.boolean(), deleted: fc.boolean() },
      ...{
        held: fc.boolean(),
        phase: fc.constantFrom(...PHASES),
        changes: fc.array(fc.integer({ min: 1, max: 3 })),
      },
    }),
    { maxLength: 3 },
  ),
  changes: fc.array(
    fc.record({
      ...{ kind: fc.constantFrom('scale' as const, 'drain' as const), to: fc.nat(8), pod: fc.nat(9) },
      state: fc.constantFrom('running' as const, 'done' as const, 'cancelled' as const),
    }),
    { maxLength: 3 },
  ),
  cordoned: fc.boolean(),
});
const INDICES = fc.uniqueArray(fc.nat(11), { maxLength: 6 });
const observation = fc.record({
  scaling,
  ...{ k: fc.integer({ min: 1, max: 4 }), r: fc.nat(2), more: fc.nat(3), workers: fc.nat(4) },
  pods: fc.array(pod, { maxLength: 12 }),
  /** True: besides these Pods there are as many running PS as wanted. */
  healthy: fc.boolean(),
  policy: fc.constantFrom('None' as const, 'Running' as const, 'All' as const),
  phase: fc.constantFrom(undefined, 'Pending' as const, 'Running' as const),
  noted: fc.option(fc.record({ ps: fc.nat(12), worker: fc.nat(12) }), { nil: undefined }),
  /** Indices that an operator before this one has noted, and those that this one has asked for. */
  making: fc.option(fc.record({ ps: INDICES, worker: INDICES, asked: INDICES }), { nil: undefined }),
  failed: fc.nat(4),
  report: fc.option(
    fc.record({
      redundancy: fc.constantFrom('forming', 'full', 'recovering', 'degraded', 'lost'),
      changing: fc.boolean(),
      dead: fc.array(fc.nat(9)),
      joined: fc.array(fc.nat(9)),
    }),
    { nil: undefined },
  ),
  secondReady: fc.boolean(),
  asked: fc.option(fc.boolean(), { nil: undefined }),
  policies: fc.record({
    ps: fc.record({ restartPolicy: RESTARTS, restartCount: fc.constantFrom(undefined, 0, 2) }),
    worker: fc.record({ restartPolicy: RESTARTS, restartCount: fc.constantFrom(undefined, 0, 2) }),
    ...{ metrics: fc.boolean(), extras: fc.subarray(['PodMonitor', 'PodGroup']), gang: fc.boolean() },
  }),
  /** Checkpoints as they are to be and as the job has them; a pause; and what was saved for it. */
  saving: fc.record({
    ...{ wanted: PLAN, has: PLAN, suspend: fc.boolean(), scheduler: fc.boolean() },
    noted: fc.boolean(),
    saved: fc.option(fc.record({ underWay: fc.boolean(), number: fc.constantFrom(undefined, 3) }), {
      nil: undefined,
    }),
  }),
  /** Limits of the templates, what resourceLimits allows, and what was noted. */
  memory: fc.record({ own: MEMORY, most: MEMORY, noted: MEMORY, backoffLimit: fc.constantFrom(2, 6, 100) }),
});
type Drawn = typeof observation extends fc.Arbitrary<infer T> ? T : never;

const sized = (memory: string) => ({
  spec: { containers: [{ name: 'kintsugi', resources: { limits: { memory } } }] },
});

const SCHEDULER = lived({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: {
    name: 'movies-scheduler-0',
    namespace: 'ml',
    labels: { 'kintsugi.dev/role': 'scheduler', 'kintsugi.dev/job': 'movies' },
  },
});
const savedOf = ({ underWay, number }: { underWay: boolean; number: number | undefined }) => ({
  underWay,
  ...(underWay || number === undefined ? {} : { number }),
});

const below = (next: number, indices: readonly number[]) => indices.filter((index) => index < next);

function observedFrom(drawn: Drawn): ObservedJob {
  const { k, r, more, workers, policy, phase, noted, making, report, failed, asked } = drawn;
  const { own, most, noted: grown, backoffLimit } = drawn.memory;
  const { saving } = drawn;
  const template = own ? { template: sized(own) } : {};
  const limit = most ? { memory: most } : {};
  const job = jobOf({
    code: { k, r },
    ps: { replicas: k + r + more, ...template, ...drawn.policies.ps },
    worker: { replicas: workers, ...template, ...drawn.policies.worker },
    resourceLimits: { ps: limit, worker: limit },
    runPolicy: {
      ...{ cleanPodPolicy: policy, backoffLimit, suspend: saving.suspend },
      ...(drawn.policies.gang ? { schedulingPolicy: { minAvailable: 3, queue: 'ads' } } : {}),
    },
    ...(drawn.policies.metrics ? { metrics: { intervalSeconds: 15 } } : {}),
    ...(saving.wanted ? { checkpoint: { ...saving.wanted, onSuspend: true } } : {}),
  });
  if (phase)
    job.status = {
      phase,
      startTime: '2026-01-01T00:00:00Z',
      startPs: k + r,
      ...(noted ? { nextIndex: noted } : {}),
      ...(noted && making
        ? { making: { ps: below(noted.ps, making.ps), worker: below(noted.worker, making.worker) } }
        : {}),
    };
  if (job.status) job.status.restartCount = failed;
  if (job.status && saving.noted) job.status.suspended = { place: '/a', checkpoint: 3 };
  if (job.status && grown) job.status.memory = { ps: grown, worker: grown };
  const pods = new Map<string, Pod>();
  for (const { role, index, life, memory } of drawn.pods) {
    const spec = { ...job.spec.replicaSpecs[role], ...(memory ? { template: sized(memory) } : {}) };
    const replicaSpecs = { ...job.spec.replicaSpecs, [role]: spec };
    const made = podOf({ ...job, spec: { ...job.spec, replicaSpecs } }, role, index);
    const { exit, ...rest } = life;
    pods.set(
      made.metadata.name,
      lived(made, { ...rest, ...(exit ? { exit } : {}) } as Parameters<typeof lived>[1]),
    );
  }
  for (let index = 20; drawn.healthy && index < 20 + k + r + more; index++)
    pods.set(`movies-ps-${index}`, lived(podOf(job, 'ps', index)));
  if (saving.scheduler) pods.set('movies-scheduler-0', SCHEDULER);
  const { scalers, changes, cordoned } = drawn.scaling;
  const drawnScalers = scalers.map(({ kind, count, role, named, deleted, held, phase, changes }) => {
    const podNames = Array.from({ length: count }, (_, index) => `movies-${role}-${index}`);
    const what = kind === 'ScaleOut' ? { toAdd: { count } } : { toDelete: named ? { podNames } : { count } };
    const own = role === 'ps' ? k + r + more : workers;
    const to = own + (kind === 'ScaleOut' ? count : -count);
    const begun = phase !== undefined && phase !== 'Pending';
    const status = { phase, ...(begun ? { from: own, to: Math.max(0, to), changes } : {}) };
    const scaler = scalerOf(kind, { role, ...what }, phase ? (status as ScalerStatus) : undefined);
    const deletionTimestamp = new Date(START).toISOString();
    const finalizers = held || begun ? ['kintsugi.dev/scaling'] : [];
    return {
      ...scaler,
      metadata: { ...scaler.metadata, finalizers, ...(deleted ? { deletionTimestamp } : {}) },
    } as ScalerObject;
  });
  const psName = (index: number) => `movies-ps-${index}`;
  return observedOf({
    ...{
      job,
      pods: [...pods.values()],
      nodes: [nodeOf('n1'), { ...nodeOf('n2', drawn.secondReady), spec: { unschedulable: cordoned } }],
    },
    ...(making ? { askedFor: new Set(making.asked.map(psName)) } : {}),
    ...{ scalers: drawnScalers, extras: new Set(drawn.policies.extras) },
    ...(saving.saved ? { saved: { generation: 1, at: START, ...savedOf(saving.saved) } } : {}),
    ...(asked === undefined ? {} : { asked: [{ key: `scale ${k + r}`, at: START, underWay: asked }] }),
    ...(report
      ? {
          report: {
            ...{ redundancy: report.redundancy, reasons: [], changing: report.changing },
            plan: saving.has ?? null,
            changes: changes.map(({ kind, to, pod, state }, index) =>
              changeOf({ id: index + 1, kind, to, state, leaving: kind === 'drain' ? [psName(pod)] : [] }),
            ),
            nodes: [
              ...report.joined.map((index) => ({ name: psName(index), alive: !report.dead.includes(index) })),
            ],
          },
        }
      : {}),
  });
}

const metadataOf = (observed: ObservedJob, name: string) =>
  observed.pods.find(({ metadata }) => metadata.name === name);

/** Checks every drawn observation, with the actions of a pass over it. */
function forAll(check: (observed: ObservedJob, actions: readonly Action[], drawn: Drawn) => void): void {
  fc.assert(
    fc.property(observation, (drawn) => {
      const observed = observedFrom(drawn);
      check(observed, reconcile(observed), drawn);
    }),
    { numRuns: RUNS },
  );
}

it('a PS is deleted only when its process is gone, or when a pause has saved what it holds', {
  timeout: TIMEOUT_MS,
}, () => {
  forAll((observed, actions, drawn) => {
    for (const name of deleted(actions).filter((one) => one.includes('-ps-'))) {
      const { status, spec } = metadataOf(observed, name)!;
      const own = status?.containerStatuses?.find((one) => one.name === 'kintsugi')?.state?.terminated;
      const again = spec.restartPolicy === 'OnFailure' && own?.exitCode !== 0;
      const ended = status?.phase === 'Succeeded' || status?.phase === 'Failed' || (own && !again);
      const dead = observed.report?.nodes.some((one) => one.name === name && !one.alive) ?? false;
      const machine = observed.nodes.find(({ metadata }) => metadata.name === spec.nodeName);
      const ready = machine?.status?.conditions?.[0]?.status === 'True';
      const why = status?.containerStatuses?.[0]?.state?.waiting?.reason;
      const fresh = status?.phase === 'Pending' && (spec.nodeName === undefined || why === 'ErrImagePull');
      const { state, lastState } = status?.containerStatuses?.[0] ?? {};
      const reason = (state?.terminated ?? lastState?.terminated)?.reason;
      const starved = reason === 'OOMKilled' && state?.running === undefined;
      // The checkpoint was noted in an earlier pass: a note of this pass counts only from the next one on.
      const saved = observed.job.status?.suspended !== undefined && !drawn.saving.scheduler;
      expect(ended || (dead && !ready) || fresh || starved || saved).toBe(true);
      const exact = actionsOf(actions, 'delete').find(({ object }) => object.metadata.name === name)!;
      if (!ended && !(dead && !ready) && !saved) expect(exact.asObserved).toBe(true);
    }
  });
});

it('no Pod gets more memory than there may be, and none less than those before it', {
  timeout: TIMEOUT_MS,
}, () => {
  forAll((observed, actions, drawn) => {
    const { own, most } = drawn.memory;
    const before = observed.job.status?.memory;
    const after = actionsOf(actions, 'status')[0]?.status.memory ?? before;
    const bytes = (quantity: string | number | undefined) => bytesOf(quantity) ?? 0;
    for (const role of ['ps', 'worker'] as const) {
      expect(bytes(after?.[role])).toBeGreaterThanOrEqual(bytes(before?.[role]));
      if (after?.[role] !== before?.[role]) expect(bytes(after?.[role])).toBeLessThanOrEqual(bytes(most));
    }
    for (const made of created(actions) as unknown as Pod[]) {
      const limit = bytes(memoryOf(made));
      expect(limit).toBeLessThanOrEqual(Math.max(bytes(own), bytes(most)));
      const role = made.metadata.labels!['kintsugi.dev/role'] as 'ps' | 'worker';
      expect(limit).toBe(Math.max(bytes(own), Math.min(bytes(most), bytes(after?.[role]))));
    }
  });
});

it('everything stays in the namespace, belongs to the job, and has a name that nothing else has', {
  timeout: TIMEOUT_MS,
}, () => {
  forAll((observed, actions) => {
    const written = actions.flatMap((one) => ('object' in one ? [one.object as KubeObject] : []));
    for (const { metadata } of written) expect(metadata.namespace ?? 'ml').toBe('ml');
    for (const { metadata } of [
      ...created(actions),
      ...actionsOf(actions, 'apply').map(({ object }) => object),
    ])
      expect(metadata.ownerReferences?.[0]?.uid).toBe('uid-movies');
    const there = new Set(names(observed.pods));
    const made = names(created(actions));
    expect(made.filter((name) => there.has(name))).toEqual([]);
    expect(new Set(made).size).toBe(made.length);
    // The status goes first: an index is noted before it is used, by this operator or one before it.
    const { ps = [], worker = [] } = observed.job.status?.making ?? {};
    const before = [
      ...ps.map((index) => `movies-ps-${index}`),
      ...worker.map((index) => `movies-worker-${index}`),
    ];
    const first = actions.find(({ kind }) => kind !== 'report');
    if (made.some((name) => !before.includes(name))) expect(first!.kind).toBe('status');
  });
});

/** Actions that the job, or a later pass, goes on with. */
const OTHERS: ReadonlySet<string> = new Set(['wake', 'ask', 'checkpoint', 'plan']);

it('passes come to rest: nothing is made and deleted in turn', { timeout: TIMEOUT_MS }, () => {
  forAll((first, _, drawn) => {
    let observed = first;
    const seen = new Set<string>();
    for (let pass = 0; pass < 30; pass++) {
      const actions = reconcile(observed).filter(({ kind }) => !OTHERS.has(kind));
      if (actions.length === 0) return;
      for (const name of names(created(actions))) {
        expect(seen.has(name)).toBe(false);
        seen.add(name);
      }
      // A Pod that was made in one pass is not deleted in the next one, unless by a ScaleIn that begins.
      const steady = drawn.scaling.scalers.length === 0 && !drawn.saving.suspend && !drawn.saving.noted;
      if (observed.job.status?.phase === 'Running' && steady)
        for (const name of deleted(actions)) expect(seen.has(name)).toBe(false);
      observed = step(observed, actions);
    }
    throw new Error('it does not come to rest');
  });
});
