/** Opens a place by its address. */
import { fileURLToPath } from 'node:url';
import { describe, KintsugiError } from '../errors.js';
import { checkText } from '../options.js';
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
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(url)?.[1]?.toLowerCase();
  if (scheme === undefined) return new DirectoryPlace(url);
  if (scheme === 'file') return new DirectoryPlace(filePath(url));
  if (scheme === 's3') return S3Place.open(url);
  throw new KintsugiError('BAD_ARGUMENT', `${url}: a place is a directory or s3://BUCKET/PREFIX`);
}

function filePath(url: string): string {
  try {
    return fileURLToPath(url);
  } catch (error) {
    throw new KintsugiError('BAD_ARGUMENT', `${url}: ${describe(error)}`);
  }
}

/** Does some work with a place, and closes it. @throws what `openPlace` and the work throw */
export async function withPlace<T>(url: string, work: (place: Place) => Promise<T>): Promise<T> {
  const place = await openPlace(url);
  try {
    return await work(place);
  } finally {
    await place.close();
  }
}
