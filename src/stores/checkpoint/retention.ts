/**
 * Removes old checkpoints from a place. A manifest is removed first, and then the files that no manifest
 * lists: files that checkpoints share stay as long as one of them needs them, and a crash in between leaves
 * files that the next call removes. Files of a checkpoint that is still being written have a higher number
 * than all manifests. They are left alone.
 */
import { KintsugiError } from '../../common/errors.js';
import { checkInteger } from '../../common/options.js';
import { checkpointOfSegment, type Manifest, manifestName } from '../../protocol/checkpoints.js';
import { checkpointNumbers, type Listing, listPlace, readManifest } from './checkpoints.js';
import type { Place } from './place.js';

/** Checkpoints and files that were removed from a place. */
export interface Removed {
  /** Numbers of the checkpoints. */
  checkpoints: number[];
  /** Segments that no checkpoint needs any more, those of failed attempts included. */
  files: number;
  bytes: number;
}

/**
 * Removes all checkpoints but the newest `keep` that can be read, and files that no checkpoint needs. Those
 * that are not of the kind of the newest one stay: a place of exports may also have a checkpoint of a whole
 * job, which nobody wants to lose by them. A checkpoint whose manifest is damaged does not count; while there
 * is one among those that are kept, files stay, because nobody knows which it needs. `listing`: files of the
 * place, listed after its newest checkpoint was published; default: they are listed now. @throws
 * BAD_ARGUMENT, PLACE_FAILED
 */
export async function keepNewest(place: Place, keep: number, listing?: Listing): Promise<Removed> {
  checkInteger('keepNewest: keep', keep, 1);
  const present = listing ? presentIn(listing, listing) : await lookAt(place);
  const manifests = new Manifests(place);
  let kind: Manifest['kind'] | undefined;
  let readable = 0;
  const victims: number[] = [];
  for (const number of present.numbers.toReversed()) {
    // A checkpoint that was stored after the listing began is not counted.
    if (number > present.newest) continue;
    const listed = await manifests.of(number);
    kind ??= listed?.kind;
    if (listed && listed.kind !== kind) continue;
    if (readable === keep) victims.push(number);
    else if (listed) readable++;
  }
  return removeCheckpoints(place, present, victims.reverse(), manifests);
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
  const present = await lookAt(place);
  if (!present.numbers.includes(number)) {
    throw new KintsugiError('CHECKPOINT_MISSING', `${place.url} has no checkpoint ${number}`);
  }
  if (number >= present.newest && !options.newest) {
    const text = `${number} is the newest checkpoint of ${place.url}, on which the next one builds`;
    throw new KintsugiError('BAD_ARGUMENT', text);
  }
  return removeCheckpoints(place, present, [number], new Manifests(place));
}

/**
 * Removes every checkpoint but the newest, and every file that it does not list. A newer manifest may be one
 * that its writer takes back: then nothing is removed. @throws CHECKPOINT_TAKEN when `number` is not the
 * newest, PLACE_FAILED
 */
export async function keepOnly(place: Place, number: number): Promise<Removed> {
  const present = await lookAt(place);
  const { newest, numbers } = present;
  if (newest !== number || numbers.at(-1) !== number) {
    const text = `${place.url} has checkpoint ${numbers.at(-1) ?? newest}, and not ${number} as its newest`;
    throw new KintsugiError('CHECKPOINT_TAKEN', text);
  }
  const others = numbers.filter((each) => each !== number);
  return removeCheckpoints(place, present, others, new Manifests(place));
}

/** Files of a place. All manifests up to `newest` are among them. */
interface Present extends Listing {
  newest: number;
}

/** `before`: from before the listing began. */
const presentIn = (listing: Listing, before: Pick<Listing, 'numbers'>): Present => ({
  ...listing,
  newest: before.numbers.at(-1) ?? 0,
});

/**
 * A place is listed little by little, so files may be in a listing without their manifest, which came later.
 * That cannot happen to a file below a manifest that was there before: no older manifest is published any
 * more. @throws PLACE_FAILED
 */
async function lookAt(place: Place): Promise<Present> {
  const numbers = await checkpointNumbers(place);
  return presentIn(await listPlace(place), { numbers });
}

async function removeCheckpoints(
  place: Place,
  { numbers, segments, newest }: Present,
  victims: readonly number[],
  manifests: Manifests,
): Promise<Removed> {
  const needed = await manifests.filesOfAll(numbers.filter((number) => !victims.includes(number)));
  await place.remove(victims.map(manifestName));
  // Files of a newer number belong to a checkpoint that is being written, or was until now.
  const isOrphan = ([name]: [string, number]) => checkpointOfSegment(name)! <= newest && !needed?.has(name);
  const orphans = needed ? [...segments].filter(isOrphan) : [];
  await place.remove(orphans.map(([name]) => name));
  return {
    checkpoints: [...victims],
    files: orphans.length,
    bytes: orphans.reduce((sum, [, bytes]) => sum + bytes, 0),
  };
}

/** The part of a manifest on which the removal of others depends. */
interface ListedFiles {
  kind: Manifest['kind'];
  files: string[];
}

/** The manifests of a place; each is read once. */
class Manifests {
  private readonly known = new Map<number, ListedFiles | undefined>();

  constructor(private readonly place: Place) {}

  /** Undefined: the manifest is damaged or gone. @throws PLACE_FAILED */
  async of(number: number): Promise<ListedFiles | undefined> {
    if (!this.known.has(number)) this.known.set(number, await this.read(number));
    return this.known.get(number);
  }

  private async read(number: number): Promise<ListedFiles | undefined> {
    try {
      const { kind, shards } = await readManifest(this.place, number);
      return { kind, files: shards.flatMap(({ segments }) => segments.map(({ name }) => name)) };
    } catch (error) {
      if (error instanceof KintsugiError && /^(BAD_CHECKPOINT|CHECKPOINT_MISSING)$/.test(error.code))
        return undefined;
      throw error;
    }
  }

  /** Files that these checkpoints list; undefined when one of the manifests cannot be read. */
  async filesOfAll(numbers: readonly number[]): Promise<Set<string> | undefined> {
    const names = new Set<string>();
    for (const number of numbers) {
      const listed = await this.of(number);
      if (!listed) return undefined;
      for (const name of listed.files) names.add(name);
    }
    return names;
  }
}
