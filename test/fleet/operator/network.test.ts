/** The NetworkPolicy of a job, by its rules: who reaches its Pods, and whom they reach. */
import { describe, expect, it } from 'vitest';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import type { TrainingJobSpec } from '../../../src/fleet/operator/types.js';
import { type End, lets, type PolicySpec } from './network-model.js';
import { actionsOf, deleted, jobOf, observedOf, step } from './support.js';

const SCHEDULER = 7077;
const PS = 7100;
const WORKER = 7200;

type Network = TrainingJobSpec['networkPolicy'];

function policyOf(given: Partial<Network> = {}) {
  const job = jobOf({ networkPolicy: { mode: 'Job', ...given } });
  const actions = reconcile(observedOf({ job, operatorNamespace: 'system' }));
  const policy = actionsOf(actions, 'apply').find(({ object }) => object.kind === 'NetworkPolicy')!.object;
  return policy as unknown as { metadata: { namespace?: string }; spec: PolicySpec };
}

const podIn = (namespace: string, labels: Record<string, string> = {}): End => ({ namespace, labels });
const OPERATOR = { 'app.kubernetes.io/name': 'kintsugi-operator' };
const MEMBER = { 'kintsugi.dev/job': 'movies', 'kintsugi.dev/role': 'ps' };
const DNS = { 'k8s-app': 'kube-dns' };

describe('the Pods of a job are reached', () => {
  const reached = (end: End, port = PS, given?: Partial<Network>) =>
    lets(policyOf(given), 'Ingress', end, port);

  it('by each other, and by nobody with their labels elsewhere', () => {
    for (const port of [SCHEDULER, PS, WORKER]) expect(reached(podIn('ml', MEMBER), port)).toBe(true);
    expect(reached(podIn('other', MEMBER))).toBe(false);
    expect(reached(podIn('ml', { ...MEMBER, 'kintsugi.dev/job': 'songs' }))).toBe(false);
    expect(reached(podIn('ml'))).toBe(false);
    expect(reached({ ip: '203.0.113.7' })).toBe(false);
  });

  it('by the operator, which is known by its namespace and its label', () => {
    expect(reached(podIn('system', OPERATOR), SCHEDULER)).toBe(true);
    expect(reached(podIn('system'), SCHEDULER)).toBe(false);
    expect(reached(podIn('other', OPERATOR), SCHEDULER)).toBe(false);
    expect(reached(podIn('ml', OPERATOR), SCHEDULER)).toBe(false);
  });

  it('by Prometheus where the job says who that is, at the ports of its roles', () => {
    const given = { prometheus: { namespace: 'monitoring', podLabels: { app: 'prometheus' } } };
    const prometheus = podIn('monitoring', { app: 'prometheus' });
    for (const port of [SCHEDULER, PS, WORKER]) {
      expect(reached(prometheus, port)).toBe(false);
      expect(reached(prometheus, port, given)).toBe(true);
    }
    expect(reached(prometheus, 22, given)).toBe(false);
    expect(reached(podIn('monitoring'), PS, given)).toBe(false);
    expect(reached(podIn('other', { app: 'prometheus' }), PS, given)).toBe(false);
    // Without labels: all of that namespace.
    expect(reached(podIn('monitoring'), PS, { prometheus: { namespace: 'monitoring' } })).toBe(true);
  });
});

describe('the Pods of a job reach', () => {
  const etcd = { namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'infra' } } };
  const declared = {
    egress: [
      { to: [etcd], ports: [{ port: 2379 }] },
      { to: [{ ipBlock: { cidr: '198.51.100.0/24' } }], ports: [{ port: 443 }] },
    ],
  };
  const reach = (end: End, port: number, given: Partial<Network>, protocol?: string) =>
    lets(policyOf(given), 'Egress', end, port, protocol);
  const METADATA = { ip: '169.254.169.254' };

  it('everything where the job says nothing about it', () => {
    expect(reach(METADATA, 80, {})).toBe(true);
  });

  it('each other and DNS, and what the job declares', () => {
    for (const given of [declared, { egress: [] }]) {
      expect(reach(podIn('ml', MEMBER), PS, given)).toBe(true);
      for (const protocol of ['UDP', 'TCP']) {
        expect(reach(podIn('kube-system', DNS), 53, given, protocol)).toBe(true);
        expect(reach({ ip: '169.254.20.10' }, 53, given, protocol)).toBe(true);
      }
      for (const [end, port] of [
        [METADATA, 80],
        [METADATA, 53],
        [podIn('kube-system', DNS), 443],
        [podIn('ml'), PS],
        [{ ip: '203.0.113.7' }, 443],
      ] as const)
        expect(reach(end, port, given)).toBe(false);
    }
    expect(reach(podIn('infra'), 2379, declared)).toBe(true);
    expect(reach({ ip: '198.51.100.9' }, 443, declared)).toBe(true);
    expect(reach({ ip: '198.51.100.9' }, 80, declared)).toBe(false);
    expect(reach(podIn('infra'), 2379, { egress: [] })).toBe(false);
    expect(reach(podIn('infra'), 2379, { egress: [{}] })).toBe(true);
  });
});

it('a policy goes when nobody wants it', () => {
  const observed = observedOf({ job: jobOf({ networkPolicy: { mode: 'Job' } }) });
  const then = step(observed, reconcile(observed));
  expect(deleted(reconcile({ ...then, job: { ...jobOf(), status: then.job.status! } }))).toEqual(['movies']);
});

it('an operator that does not know its namespace is expected in that of the job', () => {
  const actions = reconcile(observedOf({ job: jobOf({ networkPolicy: { mode: 'Job' } }) }));
  const { object } = actionsOf(actions, 'apply').find((one) => one.object.kind === 'NetworkPolicy')!;
  expect(lets(object as never, 'Ingress', podIn('ml', OPERATOR), SCHEDULER)).toBe(true);
  expect(lets(object as never, 'Ingress', podIn('other', OPERATOR), SCHEDULER)).toBe(false);
});
