/** Progress of a job that scales, as its status tells it. */
import type { TrainingJobStatus } from '../../types.js';
import type { Census } from '../census.js';
import { wantedPs } from '../names.js';
import type { ObservedJob } from '../observed.js';
import { askedFor, joined, runningScale, staying } from './asks.js';
import type { ScalingGoal } from './goal.js';

type ScalingProgress = Pick<TrainingJobStatus, 'currentScaler' | 'change' | 'targetPs' | 'sizePs'>;

/** The number of PS that the job has, or had before it began to scale. */
function sizeOf(observed: ObservedJob, census: Census, { ps, leaving }: ScalingGoal): number {
  const before = observed.job.status?.sizePs ?? observed.job.status?.startPs ?? wantedPs(observed.job);
  const serving = joined(observed, census.ps).filter(({ name }) => !leaving.has(name)).length;
  const settled = serving === ps && staying(census.ps, { leaving }).length === ps && !runningScale(observed);
  return settled ? ps : before;
}

function changeOf({ report }: ObservedJob): ScalingProgress['change'] {
  const change = report?.changes.findLast(({ state }) => state === 'running') ?? report?.changes.at(-1);
  if (!change) return undefined;
  const { leaving: _, reason, ...rest } = change;
  return { ...rest, ...(reason ? { reason } : {}) };
}

/**
 * Names of PS that are there now and stay. Where there are too many, the job says which go; else the newest
 * do.
 */
function targetOf({ report }: ObservedJob, census: Census, goal: ScalingGoal): string[] {
  const told = new Set(
    report?.changes.filter(({ state }) => state === 'running').flatMap(({ leaving }) => leaving),
  );
  return staying(census.ps, goal)
    .map(({ name }) => name)
    .filter((name) => !told.has(name))
    .slice(0, goal.ps);
}

export function scalingStatusOf(observed: ObservedJob, census: Census, goal: ScalingGoal): ScalingProgress {
  const { current } = goal;
  const sizePs = sizeOf(observed, census, goal);
  const change = changeOf(observed);
  const edited = sizePs !== goal.ps ? 'edit' : undefined;
  const currentScaler = current ? `${current.scaler.kind} ${current.scaler.metadata.name}` : edited;
  return {
    ...{ sizePs, targetPs: targetOf(observed, census, goal) },
    ...(change ? { change } : {}),
    ...(currentScaler ? { currentScaler } : {}),
  };
}

/** The condition "Scaling": status, reason and message. */
export function scalingOf(
  observed: ObservedJob,
  census: Census,
  goal: ScalingGoal,
  ended: boolean,
): [status: boolean, reason: string, message?: string] {
  const { current, ps, leaving } = goal;
  const active = staying(census.ps, goal).length;
  const changing = observed.report?.changing === true;
  const draining = active > ps || leaving.size > 0;
  const status = !ended && (draining || changing || current !== undefined);
  const problem = current ? current.scaler.status?.message : askedFor(observed, `scale ${ps}`)?.problem;
  const refused = current?.scaler.status?.reason === 'Refused';
  if (!ended && problem !== undefined) return [status, refused ? 'Refused' : 'TakenBack', problem];
  const reason = draining ? 'Draining' : changing ? 'Moving' : current ? 'Scaling' : 'Settled';
  return [status, reason];
}
