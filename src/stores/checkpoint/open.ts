/** Opens a place by its address. */
import { realpath } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { causedBy, KintsugiError } from '../../common/errors.js';
import { checkText } from '../../common/options.js';
import { within } from '../../common/waiting.js';
import { DirectoryPlace } from './directory.js';
import type { Place } from './place.js';
import { S3Place } from './s3.js';

/**
 * A path, `file:///path`, or `s3://bucket/prefix`. A directory need not exist: it is made when something is
 * written, and is empty until then.
 * @throws BAD_ARGUMENT, DEPENDENCY_MISSING
 */
export async function openPlace(url: string): Promise<Place> {
  checkText('openPlace: url', url);
  const scheme = schemeOf(url);
  if (scheme === 's3') return S3Place.open(url);
  return new DirectoryPlace(scheme === 'file' ? filePath(url) : url);
}

/**
 * The scheme of a place; undefined: it is a path. One letter before a colon is no scheme.
 * @throws BAD_ARGUMENT for what is nearly a URL: it would be a directory that nobody means
 */
export function schemeOf(url: string): 'file' | 's3' | undefined {
  const [begin, slashes] = /^\s*[a-z][a-z0-9+.-]+:(\/\/)?/i.exec(url) ?? [];
  if (begin === undefined) return undefined;
  if (/^s3:\/\//i.test(begin)) return 's3';
  if (/^file:\/\//i.test(begin)) return 'file';
  const named = slashes === undefined ? `; a directory of that name is written "./${url}"` : '';
  throw new KintsugiError('BAD_ARGUMENT', `${url}: a place is a directory or s3://BUCKET/PREFIX${named}`);
}

/** A place as it is without links on this machine. A part that is not there yet has none. */
export async function realPlace(url: string): Promise<string> {
  const scheme = schemeOf(url);
  if (scheme === 's3') return url;
  const missing: string[] = [];
  for (let path = resolve(scheme === 'file' ? filePath(url) : url); ; path = dirname(path)) {
    const real = await realpath(path).catch(() => undefined);
    if (real !== undefined) return join(real, ...missing);
    if (path === dirname(path)) return join(path, ...missing);
    missing.unshift(basename(path));
  }
}

/** The file that `checkWritable` writes and removes. */
const PROBE = 'probe';

/**
 * Writes a small file to a place and removes it, so that a place that does not exist or cannot be written is
 * known before it is needed. False: the place did not answer within `limitMs`, so it may be away for a while.
 * @throws PLACE_FAILED, and what `openPlace` throws
 */
export async function checkWritable(url: string, limitMs: number): Promise<boolean> {
  const late = new AbortController();
  const written = withPlace(url, async (place) => {
    await place.put(PROBE, [Buffer.from('written and removed\n')], { signal: late.signal });
    // A process that may write and not remove can make checkpoints, and all of them stay.
    await place.remove([PROBE]).catch(() => {});
    return true;
  });
  try {
    const isWritten = await within(limitMs, written);
    if (!isWritten) late.abort();
    return isWritten ?? false;
  } catch (error) {
    if (!(error instanceof KintsugiError) || error.code !== 'PLACE_FAILED') throw error;
    const text = `nothing can be written to this place: ${error.message}`;
    throw new KintsugiError('PLACE_FAILED', text, { cause: error });
  }
}

function filePath(url: string): string {
  try {
    return fileURLToPath(url);
  } catch (error) {
    throw causedBy(error, 'BAD_ARGUMENT', url);
  }
}

/**
 * `openPlace` for a reader, to whom a place that is not there is a mistake in its address. Object stores have
 * no folders, so there a prefix without files is empty.
 * @throws CHECKPOINT_MISSING when there is no such directory, PLACE_FAILED when it is a file or cannot be
 * looked at, and what `openPlace` throws
 */
export async function openExistingPlace(url: string): Promise<Place> {
  const place = await openPlace(url);
  if (place instanceof DirectoryPlace) await place.checkExists();
  return place;
}

/** Does some work with a place, and closes it. @throws what `openPlace` and the work throw */
export async function withPlace<T>(url: string, work: (place: Place) => Promise<T>): Promise<T> {
  return withOpened(await openPlace(url), work);
}

/** `withPlace` for a reader. @throws what `openExistingPlace` and the work throw */
export async function withExistingPlace<T>(url: string, work: (place: Place) => Promise<T>): Promise<T> {
  return withOpened(await openExistingPlace(url), work);
}

async function withOpened<T>(place: Place, work: (place: Place) => Promise<T>): Promise<T> {
  try {
    return await work(place);
  } finally {
    await place.close();
  }
}
