/**
 * The part of Kueue that a job meets: it reserves quota for a Workload, admits and evicts it. It checks what
 * Kueue's webhooks check of Workloads.
 */
import type { ObjectManifest } from '../../../src/fleet/operator/objects.js';
import type { QueuedWorkload } from '../../../src/fleet/operator/reconcile/queueing.js';

export const FLAVORS: ObjectManifest[] = [
  {
    ...{ apiVersion: 'kueue.x-k8s.io/v1beta2', kind: 'ResourceFlavor', metadata: { name: 'spot' } },
    spec: {
      nodeLabels: { pool: 'spot' },
      tolerations: [{ key: 'spot', operator: 'Exists', effect: 'NoSchedule' }],
    },
  },
];

type Condition = NonNullable<NonNullable<QueuedWorkload['status']>['conditions']>[number];

export const conditionIn = (workload: QueuedWorkload | undefined, type: string): Condition | undefined =>
  workload?.status?.conditions?.find((one) => one.type === type);

/** The Workload with these conditions. */
export function saying(
  workload: QueuedWorkload,
  said: Record<string, [status: boolean, reason: string, message?: string]>,
): QueuedWorkload {
  const others = workload.status?.conditions?.filter(({ type }) => !(type in said)) ?? [];
  const fresh = Object.entries(said).map(([type, [on, reason, message = '']]) => ({
    ...{ type, status: on ? 'True' : 'False', reason, message },
    lastTransitionTime: '2026-01-01T00:00:00Z',
  }));
  return { ...workload, status: { ...workload.status, conditions: [...others, ...fresh] } };
}

/** Quota is reserved for it, and it is admitted. `counts`: Pods of a role, where they are fewer. */
export function admitted(
  workload: QueuedWorkload,
  counts: Record<string, number> = {},
  flavor = 'spot',
): QueuedWorkload {
  const podSetAssignments = workload.spec.podSets.map(({ name, count }) => ({
    ...{ name, count: counts[name] ?? count, flavors: { cpu: flavor, memory: flavor } },
  }));
  const admission = { clusterQueue: 'ads', podSetAssignments };
  const before = conditionIn(workload, 'Evicted');
  return saying(
    { ...workload, status: { ...workload.status, admission } },
    {
      ...(before ? { Evicted: [false, 'QuotaReserved'] as [boolean, string] } : {}),
      QuotaReserved: [true, 'QuotaReserved'],
      Admitted: [true, 'Admitted'],
    },
  );
}

export const evicted = (workload: QueuedWorkload, reason = 'Preempted'): QueuedWorkload =>
  saying(workload, { Evicted: [true, reason, 'a more urgent job needs the room'] });

/** Faults that the webhooks of Kueue would find in a write. */
export function faults(before: QueuedWorkload | undefined, after: QueuedWorkload): string[] {
  const held = conditionIn(before, 'QuotaReserved')?.status === 'True';
  const holds = conditionIn(after, 'QuotaReserved')?.status === 'True';
  const found: string[] = [];
  const same = (one: unknown, other: unknown): boolean => JSON.stringify(one) === JSON.stringify(other);
  if (held && !same(before!.spec.podSets, after.spec.podSets)) found.push('podSets are fixed');
  const classed = ({ spec }: QueuedWorkload): boolean => spec.priorityClassRef !== undefined;
  if (held && classed(before!) !== classed(after)) found.push('priorityClassRef is fixed');
  if (held && holds && before!.spec.queueName !== after.spec.queueName) found.push('queueName is fixed');
  if (holds && !after.status?.admission) found.push('quota without an admission');
  const least = after.spec.podSets.filter(({ minCount }) => minCount !== undefined);
  if (least.length > 1) found.push('at most one podSet can use minCount');
  if (least.some(({ count, minCount = 0 }) => minCount < 1 || minCount > count)) found.push('minCount');
  for (const { name, count } of after.status?.reclaimablePods ?? []) {
    const set = after.spec.podSets.find((one) => one.name === name);
    const old = before?.status?.reclaimablePods?.find((one) => one.name === name)?.count ?? 0;
    if (!set || count > set.count || (held && holds && count < old)) found.push('reclaimablePods');
  }
  return found;
}
