/** Rates between observations, and trends through many. */
import type { Observation } from './observation.js';

/** Observations of the last `seconds`. */
export function recent(seen: readonly Observation[], seconds: number): readonly Observation[] {
  const now = seen.at(-1)?.at ?? 0;
  const first = seen.findIndex(({ at }) => at >= now - seconds);
  return first < 0 ? [] : seen.slice(first);
}

/** Samples per second from the first to the last. NaN where there are fewer than two. */
export function throughput(seen: readonly Observation[]): number {
  const first = seen[0];
  const last = seen.at(-1);
  return first && last && last.at > first.at
    ? (last.samples - first.samples) / (last.at - first.at)
    : Number.NaN;
}

/** Pairs of counters, by id, for those that are in both lists. */
export function grown<T extends { id: string }>(
  before: readonly T[],
  after: readonly T[],
): { id: string; before: T; after: T }[] {
  const known = new Map(before.map((one) => [one.id, one]));
  return after.flatMap((one) => {
    const old = known.get(one.id);
    return old === undefined ? [] : [{ id: one.id, before: old, after: one }];
  });
}

/** How busy each PS was, as a share of one processor. Those that joined meanwhile are left out. */
export function busyPs(seen: readonly Observation[]): { id: string; busy: number }[] {
  const first = seen[0];
  const last = seen.at(-1);
  if (!first || !last || last.at <= first.at) return [];
  return grown(first.ps, last.ps).map(({ id, before, after }) => ({
    id,
    busy: Math.max(0, after.cpu - before.cpu) / (last.at - first.at),
  }));
}

/** Seconds of the longest wait for processes in all that is remembered; 0: there was none. */
export function longestPending(seen: readonly Observation[]): number {
  let longest = 0;
  let since: number | undefined;
  for (const { at, pendingPs, pendingWorkers } of seen) {
    if (pendingPs + pendingWorkers > 0) {
      since ??= at;
      longest = Math.max(longest, at - since);
    } else {
      if (since !== undefined) longest = Math.max(longest, at - since);
      since = undefined;
    }
  }
  return longest;
}
