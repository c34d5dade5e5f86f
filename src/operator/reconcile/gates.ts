/**
 * The readiness of PS tells whether one may be taken: all of them are ready while the job is redundant and
 * nothing moves, and else none is, so that a disruption budget lets no eviction through. One of them alone
 * would be no use: a budget lets a Pod go that is not ready while enough others are.
 */
import { type Census, inState } from './census.js';
import { REDUNDANT_GATE } from './names.js';
import type { Action, Observed } from './observed.js';
import { isMoving } from './scaling/asks.js';
import type { Goal } from './scaling/goal.js';

export function gates(observed: Observed, census: Census, goal: Goal): Action[] {
  const { report } = observed;
  const scheduler = census.scheduler.some(({ ready, state }) => ready && state === 'active');
  // A job that was not asked yet, or is just not heard, stays as it was told.
  if (!report && scheduler) return [];
  const alive = new Set(report?.nodes.filter((one) => one.alive).map(({ name }) => name));
  const spare = report?.redundancy === 'full' && !isMoving(observed, census, goal);
  return inState(census.ps, 'active').flatMap(({ pod, name }): Action[] => {
    const told = pod.status?.conditions?.find(({ type }) => type === REDUNDANT_GATE)?.status === 'True';
    const open = spare && alive.has(name);
    return told === open ? [] : [{ kind: 'gate', pod, open }];
  });
}
