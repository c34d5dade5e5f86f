/** Pods of a job that goes on and that nobody needs any more. */

import type { Pod } from '../objects.js';
import { type Census, inState, type Member } from './census.js';
import { deletion } from './deletion.js';
import type { Action, Observed } from './observed.js';
import { staying } from './scaling/asks.js';
import type { Goal } from './scaling/goal.js';

/** Reasons of a container that begins any moment: it may not hear that it is to end. */
const BEGINNING: ReadonlySet<string> = new Set(['ContainerCreating', 'PodInitializing']);

/** It waits for a machine, or cannot begin on the one that it has. */
function neverBegan({ status, spec }: Pod): boolean {
  if ((status?.phase ?? 'Pending') !== 'Pending') return false;
  if (spec.nodeName === undefined) return true;
  const [container] = status?.containerStatuses ?? [];
  const why = container?.state?.waiting?.reason;
  return why !== undefined && !BEGINNING.has(why) && container?.lastState?.terminated === undefined;
}

/** PS that are too many, or are to go, and never held anything. Others are emptied when they have joined. */
function neverServed(census: Census, goal: Goal): Member[] {
  const fresh = inState(census.ps, 'active').filter(({ pod }) => neverBegan(pod));
  const going = fresh.filter(({ name }) => goal.leaving.has(name));
  const surplus = staying(census.ps, goal).length - goal.ps;
  const stay = fresh.filter(({ name }) => !goal.leaving.has(name));
  return surplus > 0 ? [...going, ...stay.slice(-surplus)] : going;
}

/**
 * PS that were killed for want of memory, while they do not run: they hold nothing. They go when others serve
 * in their place. One that runs again meanwhile is another version; one of which even that is not written yet
 * is told to end, and hands over.
 */
function starvedOnes(census: Census, goal: Goal): Member[] {
  const ready = staying(census.ps, goal).filter((one) => one.ready).length;
  if (ready < goal.ps) return [];
  return inState(census.ps, 'active').filter(({ starved, runs }) => starved !== undefined && !runs);
}

export function removals(observed: Observed, census: Census, goal: Goal): Action[] {
  const counted = new Set(observed.job.status?.failedPods);
  const workers = staying(census.worker, goal);
  const surplus = workers.length - goal.workers;
  return [
    ...[
      ...inState(census.ps, 'succeeded', 'lost'),
      // One that failed is counted before it goes.
      ...inState(census.ps, 'failed').filter(
        (one) => one.disrupted || one.starved === 'grows' || counted.has(one.name),
      ),
      ...inState(census.worker, 'lost'),
      ...inState(census.worker, 'succeeded', 'failed').filter((one) => one.disrupted),
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
