/** The status of a job: what was observed, in the words that its users read. */
import type { Condition } from '../objects.js';
import type { Phase, TrainingJob, TrainingJobStatus } from '../types.js';
import { type Census, inState } from './census.js';
import { type Role, selectorOf, wantedPs } from './names.js';
import type { Observed } from './observed.js';
import { ownFailures, type Verdict } from './verdict.js';

const ROLES: readonly Role[] = ['scheduler', 'ps', 'worker'];

export const hasEnded = (status: TrainingJobStatus | undefined): boolean =>
  status?.phase === 'Succeeded' || status?.phase === 'Failed';

export const timeOf = (ms: number): string => new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z');

/** Pods that failed are counted once, whether they are still there or not. */
function failures(census: Census, before: TrainingJobStatus) {
  const there = ownFailures([...census.ps, ...census.worker]).map(({ name }) => name);
  const known = before.failedPods ?? [];
  const fresh = there.filter((name) => !known.includes(name));
  return { restartCount: (before.restartCount ?? 0) + fresh.length, failedPods: there };
}

/** What stays true until the next pass: needed before the verdict. */
export function begun({ job, now }: Observed, census: Census) {
  const before = job.status ?? {};
  return {
    ...before,
    startTime: before.startTime ?? timeOf(now),
    startPs: before.startPs ?? wantedPs(job),
    ...(hasEnded(before) ? {} : failures(census, before)),
  };
}

function phaseOf({ job, report }: Observed, census: Census, verdict: Verdict): Phase {
  const before = job.status?.phase;
  if (verdict.ended) return verdict.phase;
  if (before === 'Running') return before;
  const formed = report !== undefined && report.redundancy !== 'forming';
  return formed && census.worker.some((one) => one.ready) ? 'Running' : 'Pending';
}

function conditionsOf(observed: Observed, census: Census, verdict: Verdict, phase: Phase): Condition[] {
  const { job, report, asked } = observed;
  const scheduler = census.scheduler.some((one) => one.ready && one.state === 'active');
  const active = inState(census.ps, 'active').length;
  const wanted = wantedPs(job);
  const is = (type: string, status: boolean | undefined, reason: string, message = ''): Condition => ({
    ...{ type, status: status === undefined ? 'Unknown' : status ? 'True' : 'False', reason },
    ...(message ? { message } : {}),
  });
  const redundancy = report?.redundancy ?? 'unknown';
  const list = [
    is('SchedulerReady', scheduler, scheduler ? 'Serving' : 'NotReady'),
    is('Running', phase === 'Running', phase),
    is(
      ...(['Redundant', report ? redundancy === 'full' : undefined] as const),
      redundancy.replace(/^./, (first) => first.toUpperCase()),
      report?.reasons.slice(0, 3).join('; '),
    ),
    is(
      ...(['Scaling', !verdict.ended && (active > wanted || report?.changing === true)] as const),
      asked?.problem ? 'TakenBack' : active > wanted ? 'Draining' : report?.changing ? 'Moving' : 'Settled',
      asked?.problem,
    ),
  ];
  if (verdict.ended && verdict.phase === 'Succeeded')
    list.push(is('Succeeded', true, 'Complete', verdict.message));
  if (verdict.ended && verdict.phase === 'Failed')
    list.push(is('Failed', true, verdict.reason, verdict.message));
  return list;
}

/** A condition that says the same has been so since then. */
function since(conditions: readonly Condition[], before: readonly Condition[] = [], now: number) {
  return conditions.map((one) => {
    const old = before.find(({ type }) => type === one.type);
    const same = old?.status === one.status && old.lastTransitionTime !== undefined;
    return { ...one, lastTransitionTime: same ? old.lastTransitionTime! : timeOf(now) };
  });
}

const selectorText = (selector: Record<string, string>): string =>
  Object.entries(selector)
    .map(([key, value]) => `${key}=${value}`)
    .join(',');

/** Of a job that has ended the outcome stays, whatever becomes of its Pods. */
export function statusOf(
  observed: Observed,
  census: Census,
  start: ReturnType<typeof begun>,
  verdict: Verdict,
  nextIndex: { ps: number; worker: number },
): TrainingJobStatus {
  const { job, report, now } = observed;
  const ended = hasEnded(job.status);
  const phase = ended ? job.status!.phase! : phaseOf(observed, census, verdict);
  const counts = (role: Role) => ({
    active: inState(census[role], 'active').length,
    ready: inState(census[role], 'active').filter((one) => one.ready).length,
    succeeded: inState(census[role], 'succeeded').length,
    failed: inState(census[role], 'failed').length,
  });
  const replicaStatuses = Object.fromEntries(ROLES.map((role) => [role, counts(role)]));
  const names = (role: Role) => inState(census[role], 'active').map(({ name }) => name);
  const redundancy = ended || verdict.ended ? start.redundancy : (report?.redundancy ?? 'unknown');
  const progress = report?.progress ?? start.progress;
  const lastCheckpoint = report?.lastCheckpoint ?? start.lastCheckpoint;
  const conditions = ended
    ? (start.conditions ?? [])
    : since(conditionsOf(observed, census, verdict, phase), start.conditions, now);
  return {
    ...start,
    ...{ phase, replicaStatuses, nextIndex, conditions },
    ...(job.metadata.generation === undefined ? {} : { observedGeneration: job.metadata.generation }),
    ...(verdict.ended && start.completionTime === undefined ? { completionTime: timeOf(now) } : {}),
    ...(redundancy === undefined ? {} : { redundancy }),
    ...(progress ? { progress } : {}),
    ...(lastCheckpoint ? { lastCheckpoint } : {}),
    ps: `${replicaStatuses.ps!.ready}/${wantedPs(job)}`,
    workers: `${replicaStatuses.worker!.ready}/${job.spec.replicaSpecs.worker.replicas}`,
    workersActive: replicaStatuses.worker!.active,
    workerSelector: selectorText(selectorOf(job, 'worker')),
    currentPs: names('ps'),
    currentWorkers: names('worker'),
  };
}

/** Whether two JSON values say the same. Absent and undefined are the same. */
export function sameValue(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const [left, right] = [a as Record<string, unknown>, b as Record<string, unknown>];
  const keys = new Set([...Object.keys(left), ...Object.keys(right)]);
  return [...keys].every((key) => sameValue(left[key], right[key]));
}

/** The one who is told by `kubectl describe`. */
export const outcomeOf = (job: TrainingJob, status: TrainingJobStatus): string =>
  status.conditions?.find(({ type }) => type === status.phase)?.message ?? job.metadata.name;
