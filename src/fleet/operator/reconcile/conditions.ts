/** The conditions of a job: each a question that is answered by yes, no or unknown, with the reason. */
import type { ObjectCondition } from '../objects.js';
import type { JobPhase } from '../types.js';
import { zoneProblem } from './apart.js';
import { type Census, inState } from './census.js';
import { foreignCondition } from './foreign.js';
import { hearing } from './hearing.js';
import type { ObservedJob } from './observed.js';
import type { ScalingGoal } from './scaling/goal.js';
import { scalingOf } from './scaling/progress.js';
import { isPaused, type Stage } from './suspension.js';
import { timeOf } from './time.js';
import { describeEnd, ownFailures, type ReconcileVerdict } from './verdict.js';

/** Reason of a job that was paused, and is not any more. */
export const RESUMED = 'Resumed';

/** Progress of a job with its pause: a reason and a message. */
function suspension({ job, saved }: ObservedJob, stage: Stage): [string, string?] {
  const { suspended } = job.status ?? {};
  switch (stage) {
    case 'stopping':
      return ['StoppingWorkers', 'workers hand back the samples that they have not trained'];
    case 'saving':
      return saved?.problem ? ['SaveFailed', saved.problem] : ['Saving', 'a checkpoint is made'];
    case 'held':
      return ['NoCheckpoint', 'spec.checkpoint names no place: workers have stopped, PS keep what they hold'];
    case 'ending':
      return suspended?.checkpoint === undefined
        ? ['Ending', 'nothing was trained since it began']
        : ['Ending', `checkpoint ${suspended.checkpoint} is complete`];
    case 'suspended':
      if (suspended && suspended.checkpoint === undefined) return ['NotBegun'];
      return suspended
        ? ['Saved', `it goes on with checkpoint ${suspended.checkpoint} or a newer one of ${suspended.place}`]
        : ['NotBegun'];
    default:
      return [RESUMED];
  }
}

function redundant({ job, report, asking }: ObservedJob, census: Census): ObjectCondition {
  const type = 'Redundant';
  const before = job.status?.conditions?.find((one) => one.type === type);
  if (asking && before) return before;
  if (!report) return { type, status: 'Unknown', reason: 'Unknown' };
  const { redundancy, reasons } = report;
  const zoneless = redundancy === 'full' ? zoneProblem(job, census) : undefined;
  if (zoneless !== undefined) return { type, status: 'False', reason: 'NoZones', message: zoneless };
  const reason = redundancy.replace(/^./, (first) => first.toUpperCase());
  const message = reasons.slice(0, 3).join('; ');
  const status = redundancy === 'full' ? 'True' : 'False';
  return { type, status, reason, ...(message ? { message } : {}) };
}

/** The condition of a job whose checkpoints fail, or did. While it does not answer nothing is known anew. */
function checkpointing({ job, report }: ObservedJob): ObjectCondition[] {
  const type = 'Checkpointing';
  const before = job.status?.conditions?.filter((one) => one.type === type) ?? [];
  const message = report?.checkpointProblem;
  if (message !== undefined) return [{ type, status: 'False', reason: 'Failing', message }];
  return report && before.length > 0 ? [{ type, status: 'True', reason: 'Made' }] : before;
}

export function conditionsOf(
  observed: ObservedJob,
  census: Census,
  verdict: ReconcileVerdict,
  phase: JobPhase,
  goal: ScalingGoal,
  stage: Stage,
): ObjectCondition[] {
  const { job } = observed;
  const is = (type: string, status: boolean | undefined, reason: string, message = ''): ObjectCondition => ({
    ...{ type, status: status === undefined ? 'Unknown' : status ? 'True' : 'False', reason },
    ...(message ? { message } : {}),
  });
  const list = [
    ...hearing(observed, census, phase, isPaused(stage)),
    redundant(observed, census),
    ...checkpointing(observed),
    is('Scaling', ...scalingOf(observed, census, goal, verdict.ended)),
  ];
  const foreign = foreignCondition(observed, census);
  if (foreign) list.push(foreign);
  const [reason, message] = suspension(observed, stage);
  if (stage !== 'none' || job.status?.conditions?.some(({ type }) => type === 'Suspended'))
    list.push(is('Suspended', stage === 'suspended', reason, message));
  const failed = ownFailures([...census.ps, ...census.worker]).at(-1);
  if ((job.status?.restartCount ?? 0) > 0 || failed) {
    const missing = !verdict.ended && inState(census.worker, 'active').length < goal.workers;
    list.push(
      is(
        'Restarting',
        missing && failed !== undefined,
        missing && failed ? 'PodFailed' : 'Settled',
        failed && describeEnd(failed),
      ),
    );
  }
  if (verdict.ended && verdict.phase === 'Succeeded')
    list.push(is('Succeeded', true, 'Complete', verdict.message));
  if (verdict.ended && verdict.phase === 'Failed')
    list.push(is('Failed', true, verdict.reason, verdict.message));
  return list;
}

/**
 * Conditions with their times and the generation of the spec: the time of one whose status is the same stays,
 * and so does the generation of one that holds until the job was asked.
 */
export function since(
  conditions: readonly ObjectCondition[],
  before: readonly ObjectCondition[] = [],
  now: number,
  generation?: number,
) {
  return conditions.map((one) => {
    const old = before.find(({ type }) => type === one.type);
    const same = old?.status === one.status && old.lastTransitionTime !== undefined;
    const observedGeneration = one.observedGeneration ?? generation;
    return {
      ...one,
      lastTransitionTime: same ? old.lastTransitionTime! : timeOf(now),
      ...(observedGeneration === undefined ? {} : { observedGeneration }),
    };
  });
}
