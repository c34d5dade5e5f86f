/** Whatever is observed, no pass does harm. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { KubeObject, Pod } from '../../src/operator/objects.js';
import type { Observed } from '../../src/operator/reconcile/observed.js';
import { podOf } from '../../src/operator/reconcile/pods.js';
import { reconcile } from '../../src/operator/reconcile/reconcile.js';
import {
  actionsOf,
  created,
  deleted,
  jobOf,
  lived,
  names,
  nodeOf,
  observedOf,
  START,
  step,
} from './support.js';

const RUNS = Number(process.env.KINTSUGI_OBSERVATIONS ?? 300);

const life = fc.record({
  phase: fc.constantFrom('Pending', 'Running', 'Running', 'Running', 'Succeeded', 'Failed'),
  node: fc.constantFrom('n1', 'n2', 'gone'),
  deleting: fc.boolean(),
  exit: fc.option(
    fc.record({
      exitCode: fc.constantFrom(0, 1, 2, 137),
      message: fc.constantFrom('', 'kintsugi: BAD_DATA: x', 'kintsugi: UNREACHABLE: x'),
    }),
    { nil: undefined },
  ),
  disrupted: fc.boolean(),
});
const pod = fc.record({ role: fc.constantFrom('ps' as const, 'worker' as const), index: fc.nat(9), life });
const observation = fc.record({
  ...{ k: fc.integer({ min: 1, max: 4 }), r: fc.nat(2), more: fc.nat(3), workers: fc.nat(4) },
  pods: fc.array(pod, { maxLength: 12 }),
  policy: fc.constantFrom('None' as const, 'Running' as const, 'All' as const),
  phase: fc.constantFrom(undefined, 'Pending' as const, 'Running' as const),
  noted: fc.option(fc.record({ ps: fc.nat(12), worker: fc.nat(12) }), { nil: undefined }),
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
});
type Drawn = typeof observation extends fc.Arbitrary<infer T> ? T : never;

function observedFrom(drawn: Drawn): Observed {
  const { k, r, more, workers, policy, phase, noted, report, failed, asked } = drawn;
  const job = jobOf({
    ...{ code: { k, r }, ps: { replicas: k + r + more }, worker: { replicas: workers } },
    runPolicy: { cleanPodPolicy: policy },
  });
  if (phase)
    job.status = {
      phase,
      startTime: '2026-01-01T00:00:00Z',
      startPs: k + r,
      ...(noted ? { nextIndex: noted } : {}),
    };
  if (job.status) job.status.restartCount = failed;
  const pods = new Map<string, Pod>();
  for (const { role, index, life } of drawn.pods) {
    const made = podOf(job, role, index, {});
    const { exit, ...rest } = life;
    pods.set(
      made.metadata.name,
      lived(made, { ...rest, ...(exit ? { exit } : {}) } as Parameters<typeof lived>[1]),
    );
  }
  const psName = (index: number) => `movies-ps-${index}`;
  return observedOf({
    ...{ job, pods: [...pods.values()], nodes: [nodeOf('n1'), nodeOf('n2', drawn.secondReady)] },
    ...(asked === undefined ? {} : { asked: { ps: k + r, at: START, underWay: asked } }),
    ...(report
      ? {
          report: {
            ...{ redundancy: report.redundancy, reasons: [], changing: report.changing },
            nodes: [
              ...report.joined.map((index) => ({ name: psName(index), alive: !report.dead.includes(index) })),
            ],
          },
        }
      : {}),
  });
}

const metadataOf = (observed: Observed, name: string) =>
  observed.pods.find(({ metadata }) => metadata.name === name);

it('a PS of a job that goes on is deleted only when its process is gone', () => {
  fc.assert(
    fc.property(observation, (drawn) => {
      const observed = observedFrom(drawn);
      for (const name of deleted(reconcile(observed)).filter((one) => one.includes('-ps-'))) {
        const { status, spec } = metadataOf(observed, name)!;
        const ended = status?.phase === 'Succeeded' || status?.phase === 'Failed';
        const dead = observed.report?.nodes.some((one) => one.name === name && !one.alive) ?? false;
        const machine = observed.nodes.find(({ metadata }) => metadata.name === spec.nodeName);
        const ready = machine?.status?.conditions?.[0]?.status === 'True';
        expect(ended || (dead && !ready)).toBe(true);
      }
    }),
    { numRuns: RUNS },
  );
});

it('everything stays in the namespace, belongs to the job, and has a name that nothing else has', () => {
  fc.assert(
    fc.property(observation, (drawn) => {
      const observed = observedFrom(drawn);
      const actions = reconcile(observed);
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
      // The status goes first: an index is noted before it is used.
      if (made.length > 0) expect(actions[0]!.kind).toBe('status');
    }),
    { numRuns: RUNS },
  );
});

it('passes come to rest: nothing is made and deleted in turn', () => {
  fc.assert(
    fc.property(observation, (drawn) => {
      let observed = observedFrom(drawn);
      const seen = new Set<string>();
      for (let pass = 0; pass < 8; pass++) {
        const actions = reconcile(observed).filter(({ kind }) => kind !== 'wake' && kind !== 'scale');
        if (actions.length === 0) return;
        for (const name of names(created(actions))) {
          expect(seen.has(name)).toBe(false);
          seen.add(name);
        }
        // What was made in the pass before is not deleted in the next one.
        if (observed.job.status?.phase === 'Running')
          for (const name of deleted(actions)) expect(seen.has(name)).toBe(false);
        observed = step(observed, actions);
      }
      throw new Error('it does not come to rest');
    }),
    { numRuns: RUNS },
  );
});
