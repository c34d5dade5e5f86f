/** The two decisions of a change of owner (rules 19-21), as pure functions. */
import type { Extent } from '../../native.js';
import type { Follower } from './follower.js';

/**
 * The position to start from: the minimum over the sinks that follow the shard. Every acknowledged push is in
 * all of them, so it is at or below the minimum, and nothing acknowledged is rolled back. Undefined: nobody
 * has the shard.
 */
export function agreedBase(followers: Iterable<Follower>): number | undefined {
  let base: number | undefined;
  for (const follower of followers) {
    if (follower.none) continue;
    base = base === undefined ? follower.applied : Math.min(base, follower.applied);
  }
  return base;
}

/** The oldest generation that a sink with a stream of the shard follows. */
export function oldestStream(followers: Iterable<Follower>): number {
  let oldest = Number.POSITIVE_INFINITY;
  for (const { none, sgen } of followers) if (!none) oldest = Math.min(oldest, sgen);
  return oldest;
}

/**
 * The highest extent of each table that any sink has seen: a rolled-back push leaves zeros in the slots
 * above, which is the state of slots that were never used.
 */
export function mergeExtents(followers: Iterable<Follower>): Extent[] {
  const merged = new Map<number, Extent>();
  for (const follower of followers) {
    for (const [table, stride, extent] of follower.extents) {
      const known = merged.get(table);
      merged.set(table, [table, stride, Math.max(extent, known?.[2] ?? 0)]);
    }
  }
  return [...merged.values()];
}
