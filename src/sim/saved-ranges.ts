/**
 * The samples of a checkpoint compared with its rows. A job that is restored from them trains every batch
 * once: finished batches are in the rows, batches of ranges that nobody has had are not, and the rest of open
 * ranges can be pushed under their sessions.
 *
 * A running job that loads a lost shard reports that, and has older rows there from then on. Its checkpoints
 * lack the pushes that the shard has lost, and so do those of a job that is restored from one of them.
 */
import { isTombstone } from '../core/shared/dedup.js';
import type { SavedDataset } from '../protocol/checkpoints.js';
import type { PeerId } from '../protocol/map.js';
import type { SavedShardRows } from './oracle.js';
import { bit } from './tables.js';
import { Violation } from './violation.js';

/** A range, with the shards that each of its batches is pushed to. */
interface PushedRange {
  range: { number: number };
  writer: number;
  batches: readonly (readonly { g: number; m: number }[])[];
}

/** Bit masks of pushes, by range and shard ("range g/m"). */
export type PushMasks = ReadonlyMap<string, { missing: number; extra: number }>;

function keyOf({ range }: PushedRange, { g, m }: SavedShardRows): string {
  return `${range.number} ${g}/${m}`;
}

/** The pushes to a shard of the batches that count as done. */
function pushesOf(
  { range, batches }: PushedRange,
  { g, m }: SavedShardRows,
  saved: SavedDataset | undefined,
): number {
  const { number } = range;
  const isNew = number >= (saved?.next ?? 0);
  const open = saved?.open.find((each) => each.number === number);
  const done = isNew ? 0 : (open?.done ?? batches.length);
  const items = batches.slice(0, done).flat();
  const count = items.filter((item) => item.g === g && item.m === m).length;
  return bit(count + 1) - bit(1);
}

/** Differences between the rows of a checkpoint and its samples. */
export function differences(
  saved: SavedDataset | undefined,
  shards: readonly SavedShardRows[],
  ranges: readonly PushedRange[],
): PushMasks {
  const masks = new Map<string, { missing: number; extra: number }>();
  for (const range of ranges)
    for (const shard of shards) {
      const [done, applied] = [pushesOf(range, shard, saved), shard.maskOf(range.writer)];
      masks.set(keyOf(range, shard), { missing: done & ~applied, extra: applied & ~done });
    }
  return masks;
}

/** Checks the ranges of a checkpoint. `before`: differences of the one that the job was restored from. */
export function checkRanges(
  saved: SavedDataset | undefined,
  shards: readonly SavedShardRows[],
  ranges: readonly PushedRange[],
  sessionOf: (range: number) => PeerId | undefined,
  before: PushMasks,
): void {
  const aside = new Set(saved?.setAside.map(({ number }) => number));
  for (const each of ranges) {
    const { number } = each.range;
    const open = saved?.open.find((range) => range.number === number);
    if (aside.has(number) && !open) continue;
    const isNew = number >= (saved?.next ?? 0);
    const session = sessionOf(number);
    for (const shard of shards) {
      const { g, m, sessions } = shard;
      const applied = shard.maskOf(each.writer);
      const what = `range ${number} in shard ${g}/${m} of a checkpoint`;
      if (isNew && applied > 0) throw new Violation(`${what}: nobody has had it, and it is in the rows`);
      if (isNew) continue;
      const lost = before.get(keyOf(each, shard))?.missing ?? 0;
      if ((pushesOf(each, shard, saved) & ~(applied | lost)) !== 0)
        throw new Violation(`${what}: of ${open ? open.done : 'all'} batches the rows have ${applied}`);
      if (!open) continue;
      if (session !== undefined && open.session !== session) throw new Violation(`${what}: another session`);
      const hasEnded = sessions.some(
        (entry) => isTombstone(entry) && entry[0] <= open.session && open.session <= entry[1],
      );
      if (hasEnded) throw new Violation(`${what}: its session has ended there`);
    }
  }
}

/** Checks a cut of one instant: the rows of every shard have exactly the batches that are called done. */
export function checkExact(
  saved: SavedDataset | undefined,
  shards: readonly SavedShardRows[],
  ranges: readonly PushedRange[],
  before: PushMasks,
): void {
  for (const range of ranges) {
    const { number } = range.range;
    if (!saved?.open.some((open) => open.number === number)) continue;
    for (const shard of shards) {
      const applied = shard.maskOf(range.writer);
      const { missing, extra } = before.get(keyOf(range, shard)) ?? { missing: 0, extra: 0 };
      if (applied !== ((pushesOf(range, shard, saved) & ~missing) | extra))
        throw new Violation(
          `a checkpoint of one instant has the pushes ${applied} of range ${number} in shard ` +
            `${shard.g}/${shard.m}, which are not those of its batches that are done`,
        );
    }
  }
}
