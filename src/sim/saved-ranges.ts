/**
 * The samples of a checkpoint against its rows. A job that is restored from them trains every batch once:
 * what counts as finished is in the rows, nothing is that nobody has had, and the rest of open ranges can be
 * pushed under their sessions.
 */
import { isTombstone } from '../core/shared/dedup.js';
import type { SavedDataset } from '../protocol/checkpoints.js';
import type { PeerId } from '../protocol/map.js';
import { countBits, type SavedShardRows } from './oracle.js';
import { Violation } from './violation.js';

/** A range and which shards each of its batches is pushed to. */
interface PushedRange {
  range: { number: number };
  writer: number;
  batches: readonly (readonly { g: number; m: number }[])[];
}

export function checkRanges(
  saved: SavedDataset | undefined,
  shards: readonly SavedShardRows[],
  ranges: readonly PushedRange[],
  sessionOf: (range: number) => PeerId | undefined,
): void {
  const aside = new Set(saved?.setAside.map(({ number }) => number));
  for (const { range, writer, batches } of ranges) {
    const { number } = range;
    const open = saved?.open.find((each) => each.number === number);
    if (aside.has(number) && !open) continue;
    const isNew = number >= (saved?.next ?? 0);
    const session = sessionOf(number);
    for (const { g, m, sessions, maskOf } of shards) {
      const applied = countBits(maskOf(writer));
      const here = (count: number) =>
        batches.slice(0, count).flatMap((items) => items.filter((item) => item.g === g && item.m === m))
          .length;
      const what = `range ${number} in shard ${g}/${m} of a checkpoint`;
      if (isNew && applied > 0) throw new Violation(`${what}: nobody has had it, and it is in the rows`);
      if (isNew) continue;
      if (applied < here(open ? open.done : batches.length))
        throw new Violation(`${what}: of ${open ? open.done : 'all'} batches ${applied} pushes are there`);
      if (!open) continue;
      if (session !== undefined && open.session !== session) throw new Violation(`${what}: another session`);
      const hasEnded = sessions.some(
        (entry) => isTombstone(entry) && entry[0] <= open.session && open.session <= entry[1],
      );
      if (hasEnded) throw new Violation(`${what}: its session has ended there`);
    }
  }
}

/** Of a cut of one instant: the rows of every shard have exactly the batches that are called done. */
export function checkExact(
  saved: SavedDataset | undefined,
  shards: readonly SavedShardRows[],
  ranges: readonly PushedRange[],
): void {
  for (const { range, writer, batches } of ranges) {
    const open = saved?.open.find((each) => each.number === range.number);
    if (!open) continue;
    for (const { g, m, maskOf } of shards) {
      const items = batches.slice(0, open.done).flat();
      const done = items.filter((item) => item.g === g && item.m === m).length;
      const applied = countBits(maskOf(writer));
      if (applied !== done)
        throw new Violation(
          `a checkpoint of one instant has ${applied} pushes of range ${range.number} in shard ${g}/${m}, ` +
            `and calls ${done} of them done`,
        );
    }
  }
}
