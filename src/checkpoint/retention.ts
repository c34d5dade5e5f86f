/**
 * What a place keeps. A manifest is removed first, and then the files that no manifest lists: files that
 * checkpoints share stay as long as one of them needs them, and a crash in between leaves files that the next
 * call removes. Files of a checkpoint that is still being written have a higher number than all manifests.
 * They are left alone.
 */
import { KintsugiError } from '../errors.js';
import { checkInteger } from '../options.js';
import {
  checkpointOfManifest,
  checkpointOfSegment,
  type Manifest,
  manifestName,
} from '../protocol/checkpoints.js';
import { checkpointNumbers, readManifest } from './checkpoints.js';
import type { Place } from './place.js';

/** What was removed from a place. */
export interface Removed {
  /** Numbers of the checkpoints. */
  checkpoints: number[];
  /** Segments that no checkpoint needs any more, those of failed attempts included. */
  files: number;
  bytes: number;
}

/**
 * Removes all checkpoints but the newest `keep` that can be read, and files that no checkpoint needs. A
 * checkpoint whose manifest is damaged does not count; while there is one among those that are kept, files
 * stay, because nobody knows which it needs. @throws BAD_ARGUMENT, PLACE_FAILED
 */
export async function keepNewest(place: Place, keep: number): Promise<Removed> {
  checkInteger('keepNewest: keep', keep, 1);
  const numbers = await checkpointNumbers(place);
  let readable = 0;
  const victims: number[] = [];
  for (const number of numbers.toReversed()) {
    if (readable === keep) victims.push(number);
    else if (await readIfWhole(place, number)) readable++;
  }
  return removeCheckpoints(place, numbers, victims.reverse());
}

/**
 * Removes one checkpoint, and files that no checkpoint needs then. A job that writes here builds on its
 * newest checkpoint, so that one is removed only with `newest`.
 * @throws CHECKPOINT_MISSING, BAD_ARGUMENT, PLACE_FAILED
 */
export async function deleteCheckpoint(
  place: Place,
  number: number,
  options: { newest?: boolean | undefined } = {},
): Promise<Removed> {
  const numbers = await checkpointNumbers(place);
  if (!numbers.includes(number)) {
    throw new KintsugiError('CHECKPOINT_MISSING', `${place.url} has no checkpoint ${number}`);
  }
  if (number === numbers.at(-1) && !options.newest) {
    const text = `${number} is the newest checkpoint of ${place.url}, on which the next one builds`;
    throw new KintsugiError('BAD_ARGUMENT', text);
  }
  return removeCheckpoints(place, numbers, [number]);
}

/** `numbers`: of the checkpoints that were there, those that go included. */
async function removeCheckpoints(
  place: Place,
  numbers: readonly number[],
  victims: readonly number[],
): Promise<Removed> {
  const manifests = new Set<number>();
  const files: { name: string; bytes: number; number: number }[] = [];
  for await (const { name, bytes } of place.list('')) {
    const manifest = checkpointOfManifest(name);
    const number = checkpointOfSegment(name);
    if (manifest !== undefined) manifests.add(manifest);
    else if (number !== undefined) files.push({ name, bytes, number });
  }
  // What is newer is being written, or was until now. It was listed little by little, so its files may be in
  // the list without its manifest. A manifest that is older than one that is there is not published any more.
  const newest = numbers.at(-1) ?? 0;
  for (const number of victims) manifests.delete(number);
  const needed = await filesOf(place, manifests);
  await place.remove(victims.map(manifestName));
  const orphans = needed ? files.filter(({ name, number }) => number <= newest && !needed.has(name)) : [];
  await place.remove(orphans.map(({ name }) => name));
  return {
    checkpoints: [...victims],
    files: orphans.length,
    bytes: orphans.reduce((sum, { bytes }) => sum + bytes, 0),
  };
}

/** All files that these checkpoints list; undefined when one of them cannot be read. */
async function filesOf(place: Place, numbers: Iterable<number>): Promise<Set<string> | undefined> {
  const names = new Set<string>();
  for (const number of numbers) {
    const manifest = await readIfWhole(place, number);
    if (!manifest) return undefined;
    for (const { segments } of manifest.shards) for (const { name } of segments) names.add(name);
  }
  return names;
}

async function readIfWhole(place: Place, number: number): Promise<Manifest | undefined> {
  return readManifest(place, number).catch((error: unknown) => {
    if (error instanceof KintsugiError && /^(BAD_CHECKPOINT|CHECKPOINT_MISSING)$/.test(error.code))
      return undefined;
    throw error;
  });
}
