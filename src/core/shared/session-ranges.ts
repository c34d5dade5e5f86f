/**
 * Ranges of ids of ended sessions. Rule 31: nodes are told of ends as ranges of ids that are not open. Ids
 * only grow and are never reused, so an id below the next one that is not open has ended, or was never that
 * of a session.
 */
import type { PeerId } from '../../protocol/map.js';

export type SessionRange = [first: PeerId, last: PeerId];

/** The gaps between the open ids, which ascend, up to `next`: all ids that are not open. */
export function rangesBetween(open: Iterable<PeerId>, next: PeerId): SessionRange[] {
  const ranges: SessionRange[] = [];
  let first = 1;
  const add = (until: PeerId): void => {
    if (first < until) ranges.push([first, until - 1]);
    first = until + 1;
  };
  for (const id of open) if (id < next) add(id);
  add(next);
  return ranges;
}

/** The ascending `ranges` that contain at least one of the ids. */
export function rangesAround(ids: readonly PeerId[], ranges: readonly SessionRange[]): SessionRange[] {
  const sorted = [...ids].sort((a, b) => a - b);
  let at = 0;
  return ranges.filter(([first, last]) => {
    while (at < sorted.length && sorted[at]! < first) at++;
    return at < sorted.length && sorted[at]! <= last;
  });
}
