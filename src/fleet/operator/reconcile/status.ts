/** The status of a job: what was observed, in the words that its users read. */
import type { JobPhase, TrainingJob, TrainingJobStatus } from '../types.js';
import { type Census, inState, type Member } from './census.js';
import { conditionsOf, RESUMED, since } from './conditions.js';
import { excusedOf } from './excused.js';
import { grownMemory } from './growth.js';
import { tellsGuard } from './guard.js';
import { lastHeardOf } from './hearing.js';
import { type PodRole, type Replicated, ROLES, selectorOf, wantedPs } from './names.js';
import type { ObservedJob } from './observed.js';
import { startPlan } from './plan.js';
import type { Beginning } from './pods.js';
import { type Queueing, queueCondition } from './queueing.js';
import { resultsOf } from './results.js';
import type { ScalingGoal } from './scaling/goal.js';
import { scalingStatusOf } from './scaling/progress.js';
import { type Stuck, stuckCondition } from './stuck.js';
import { hasFormed, isPaused, type Stage, savedFor } from './suspension.js';
import { timeOf } from './time.js';
import { ownFailures, type ReconcileVerdict } from './verdict.js';

export const hasEnded = (status: TrainingJobStatus | undefined): boolean =>
  status?.phase === 'Succeeded' || status?.phase === 'Failed';

/** Pods that failed are counted once, whether they are still there or not, unless they are excused. */
function failures(
  observed: ObservedJob,
  census: Census,
  before: TrainingJobStatus,
  status: Pick<TrainingJobStatus, 'formed'>,
) {
  const excused = excusedOf(observed, census, before, status);
  const isCounted = ({ name }: Member) => !excused.excusedPods?.includes(name);
  const known = new Set(before.failedPods);
  const there = { ps: ownFailures(census.ps), worker: ownFailures(census.worker).filter(isCounted) };
  const fresh = (role: Replicated): number => there[role].filter(({ name }) => !known.has(name)).length;
  const sum = (role: Replicated): number => (before.restarts?.[role] ?? 0) + fresh(role);
  const restarts = { ps: sum('ps'), worker: sum('worker') };
  return {
    restartCount: (before.restartCount ?? 0) + fresh('ps') + fresh('worker'),
    ...(restarts.ps + restarts.worker > 0 ? { restarts } : {}),
    failedPods: [...there.ps, ...there.worker].map(({ name }) => name),
    ...excused,
  };
}

function grown(job: TrainingJob, census: Census): Pick<TrainingJobStatus, 'memory'> {
  const memory = grownMemory(job, census);
  return memory ? { memory } : {};
}

/** A life that never trained leaves no place, and the next one begins as it did. */
const nextLife = ({ life = 1 }: TrainingJobStatus, place: string) => ({
  life: life + 1,
  ...(place === '' ? {} : { restore: place }),
});

/** Whether the job goes on in this life after a pause, of which the last pass had not seen the end. */
function resumes(before: TrainingJobStatus, stage: Stage): boolean {
  const pause = before.conditions?.find(({ type }) => type === 'Suspended');
  return stage === 'none' && !hasEnded(before) && pause !== undefined && pause.reason !== RESUMED;
}

/** The part of the status that the verdict needs: times and counts of this life. */
export function begun(observed: ObservedJob, census: Census, stage: Stage) {
  const { job, now } = observed;
  const before = job.status ?? {};
  const again = stage === 'returning';
  const { excusedPods: _, workerEnds: __, ...kept } = before;
  const { suspended, formed: ___, guarded: ____, ...rest } = kept;
  const formed = !again && hasFormed(observed, census);
  const ended = hasEnded(before);
  return {
    ...(again ? rest : ended ? before : kept),
    // A deadline begins anew after a pause, as that of a Job does.
    startTime: (again || resumes(before, stage) ? undefined : before.startTime) ?? timeOf(now),
    startPs: (again ? undefined : before.startPs) ?? wantedPs(job),
    startCheckpoint: (again ? undefined : before.startCheckpoint) ?? startPlan(job),
    ...(again && suspended ? nextLife(before, suspended.place) : {}),
    ...(formed ? { formed } : {}),
    ...(!ended && !isPaused(stage) && tellsGuard(observed, formed) ? { guarded: true } : {}),
    ...(ended ? {} : { ...failures(observed, census, before, { formed }), ...grown(job, census) }),
  };
}

/** Results of a pass. */
interface Passed {
  census: Census;
  start: ReturnType<typeof begun>;
  verdict: ReconcileVerdict;
  next: { ps: number; worker: number };
  making: TrainingJobStatus['making'];
  goal: ScalingGoal;
  stage: Stage;
  stuck: Stuck | undefined;
  queue: Queueing | undefined;
}

export const beginningOf = (start: ReturnType<typeof begun>): Beginning => {
  const { startPs, life = 1, restore, startCheckpoint: checkpoint } = start;
  return { startPs, life, restore, checkpoint };
};

function phaseOf(
  { job, report }: ObservedJob,
  { census, verdict, stage, goal }: Passed,
  scaler: string | undefined,
): JobPhase {
  const before = job.status?.phase;
  if (verdict.ended) return verdict.phase;
  if (stage === 'suspended') return 'Suspended';
  if (before === 'Running' || before === 'Scaling') return scaler === undefined ? 'Running' : 'Scaling';
  const formed = report !== undefined && report.redundancy !== 'forming';
  const trains = goal.workers === 0 || census.worker.some((one) => one.ready);
  return formed && trains ? 'Running' : 'Pending';
}

const selectorText = (selector: Record<string, string>): string =>
  Object.entries(selector)
    .map(([key, value]) => `${key}=${value}`)
    .join(',');

/** The status after a pass. A job that has ended keeps its outcome, whatever becomes of its Pods. */
export function statusOf(observed: ObservedJob, passed: Passed): TrainingJobStatus {
  const { job, report, now } = observed;
  const { census, start, verdict, next: nextIndex, making, goal, stage, stuck, queue } = passed;
  const ended = hasEnded(job.status);
  const scaling = ended || verdict.ended ? {} : scalingStatusOf(observed, census, goal);
  const phase = ended ? job.status!.phase! : phaseOf(observed, passed, scaling.currentScaler);
  const counts = (role: PodRole) => ({
    active: inState(census[role], 'active').length,
    ready: inState(census[role], 'active').filter((one) => one.ready).length,
    succeeded: inState(census[role], 'succeeded').length,
    failed: inState(census[role], 'failed').length,
  });
  const replicaStatuses = Object.fromEntries(ROLES.map((role) => [role, counts(role)]));
  const names = (role: PodRole) => inState(census[role], 'active').map(({ name }) => name);
  const unheard = observed.asking ? (start.redundancy ?? 'unknown') : 'unknown';
  const seen = report?.redundancy ?? (isPaused(stage) ? 'none' : unheard);
  const redundancy = ended || verdict.ended ? start.redundancy : seen;
  const suspended = savedFor(observed, stage, census);
  const progress = report?.progress ?? start.progress;
  const lastCheckpoint = report?.lastCheckpoint ?? start.lastCheckpoint;
  const conditions = ended
    ? (start.conditions ?? [])
    : since(
        [
          ...conditionsOf(observed, census, verdict, phase, goal, stage),
          ...queueCondition(queue),
          ...stuckCondition(job, stuck),
        ],
        ...([start.conditions, now, job.metadata.generation] as const),
      );
  const { currentScaler: _, change: __, targetPs: ___, making: ____, reason: before, ...more } = start;
  const { startTime, startPs, startCheckpoint, ...kept } = more;
  const failure = verdict.ended && verdict.phase === 'Failed' ? verdict.reason : undefined;
  const reason = ended ? before : (failure ?? stuck?.reason);
  // A job that is suspended before it began has no beginning.
  const never = stage === 'suspended' && job.status?.startPs === undefined;
  return {
    ...kept,
    ...scaling,
    ...(never ? {} : { startTime, startPs, startCheckpoint }),
    ...(suspended ? { suspended } : {}),
    ...{ phase, replicaStatuses, nextIndex, conditions },
    ...(making ? { making } : {}),
    ...(reason === undefined ? {} : { reason }),
    ...(job.metadata.generation === undefined ? {} : { observedGeneration: job.metadata.generation }),
    ...(verdict.ended && start.completionTime === undefined ? { completionTime: timeOf(now) } : {}),
    ...(ended ? {} : lastHeardOf(observed)),
    ...(redundancy === undefined ? {} : { redundancy }),
    ...(progress ? { progress } : {}),
    ...(verdict.ended && !ended ? { results: resultsOf(observed, census, start) } : {}),
    ...(lastCheckpoint ? { lastCheckpoint } : {}),
    ps: `${replicaStatuses.ps!.ready}/${goal.ps}`,
    workers: `${replicaStatuses.worker!.ready}/${goal.workers}`,
    workersActive: replicaStatuses.worker!.active,
    workerSelector: selectorText(selectorOf(job, 'worker')),
    currentPs: names('ps'),
    currentWorkers: names('worker'),
  };
}

/** Message of the event about the end of a job, which `kubectl describe` shows. */
export const outcomeOf = (job: TrainingJob, status: TrainingJobStatus): string =>
  status.conditions?.find(({ type }) => type === status.phase)?.message ?? job.metadata.name;
