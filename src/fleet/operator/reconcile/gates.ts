/**
 * Gates of PS: their readiness tells whether one may be taken. All of them are ready while the job is
 * redundant and nothing moves, and else none is, so that a disruption budget lets no eviction through. A
 * single unready PS would be no use: a budget lets a Pod go that is not ready while enough others are.
 */
import { type Census, inState } from './census.js';
import { REDUNDANT_GATE } from './names.js';
import type { Action, ObservedJob } from './observed.js';
import { isMoving } from './scaling/asks.js';
import type { ScalingGoal } from './scaling/goal.js';

export function gates(observed: ObservedJob, census: Census, goal: ScalingGoal): Action[] {
  const { report } = observed;
  const scheduler = census.scheduler.some(({ ready, state }) => ready && state === 'active');
  // Gates stay as they are while a scheduler runs and the job was not asked yet, or is just not heard.
  if (!report && scheduler) return [];
  const alive = new Set(report?.nodes.filter((one) => one.alive).map(({ name }) => name));
  const spare = report?.redundancy === 'full' && !isMoving(observed, census, goal);
  return inState(census.ps, 'active').flatMap(({ pod, name }): Action[] => {
    const told = pod.status?.conditions?.find(({ type }) => type === REDUNDANT_GATE)?.status === 'True';
    const open = spare && alive.has(name);
    return told === open ? [] : [{ kind: 'gate', pod, open }];
  });
}
