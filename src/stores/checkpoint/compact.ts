/**
 * Compaction: the newest checkpoint again, with every row once. It is published as the next number, so no
 * manifest and no file that anybody may be reading changes. A job that writes that number at the same time,
 * or a later one either wins, and this fails with CHECKPOINT_TAKEN, or takes the next one.
 */
import { randomBytes } from 'node:crypto';
import { KintsugiError } from '../../common/errors.js';
import {
  type CheckpointDraft,
  type Manifest,
  type SavedShard,
  SEGMENT_BYTES,
  type SegmentRef,
  segmentName,
} from '../../protocol/checkpoints.js';
import type { DedupEntry } from '../../protocol/messages.js';
import { checkpointNumbers, numberAfter, publishNewest, readManifest, storeSegment } from './checkpoints.js';
import { wordsOf } from './layout.js';
import { copyRuns, countRows, hasIncrements, type LiveOptions, liveRows, type RowRun } from './live-rows.js';
import type { Place } from './place.js';
import type { TableRead, TableToWrite } from './segment.js';

export interface CompactOptions extends LiveOptions {
  /** Called after every shard, with the number of shards so far and of all. */
  onProgress?: ((shards: number, total: number) => void) | undefined;
  /** Bytes of rows in a segment. Default: 16 MiB. */
  segmentBytes?: number | undefined;
}

/**
 * Writes the newest checkpoint of a place again, without what newer segments replaced, and returns the new
 * manifest. Shards that have one part already keep their files. Memory holds a few segments, and the keys of
 * increments. @throws BAD_ARGUMENT when `number` is not the newest, CHECKPOINT_MISSING, CHECKPOINT_TAKEN,
 * BAD_CHECKPOINT with the name of the file, LIMIT, PLACE_FAILED, ABORTED
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
    number: numberAfter(place, manifest.number),
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
    return (await publishNewest(place, draft, options)).manifest;
  } catch (error) {
    // If the answer was lost, the manifest may be there, so all files stay.
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
    if (!hasIncrements(shard)) return shard;
    const output = new CompactOutput(this.place, this.draft, shard, this.options, this.written);
    let sessions: DedupEntry[] | undefined;
    for await (const live of liveRows(this.place, this.manifest, shard, this.options)) {
      sessions ??= live.sessions;
      for (const { table, runs } of live.tables) await output.add(table, runs);
    }
    return { ...shard, since: 0, segments: await output.finish(sessions) };
  }
}

/** The new segments of a shard. */
class CompactOutput {
  private readonly segments: SegmentRef[] = [];
  private readonly tables = new Map<string, CompactRows>();
  private bytes = 0;

  constructor(
    private readonly place: Place,
    private readonly draft: CheckpointDraft,
    private readonly shard: SavedShard,
    private readonly options: CompactOptions,
    private readonly written: string[],
  ) {}

  /** Copies rows, so that the segment that they are of can go. */
  async add(table: TableRead, runs: readonly RowRun[]): Promise<void> {
    const count = countRows(runs);
    if (count === 0) return;
    const { name, dim, stateParts } = table;
    const width = stateParts.reduce((sum, { floats }) => sum + floats, 0);
    let rows = this.tables.get(name);
    if (!rows) {
      rows = { name, dim, stateParts, keys: [], values: [], state: [] };
      this.tables.set(name, rows);
    }
    const keys = copyRuns(table.keys, new BigUint64Array(count), 1, runs);
    const values = copyRuns(wordsOf(table.values), new Uint32Array(count * dim), dim, runs);
    const state = copyRuns(wordsOf(table.state), new Uint32Array(count * width), width, runs);
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

interface CompactRows extends TableToWrite {
  keys: BigUint64Array[];
  values: Float32Array[];
  state: Float32Array[];
}
