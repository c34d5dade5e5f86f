/**
 * Decides what to do next, from what was seen and what was done. Pure. At most one thing at a time: a
 * decision is judged by what it changed, and two at once could not be told apart. docs/planning.md has the
 * rules.
 */
import { hot, shrink } from './load.js';
import { memory } from './memory.js';
import type { Decision, History } from './observation.js';
import type { AutoscalePolicy } from './policy.js';
import { idle, stragglers, workers } from './workers.js';

const HOUR = 3600;

/** Size of a job before anything was seen: the least that the bounds allow. */
export function firstSize({ ps, workers: bounds }: AutoscalePolicy): { ps: number; workers: number } {
  return { ps: ps.least, workers: bounds.least };
}

/** Brings a count that is outside of its bounds into them. */
function bounds(history: History, policy: AutoscalePolicy): Decision | undefined {
  const now = history.seen.at(-1)!;
  const sides = [
    ['ps', now.ps.length + now.pendingPs, policy.ps],
    ['workers', now.workers.length + now.pendingWorkers, policy.workers],
  ] as const;
  for (const [kind, from, { least, most }] of sides) {
    if (kind === 'workers' && policy.leaveWorkers) continue;
    const to = Math.min(most, Math.max(least, from));
    if (to !== from) return { kind, from, to, reason: 'outside of the bounds', numbers: { least, most } };
  }
  return undefined;
}

/**
 * Makes at most one decision. Counts outside of their bounds, and memory, come first: memory waits only for a
 * change of PS that is under way. The rest waits until the last decision has settled, nothing is pending or
 * moving, and the budget of the hour allows it.
 */
export function decide(history: History, policy: AutoscalePolicy): Decision[] {
  const { seen, taken } = history;
  const now = seen.at(-1);
  if (!now) return [];
  const urgent = bounds(history, policy) ?? memory(history, policy);
  if (urgent) return [urgent];
  const last = taken.at(-1)?.at ?? Number.NEGATIVE_INFINITY;
  if (now.at - last < policy.settle) return [];
  if (now.pendingPs > 0 || now.pendingWorkers > 0 || now.changing) return [];
  if (taken.filter(({ at }) => at > now.at - HOUR).length >= policy.budgetPerHour) return [];
  const ofWorkers = (rule: typeof workers) => (policy.leaveWorkers ? undefined : rule(history, policy));
  const decision =
    ofWorkers(stragglers) ??
    hot(history, policy) ??
    ofWorkers(idle) ??
    ofWorkers(workers) ??
    shrink(history, policy);
  return decision ? [decision] : [];
}
