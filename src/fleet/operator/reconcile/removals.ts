/** Deletes Pods of a job that goes on, when nobody needs them any more. */

import type { Pod } from '../objects.js';
import { type Census, containerIn, inState, type Member } from './census.js';
import { deletion } from './deletion.js';
import { forgotten } from './excused.js';
import type { Action, ObservedJob } from './observed.js';
import { staying } from './scaling/asks.js';
import type { ScalingGoal } from './scaling/goal.js';

/**
 * Reasons of a container that begins any moment. It may begin before the deletion, and then miss that it is
 * to end.
 */
const BEGINNING: ReadonlySet<string> = new Set(['ContainerCreating', 'PodInitializing']);

/** Whether a Pod waits for a machine, or cannot begin on the one that it has. */
function neverBegan(pod: Pod): boolean {
  const { status, spec } = pod;
  if ((status?.phase ?? 'Pending') !== 'Pending') return false;
  if (spec.nodeName === undefined) return true;
  const container = containerIn(pod);
  const why = container?.state?.waiting?.reason;
  return why !== undefined && !BEGINNING.has(why) && container?.lastState?.terminated === undefined;
}

/** PS that are too many, or are to go, and never held anything. Others are emptied when they have joined. */
function neverServed(census: Census, goal: ScalingGoal): Member[] {
  const fresh = inState(census.ps, 'active').filter(({ pod }) => neverBegan(pod));
  const going = fresh.filter(({ name }) => goal.leaving.has(name));
  const surplus = staying(census.ps, goal).length - goal.ps;
  const stay = fresh.filter(({ name }) => !goal.leaving.has(name));
  return surplus > 0 ? [...going, ...stay.slice(-surplus)] : going;
}

/**
 * PS that were killed for want of memory, while they do not run: they hold nothing. They go when others serve
 * in their place. A PS that runs again meanwhile is another version, and stays. Where that version is not
 * written yet, the PS is told to end, and hands over.
 */
function starvedOnes(census: Census, goal: ScalingGoal): Member[] {
  const ready = staying(census.ps, goal).filter((one) => one.ready).length;
  if (ready < goal.ps) return [];
  return inState(census.ps, 'active').filter(({ starved, runs }) => starved !== undefined && !runs);
}

export function removals(observed: ObservedJob, census: Census, goal: ScalingGoal): Action[] {
  const { failedPods, excusedPods } = observed.job.status ?? {};
  const counted = new Set(failedPods);
  const workers = staying(census.worker, goal);
  const surplus = workers.length - goal.workers;
  return [
    ...[
      ...inState(census.ps, 'succeeded', 'lost'),
      // A failed PS is counted before it goes.
      ...inState(census.ps, 'failed').filter(
        (one) => one.disrupted || one.starved === 'grows' || counted.has(one.name),
      ),
      ...inState(census.worker, 'lost'),
      ...inState(census.worker, 'succeeded', 'failed').filter((one) => one.disrupted),
      ...forgotten(census, excusedPods),
      // A worker that is deleted hands its samples back. Those that failed stay for their logs.
      ...(surplus > 0 ? workers.slice(-surplus) : []),
      ...inState(census.worker, 'active').filter(({ name }) => goal.leaving.has(name)),
    ].map((one) => deletion(one)),
    ...[...neverServed(census, goal), ...starvedOnes(census, goal)].map((one) => ({
      ...deletion(one),
      asObserved: true as const,
    })),
  ];
}
