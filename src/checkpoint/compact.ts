/**
 * Compaction: the newest checkpoint again, with every row once. It is published as the next number, so no
 * manifest and no file that anybody may be reading changes. A job that writes that number at the same time
 * either wins, and this fails with CHECKPOINT_TAKEN, or takes the next one.
 *
 * A shard is read from its newest segments to its oldest: a row counts unless a newer segment had its key.
 * What one checkpoint wrote of a shard has no key twice, so only keys of increments are remembered, not those
 * of the oldest part. Where these would take more than `indexBytes`, the shard is read several times, each
 * time for another part of the keys.
 */
import { randomBytes } from 'node:crypto';
import { KintsugiError } from '../errors.js';
import {
  type CheckpointDraft,
  checkpointOfSegment,
  type Manifest,
  type SavedShard,
  SEGMENT_BYTES,
  type SegmentRef,
  segmentName,
} from '../protocol/checkpoints.js';
import type { DedupEntry } from '../protocol/messages.js';
import { checkpointNumbers, publishCheckpoint, readManifest, storeSegment } from './checkpoints.js';
import { KeySet, mix } from './key-set.js';
import type { Place } from './place.js';
import type { TableRead, TableToWrite } from './segment.js';
import { readSegmentOf } from './verify.js';

export interface CompactOptions {
  /** Called after every shard, with the number of shards so far and of all. */
  onProgress?: ((shards: number, total: number) => void) | undefined;
  signal?: AbortSignal | undefined;
  /** Memory for keys of increments of a shard, about. Default: 64 MiB. */
  indexBytes?: number | undefined;
  /** Bytes of rows in a segment. Default: 16 MiB. */
  segmentBytes?: number | undefined;
}

const INDEX_BYTES = 64 * 1024 * 1024;
/** Bytes of the index for a key, on average. */
const KEY_BYTES = 16;

/**
 * Writes the newest checkpoint of a place again, without what newer segments replaced, and returns the new
 * manifest. Shards that have one part already keep their files. Memory holds a few segments, and the keys of
 * increments. @throws BAD_ARGUMENT when `number` is not the newest, CHECKPOINT_MISSING, CHECKPOINT_TAKEN,
 * BAD_CHECKPOINT with the name of the file, PLACE_FAILED, ABORTED
 */
export async function compactCheckpoint(
  place: Place,
  number?: number | undefined,
  options: CompactOptions = {},
): Promise<Manifest> {
  const manifest = await readManifest(place, number, options.signal);
  const newest = (await checkpointNumbers(place)).at(-1);
  if (manifest.number !== newest) {
    const text = `only the newest checkpoint is compacted: ${newest}, not ${manifest.number}`;
    throw new KintsugiError('BAD_ARGUMENT', text);
  }
  const draft: CheckpointDraft = {
    ...draftOf(manifest),
    number: manifest.number + 1,
    attempt: randomBytes(4).toString('hex'),
    compactionOf: manifest.number,
    shards: [],
  };
  const compaction = new Compaction(place, manifest, draft, options);
  try {
    for (const shard of manifest.shards) {
      draft.shards.push(await compaction.compact(shard));
      options.onProgress?.(draft.shards.length, manifest.shards.length);
    }
    return await publishCheckpoint(place, draft, options.signal);
  } catch (error) {
    // Whether the manifest is there is not known when its answer was lost: then all files stay.
    const isKnown = error instanceof KintsugiError && error.code !== 'PLACE_FAILED';
    if (isKnown) await place.remove(compaction.written).catch(() => undefined);
    throw error;
  }
}

/** Without what follows from it. */
function draftOf({
  format: _f,
  version: _v,
  parents: _p,
  rows: _r,
  bytes: _b,
  ...draft
}: Manifest): CheckpointDraft {
  return draft;
}

class Compaction {
  readonly written: string[] = [];

  constructor(
    private readonly place: Place,
    private readonly manifest: Manifest,
    private readonly draft: CheckpointDraft,
    private readonly options: CompactOptions,
  ) {}

  async compact(shard: SavedShard): Promise<SavedShard> {
    const oldest = checkpointOfSegment(shard.segments[0]?.name ?? '');
    const isIncrement = ({ name }: SegmentRef) => checkpointOfSegment(name) !== oldest;
    if (!shard.segments.some(isIncrement)) return shard;
    const keys = shard.segments.filter(isIncrement).reduce((sum, { rows }) => sum + rows, 0);
    const passes = Math.max(1, Math.ceil((keys * KEY_BYTES) / (this.options.indexBytes ?? INDEX_BYTES)));
    const output = new Output(this.place, this.draft, shard, this.options, this.written);
    let sessions: DedupEntry[] | undefined;
    for (let pass = 0; pass < passes; pass++) {
      const seen = new Map<string, KeySet>();
      for (const ref of shard.segments.toReversed()) {
        const segment = await readSegmentOf(this.place, this.manifest, shard, ref, this.options.signal);
        if (ref === shard.segments.at(-1)) sessions = segment.sessions;
        for (const table of segment.tables) {
          if (!seen.has(table.name)) seen.set(table.name, new KeySet());
          const rows = newRows(table, seen.get(table.name)!, isIncrement(ref), pass, passes);
          await output.add(table, rows);
        }
      }
    }
    return { ...shard, since: 0, segments: await output.finish(sessions) };
  }
}

/** Rows first..end of a table, `end` excluded. */
type Run = [first: number, end: number];

/** The rows of a table that no newer segment had, among the keys of this pass. */
function newRows(
  { keys, removed }: TableRead,
  seen: KeySet,
  isIncrement: boolean,
  pass: number,
  passes: number,
): Run[] {
  const words = (array: BigUint64Array) => new Uint32Array(array.buffer, array.byteOffset, 2 * array.length);
  const runs: Run[] = [];
  const of = words(keys);
  for (let row = 0; row < keys.length; row++) {
    const [low, high] = [of[2 * row]!, of[2 * row + 1]!];
    if (passes > 1 && mix(high, low) % passes !== pass) continue;
    if (isIncrement ? !seen.add(low, high) : seen.has(low, high)) continue;
    const last = runs.at(-1);
    if (last?.[1] === row) last[1]++;
    else runs.push([row, row + 1]);
  }
  const gone = words(removed);
  for (let row = 0; isIncrement && row < removed.length; row++) {
    const [low, high] = [gone[2 * row]!, gone[2 * row + 1]!];
    if (passes === 1 || mix(high, low) % passes === pass) seen.add(low, high);
  }
  return runs;
}

/** The new segments of a shard. */
class Output {
  private readonly segments: SegmentRef[] = [];
  private readonly tables = new Map<string, Rows>();
  private bytes = 0;

  constructor(
    private readonly place: Place,
    private readonly draft: CheckpointDraft,
    private readonly shard: SavedShard,
    private readonly options: CompactOptions,
    private readonly written: string[],
  ) {}

  /** Copies rows, so that the segment that they are of can go. */
  async add(table: TableRead, runs: readonly Run[]): Promise<void> {
    const count = runs.reduce((sum, [first, end]) => sum + end - first, 0);
    if (count === 0) return;
    const { name, dim, stateParts } = table;
    const width = stateParts.reduce((sum, { floats }) => sum + floats, 0);
    let rows = this.tables.get(name);
    if (!rows) {
      rows = { name, dim, stateParts, keys: [], values: [], state: [] };
      this.tables.set(name, rows);
    }
    const keys = copied(table.keys, new BigUint64Array(count), 1, runs);
    const values = copied(wordsOf(table.values), new Uint32Array(count * dim), dim, runs);
    const state = copied(wordsOf(table.state), new Uint32Array(count * width), width, runs);
    rows.keys.push(keys);
    rows.values.push(new Float32Array(values.buffer));
    rows.state.push(new Float32Array(state.buffer));
    this.bytes += count * (8 + 4 * dim + 4 * width);
    if (this.bytes >= (this.options.segmentBytes ?? SEGMENT_BYTES)) await this.store(undefined);
  }

  async finish(sessions: DedupEntry[] | undefined): Promise<SegmentRef[]> {
    await this.store(sessions);
    return this.segments;
  }

  private async store(sessions: DedupEntry[] | undefined): Promise<void> {
    const name = segmentName(this.draft, this.shard, this.segments.length);
    this.written.push(name);
    const tables = [...this.tables.values()];
    const { signal } = this.options;
    this.segments.push(await storeSegment(this.place, name, tables, sessions, this.shard, signal));
    this.tables.clear();
    this.bytes = 0;
  }
}

interface Rows extends TableToWrite {
  keys: BigUint64Array[];
  values: Float32Array[];
  state: Float32Array[];
}

/** Words keep all bits of floats, those of NaNs too. */
function wordsOf(floats: Float32Array): Uint32Array {
  return new Uint32Array(floats.buffer, floats.byteOffset, floats.length);
}

function copied<T extends Uint32Array | BigUint64Array>(
  from: T,
  to: T,
  width: number,
  runs: readonly Run[],
): T {
  let at = 0;
  for (const [first, end] of runs) {
    to.set(from.subarray(first * width, end * width) as never, at);
    at += (end - first) * width;
  }
  return to;
}
