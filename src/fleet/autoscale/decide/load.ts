/** PS that are hot, and PS that are not needed. */
import { outlook, psFor } from './memory.js';
import type { Decision, History } from './observation.js';
import type { AutoscalePolicy } from './policy.js';
import { busyPs, recent } from './trend.js';

const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

/** Whether a rebalance was decided in the last `seconds`, and since the number of PS last changed. */
function rebalancedLately({ seen, taken }: History, seconds: number): boolean {
  const now = seen.at(-1)!.at;
  const scaled = taken.findLast(({ decision }) => decision.kind === 'ps')?.at ?? Number.NEGATIVE_INFINITY;
  return taken.some(({ at, decision }) => decision.kind === 'rebalance' && at > now - seconds && at > scaled);
}

/**
 * Evens the load out when a PS is busier than `hot`, or overloaded, and others are not; otherwise adds PS. A
 * PS may be overloaded although its processor is not busy all the time: its machine may be.
 */
export function hot(history: History, policy: AutoscalePolicy): Decision | undefined {
  const now = history.seen.at(-1)!;
  const busy = busyPs(recent(history.seen, policy.window)).map((one) => one.busy);
  if (busy.length < now.ps.length) return undefined;
  const hottest = Math.max(...busy);
  const average = mean(busy);
  const overloaded = now.ps.filter((one) => one.overloaded).length;
  if (hottest < policy.hot && overloaded === 0) return undefined;
  const numbers = { hottest, mean: average, ...(overloaded > 0 && { overloaded }) };
  const what = overloaded > 0 ? 'overloaded' : 'hot';
  if (average < policy.uneven && !rebalancedLately(history, policy.idleFor)) {
    return { kind: 'rebalance', reason: `a PS is ${what} and others are not`, numbers };
  }
  const count = now.ps.length;
  // Load that a rebalance did not even out stays uneven, so the hottest PS counts, too.
  const wanted = Math.ceil((count * Math.max(average, hottest * 0.9)) / policy.busy);
  const to = Math.min(policy.ps.most, Math.max(count + 1, Math.min(wanted, count * 2)));
  if (to <= count) return undefined;
  return { kind: 'ps', from: count, to, reason: `a PS is ${what}`, numbers };
}

/** Removes PS when those that stay have memory and time for all, now and for `idleFor` seconds. */
export function shrink(history: History, policy: AutoscalePolicy): Decision | undefined {
  const { seen, taken } = history;
  const now = seen.at(-1)!;
  const count = now.ps.length;
  const long = recent(seen, policy.idleFor);
  if (count <= policy.ps.least || now.at - (long[0]?.at ?? now.at) < policy.idleFor * 0.9) return undefined;
  const scaled = taken.findLast(({ decision }) => decision.kind === 'ps')?.at;
  if (scaled !== undefined && now.at - scaled < policy.idleFor) return undefined;
  if (long.some(({ ps }) => ps.length !== count)) return undefined;
  const busy = busyPs(long).map((one) => one.busy);
  const short = busyPs(recent(seen, policy.window)).map((one) => one.busy);
  const hottest = Math.max(0, ...busy, ...short);
  const byLoad = Math.ceil((count * hottest) / policy.idleBusy);
  const view = outlook(history, policy);
  const byMemory = view ? psFor(view, count, 2 * policy.moves * view.move, policy.idleFull) : 1;
  const to = Math.max(policy.ps.least, byLoad, byMemory);
  if (to >= count) return undefined;
  return {
    kind: 'ps',
    from: count,
    to,
    reason: 'fewer PS have memory and time for all',
    numbers: { hottest, fullest: view?.fullest ?? 0 },
  };
}
