/**
 * The decisions of a take-over, as pure functions. Rules 19-21: a new owner waits for the promises of all
 * sinks, has them all go to the minimum of their positions, and is active then.
 */
import type { Extent } from '../../engine/native.js';
import type { Follower } from './follower.js';

/**
 * The base: the minimum position of the sinks that have a stream of the shard. Every acknowledged push is in
 * all of them, so it is at or below the base, and no acknowledged push is rolled back. Undefined: no sink has
 * the shard.
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
 * The highest extent of each table in any sink. A push that was rolled back leaves zeros in the slots above,
 * which is the state of slots that were never used.
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
