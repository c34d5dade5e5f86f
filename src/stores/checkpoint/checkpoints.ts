/** Checkpoints of a place: listing, writing and reading them. */
import { KintsugiError } from '../../common/errors.js';
import {
  type CheckpointDraft,
  checkpointFolder,
  checkpointOfManifest,
  checkpointOfSegment,
  MAX_CHECKPOINT,
  type Manifest,
  manifestName,
  manifestOf,
  type SegmentRef,
} from '../../protocol/checkpoints.js';
import { limitText } from '../../protocol/limits.js';
import type { DedupEntry } from '../../protocol/messages.js';
import { sha256Of } from './bytes.js';
import { decodeManifest, encodeManifest, MAX_MANIFEST_BYTES } from './manifest.js';
import type { Place } from './place.js';
import { bad } from './safetensors.js';
import {
  decodeSegment,
  encodeSegment,
  rowsOf,
  type Segment,
  type SegmentOwner,
  type TableToWrite,
} from './segment.js';

// ---- segments

/**
 * Encodes and writes a segment. It is durable when this resolves; the arrays must not change until then.
 * @throws PLACE_FAILED, ABORTED
 */
export async function storeSegment(
  place: Place,
  name: string,
  tables: readonly TableToWrite[],
  sessions: readonly DedupEntry[] | undefined,
  owner: SegmentOwner,
  signal?: AbortSignal | undefined,
): Promise<SegmentRef> {
  const { bytes, sha256 } = await place.put(name, encodeSegment(tables, sessions, owner), { signal });
  return { name, bytes, sha256, rows: rowsOf(tables) };
}

/** A segment, and the bytes that its arrays are views of. */
export interface SegmentFile extends Segment {
  content: Uint8Array;
}

/**
 * Reads a segment that a manifest lists, and checks its size, SHA-256, structure and number of rows.
 * @throws BAD_CHECKPOINT with its name and what is wrong, PLACE_FAILED, ABORTED
 */
export async function readSegment(
  place: Place,
  { name, bytes, sha256, rows }: SegmentRef,
  signal?: AbortSignal | undefined,
): Promise<SegmentFile> {
  const file = await orMissing(place.get(name, { atMost: bytes, signal }));
  if (!file) throw bad(name, 'the file is missing');
  if (file.byteLength !== bytes) {
    throw bad(name, `truncated: ${file.byteLength} bytes where the manifest says ${bytes}`);
  }
  if ((await sha256Of([file], signal)) !== sha256) throw bad(name, 'its content does not match its SHA-256');
  const segment = decodeSegment(file, name);
  const found = segment.tables.reduce((sum, { keys }) => sum + keys.length, 0);
  if (found !== rows) throw bad(name, `${found} rows where the manifest says ${rows}`);
  return { ...segment, content: file };
}

/** The file; undefined when there is none. */
async function orMissing<T>(reading: Promise<T>): Promise<T | undefined> {
  return reading.catch((error: unknown) => {
    if (error instanceof KintsugiError && error.code === 'CHECKPOINT_MISSING') return undefined;
    throw error;
  });
}

// ---- manifests

/**
 * Numbers of the checkpoints that are there, ascending. A checkpoint without its manifest does not exist.
 * @throws PLACE_FAILED
 */
export async function checkpointNumbers(place: Place): Promise<number[]> {
  const numbers: number[] = [];
  for await (const { name } of place.list('')) {
    const number = checkpointOfManifest(name);
    if (number !== undefined) numbers.push(number);
  }
  return numbers.sort((a, b) => a - b);
}

/**
 * The manifest of a checkpoint, or of the newest. @throws CHECKPOINT_MISSING, BAD_CHECKPOINT, PLACE_FAILED,
 * ABORTED
 */
export async function readManifest(
  place: Place,
  number?: number | undefined,
  signal?: AbortSignal | undefined,
): Promise<Manifest> {
  const wanted = number ?? (await checkpointNumbers(place)).at(-1);
  if (wanted === undefined) {
    throw new KintsugiError('CHECKPOINT_MISSING', `${place.url} has no complete checkpoint`);
  }
  const file = await orMissing(place.get(manifestName(wanted), { atMost: MAX_MANIFEST_BYTES, signal }));
  if (!file) throw new KintsugiError('CHECKPOINT_MISSING', `${place.url} has no checkpoint ${wanted}`);
  return decodeManifest(file, wanted);
}

/** All files that a manifest lists are there, with their sizes. @throws BAD_CHECKPOINT, PLACE_FAILED */
export async function checkFiles(place: Place, manifest: Manifest): Promise<void> {
  const sizes = new Map<string, number>();
  for (const number of [...manifest.parents, manifest.number]) {
    for await (const { name, bytes } of place.list(`${checkpointFolder(number)}/`)) sizes.set(name, bytes);
  }
  checkSizes(sizes, manifest);
}

/** @throws BAD_CHECKPOINT */
function checkSizes(sizes: ReadonlyMap<string, number>, { shards }: Manifest): void {
  for (const { segments } of shards) {
    for (const { name, bytes } of segments) {
      const found = sizes.get(name);
      if (found === undefined) throw bad(name, 'the file is missing');
      if (found !== bytes) throw bad(name, `${found} bytes where ${bytes} were written`);
    }
  }
}

/** Files of a place, listed in one pass: a file that is written meanwhile is in the list or is not. */
export interface Listing {
  /** Numbers of the checkpoints, ascending. */
  numbers: number[];
  /** Bytes of segments, by name. */
  segments: Map<string, number>;
}

/** @throws PLACE_FAILED */
export async function listPlace(place: Place): Promise<Listing> {
  const listing: Listing = { numbers: [], segments: new Map() };
  for await (const { name, bytes } of place.list('')) {
    const number = checkpointOfManifest(name);
    if (number !== undefined) listing.numbers.push(number);
    else if (checkpointOfSegment(name) !== undefined) listing.segments.set(name, bytes);
  }
  listing.numbers.sort((a, b) => a - b);
  return listing;
}

/**
 * Makes a checkpoint of segments that are stored: writes its manifest, if none of this number is there.
 * Before that it looks whether all files that it lists are there, with their sizes, because somebody may have
 * removed those of earlier checkpoints meanwhile. A repeated call with the same draft succeeds.
 * @throws CHECKPOINT_TAKEN, BAD_CHECKPOINT for a file that is not there (nothing is written; a checkpoint
 * with all rows is needed then), PLACE_FAILED, LIMIT, ABORTED
 */
export async function publishCheckpoint(
  place: Place,
  draft: CheckpointDraft,
  signal?: AbortSignal | undefined,
): Promise<Manifest> {
  const manifest = manifestOf(draft);
  const file = encodeManifest(draft);
  await checkFiles(place, manifest);
  await place.put(manifestName(draft.number), [file], { ifAbsent: true, signal });
  return manifest;
}

export interface PublishOptions {
  /** The newest checkpoint that this one adds to. Default: the newest one that is there. */
  addsTo?: number | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * As `publishCheckpoint`, in a place where others publish and remove files meanwhile: there the newest
 * checkpoint decides what stays. Returns what the place had after that, too. @throws CHECKPOINT_TAKEN also
 * when there is a newer one, or one between this one and the one that it adds to
 */
export async function publishNewest(
  place: Place,
  draft: CheckpointDraft,
  options: PublishOptions = {},
): Promise<{ manifest: Manifest; listing: Listing }> {
  const manifest = manifestOf(draft);
  const file = encodeManifest(draft);
  const look = async (isPublished: boolean): Promise<Listing> => {
    const listing = await listPlace(place);
    refuseOthers(place, manifest, listing, options.addsTo);
    // Where the number is taken, files may be gone because of that. The write finds out by whom it is taken.
    if (isPublished || !listing.numbers.includes(draft.number)) checkSizes(listing.segments, manifest);
    return listing;
  };
  await look(false);
  await place.put(manifestName(draft.number), [file], { ifAbsent: true, signal: options.signal });
  // Another process removes files that no manifest lists. If it did not see this manifest, then it published
  // its own before, which is seen here; or it removed files before the check here, which finds them missing.
  try {
    return { manifest, listing: await look(true) };
  } catch (error) {
    await place.remove([manifestName(draft.number)]);
    throw error;
  }
}

/**
 * Refuses a manifest that comes late. If there is a newer one, files that the newer one does not list are
 * removed, so this manifest may list files that are gone. And if somebody else has compacted the same rows,
 * that work would be lost if this manifest added to the parents from before. A compaction has the content of
 * an older checkpoint, so what another one wrote in between would be lost. @throws CHECKPOINT_TAKEN
 */
function refuseOthers(
  { url }: Place,
  { number, parents, compactionOf }: Manifest,
  { numbers }: Listing,
  addsTo = compactionOf ?? Number.POSITIVE_INFINITY,
): void {
  const newest = numbers.at(-1) ?? 0;
  if (newest > number) {
    const text = `${url} has checkpoint ${newest}, which is newer than ${number}`;
    throw new KintsugiError('CHECKPOINT_TAKEN', text);
  }
  const between = numbers.findLast((other) => other < number && other > addsTo);
  if (between !== undefined && (parents.length > 0 || compactionOf !== undefined)) {
    const what = compactionOf === undefined ? 'adds to' : 'has the content of';
    const text = `${url} has checkpoint ${between}, and ${number} ${what} ${addsTo}`;
    throw new KintsugiError('CHECKPOINT_TAKEN', text);
  }
}

/** Numbers that must be left for a job that begins to write to a place. */
const ROOM = 1e12;

/** The number after those that are there. @throws LIMIT where somebody has used up nearly all of them */
export function numberAfter({ url }: Place, newest: number): number {
  if (newest < MAX_CHECKPOINT - ROOM) return newest + 1;
  const text = `${url} has checkpoint ${newest}: no numbers are left after it; use another place`;
  throw new KintsugiError('LIMIT', limitText(text, 'maxCheckpointNumber', MAX_CHECKPOINT));
}

// ---- lists

/** A checkpoint of a place, for people. */
export interface CheckpointInfo {
  number: number;
  /** Why its manifest cannot be used; the fields below are missing then. */
  problem?: string;
  kind?: Manifest['kind'];
  createdAt?: string;
  barrier?: boolean;
  parents?: number[];
  shards?: number;
  lost?: number;
  /** Rows and bytes of all files that a restore reads, those of its parents included. */
  rows?: number;
  bytes?: number;
  /** Rows and bytes of the files that this checkpoint wrote itself. */
  ownRows?: number;
  ownBytes?: number;
}

/** All checkpoints, ascending by number. @throws PLACE_FAILED, ABORTED */
export async function listCheckpoints(
  place: Place,
  signal?: AbortSignal | undefined,
): Promise<CheckpointInfo[]> {
  const found: CheckpointInfo[] = [];
  for (const number of await checkpointNumbers(place)) {
    try {
      found.push(infoOf(await readManifest(place, number, signal)));
    } catch (error) {
      if (!(error instanceof KintsugiError)) throw error;
      if (error.code === 'BAD_CHECKPOINT') found.push({ number, problem: error.message });
      // The checkpoint was removed after it was listed.
      else if (error.code !== 'CHECKPOINT_MISSING') throw error;
    }
  }
  return found;
}

function infoOf(manifest: Manifest): CheckpointInfo {
  const { number, kind, createdAt, barrier, parents, rows, bytes, shards, lost = [] } = manifest;
  const all = shards.flatMap(({ segments }) => segments);
  const own = all.filter(({ name }) => checkpointOfSegment(name) === number);
  const sum = (field: 'rows' | 'bytes') => own.reduce((total, segment) => total + segment[field], 0);
  return {
    ...{ number, kind, createdAt, barrier, parents, rows, bytes },
    shards: shards.length,
    lost: lost.length,
    ownRows: sum('rows'),
    ownBytes: sum('bytes'),
  };
}
