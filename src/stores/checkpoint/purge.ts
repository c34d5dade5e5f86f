/**
 * A purge: after it, a place has the rows of its newest checkpoint and no other byte of rows. The newest
 * checkpoint is written again where its files have rows that were replaced or deleted, or of keys that are to
 * be forgotten. Then all other checkpoints go, and all files that the new one does not list.
 *
 * The new manifest is there before anything is removed, so a place restores at every moment of it. A purge
 * that was ended is begun again from its start. A job that writes to the place finds its number taken, as by
 * a compaction: its next checkpoint has all rows.
 */
import { type ErrorCode, KintsugiError } from '../../common/errors.js';
import { checkpointOfSegment } from '../../protocol/checkpoints.js';
import { checkpointNumbers, type Listing, listPlace } from './checkpoints.js';
import { compactCheckpoint } from './compact.js';
import { DirectoryPlace } from './directory.js';
import type { LiveOptions } from './live-rows.js';
import type { Place } from './place.js';
import { keepOnly, type Removed } from './retention.js';

/** The result of a purge. */
export interface Purged {
  /** Number of the newest checkpoint, which the place has now. */
  number: number;
  /** The checkpoint whose rows it has; absent: it did not have to be written again. */
  compactionOf?: number;
  rows: number;
  bytes: number;
  removed: Removed;
}

/** Checkpoints that a job may write in the middle of a purge before the purge gives up. */
const ATTEMPTS = 8;

/**
 * Purges a place: rows that were replaced or deleted before its newest checkpoint, and rows of keys that are
 * to be forgotten, are in none of its files afterwards.
 * @throws CHECKPOINT_MISSING, CHECKPOINT_TAKEN when a job writes there again and again, BAD_CHECKPOINT with
 * the name of the file, LIMIT, PLACE_FAILED, ABORTED
 */
export async function purgePlace(place: Place, options: LiveOptions = {}): Promise<Purged> {
  for (let attempt = 1; ; attempt++) {
    const listing = await listPlace(place);
    const newest = listing.numbers.at(-1);
    if (newest === undefined) {
      throw new KintsugiError('CHECKPOINT_MISSING', `${place.url} has no complete checkpoint`);
    }
    try {
      return await purge(place, newest, listing, options);
    } catch (error) {
      if (attempt === ATTEMPTS || !(await isOvertaken(place, newest, error))) throw error;
    }
  }
}

async function purge(
  place: Place,
  newest: number,
  { segments }: Listing,
  options: LiveOptions,
): Promise<Purged> {
  // Files of attempts that failed may have higher numbers. They can only be removed when there is a
  // checkpoint above them.
  let above = newest;
  for (const name of segments.keys()) above = Math.max(above, checkpointOfSegment(name)!);
  const only = { above, onlyChanges: above === newest };
  const { number, rows, bytes } = await compactCheckpoint(place, newest, { ...options, ...only });
  const removed = await keepOnly(place, number);
  if (place instanceof DirectoryPlace) await place.removeAbandoned();
  return { number, ...(number > newest && { compactionOf: newest }), rows, bytes, removed };
}

/** Codes of a number that another writer has taken, and of files that are gone because of a newer one. */
const OVERTAKEN = new Set<ErrorCode>([
  'CHECKPOINT_TAKEN',
  'CHECKPOINT_MISSING',
  'BAD_CHECKPOINT',
  'BAD_ARGUMENT',
]);

/** A job has written a checkpoint meanwhile. */
async function isOvertaken(place: Place, newest: number, error: unknown): Promise<boolean> {
  if (!(error instanceof KintsugiError) || !OVERTAKEN.has(error.code)) return false;
  return error.code === 'CHECKPOINT_TAKEN' || (await checkpointNumbers(place)).at(-1) !== newest;
}
