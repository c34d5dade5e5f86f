/** Rates between observations, and trends through many. */
import type { Observation } from './observation.js';

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length % 2 === 1) return sorted[middle]!;
  return ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
}

/** At most so many points go into a slope: its work grows with their square. */
const MOST_POINTS = 30;

/**
 * The median of the slopes between all pairs of points (Theil-Sen): up to 29 % of the points may be anything.
 * 0 of fewer than two points.
 */
export function theilSen(points: readonly (readonly [x: number, y: number])[]): number {
  const every = Math.ceil(points.length / MOST_POINTS);
  const kept = points.filter((_, i) => (points.length - 1 - i) % every === 0);
  const slopes: number[] = [];
  for (let i = 0; i < kept.length; i++) {
    for (let j = i + 1; j < kept.length; j++) {
      const run = kept[j]![0] - kept[i]![0];
      if (run > 0) slopes.push((kept[j]![1] - kept[i]![1]) / run);
    }
  }
  return slopes.length === 0 ? 0 : median(slopes);
}

/** Observations of the last `seconds`, and the one before them. */
export function recent(seen: readonly Observation[], seconds: number): readonly Observation[] {
  const now = seen.at(-1)?.at ?? 0;
  const first = seen.findIndex(({ at }) => at >= now - seconds);
  return first < 0 ? [] : seen.slice(first);
}

/** Samples per second from the first to the last. NaN of less than two. */
export function throughput(seen: readonly Observation[]): number {
  const first = seen[0];
  const last = seen.at(-1);
  return first && last && last.at > first.at
    ? (last.samples - first.samples) / (last.at - first.at)
    : Number.NaN;
}

/** By id: what grew between two lists of counters, for those that are in both. */
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

/** The longest time that processes were waited for, in all that is remembered: 0 when none was. */
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
