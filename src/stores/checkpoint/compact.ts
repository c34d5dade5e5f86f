/**
 * Compaction: the newest checkpoint again, with every row once. It is published as the next number, so no
 * manifest and no file that anybody may be reading changes. A job that writes that number at the same time,
 * or a later one either wins, and this fails with CHECKPOINT_TAKEN, or takes the next one.
 *
 * A purge (purge.ts) leaves out rows of some keys besides, and takes a number above those of all files.
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
import type { FilterToWrite } from './filter-part.js';
import { wordsOf } from './layout.js';
import {
  copyRuns,
  countRows,
  type ForgottenKeys,
  hasIncrements,
  type LiveOptions,
  liveRows,
  type RowRun,
} from './live-rows.js';
import type { Place } from './place.js';
import type { TableRead, TableToWrite } from './segment.js';
import { readSegments } from './verify.js';

export interface CompactOptions extends LiveOptions {
  /** Called after every shard, with the number of shards so far and of all. */
  onProgress?: ((shards: number, total: number) => void) | undefined;
  /** Bytes of rows in a segment. Default: 16 MiB. */
  segmentBytes?: number | undefined;
  /** The new number is above this one. Default: that of the newest checkpoint. */
  above?: number | undefined;
  /** Where every file would stay, there is no new checkpoint, and the newest one is returned. */
  onlyChanges?: boolean | undefined;
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
    number: numberAfter(place, Math.max(manifest.number, options.above ?? 0)),
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
    const isSame = draft.shards.every((shard, i) => shard === manifest.shards[i]);
    if (isSame && options.onlyChanges) return manifest;
    return (await publishNewest(place, draft, { signal: options.signal })).manifest;
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
    if (!hasIncrements(shard) && !(await this.hasForgotten(shard))) return shard;
    const output = new CompactOutput(this.place, this.draft, shard, this.options, this.written);
    let sessions: DedupEntry[] | undefined;
    for await (const live of liveRows(this.place, this.manifest, shard, this.options)) {
      sessions ??= live.sessions;
      for (const { table, runs } of live.tables) await output.add(table, runs);
      for (const table of live.filters) await output.addFilter(table);
    }
    return { ...shard, since: 0, segments: await output.finish(sessions) };
  }

  /** Whether a file of a shard has keys that are to be left out. */
  private async hasForgotten(shard: SavedShard): Promise<boolean> {
    const { forgotten = new Map(), signal } = this.options;
    const tables = this.manifest.tables.filter(
      ({ name, pool }) => forgotten.has(name) && pool === shard.pool,
    );
    if (tables.length === 0) return false;
    const wanted = shard.segments.map((ref) => ({ shard, ref }));
    for await (const { segment } of readSegments(this.place, this.manifest, wanted, signal))
      if (segment.tables.some((table) => keysIn(table, forgotten) > 0)) return true;
    return false;
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
    const { dim, stateParts } = table;
    const width = stateParts.reduce((sum, { floats }) => sum + floats, 0);
    const rows = this.rowsOf(table);
    const keys = copyRuns(table.keys, new BigUint64Array(count), 1, runs);
    const values = copyRuns(wordsOf(table.values), new Uint32Array(count * dim), dim, runs);
    const state = copyRuns(wordsOf(table.state), new Uint32Array(count * width), width, runs);
    rows.keys.push(keys);
    rows.values.push(new Float32Array(values.buffer));
    rows.state.push(new Float32Array(state.buffer));
    this.bytes += count * (8 + 4 * dim + 4 * width);
    if (this.bytes >= (this.options.segmentBytes ?? SEGMENT_BYTES)) await this.store(undefined);
  }

  /** Copies the slots of its filter. */
  async addFilter(table: TableRead): Promise<void> {
    const { state, width, slots, counters } = table.filter!;
    const rows = this.rowsOf(table);
    rows.filter ??= { state, width, slots: [], counters: [] };
    rows.filter.slots.push(slots.slice());
    rows.filter.counters.push(counters.slice());
    this.bytes += slots.byteLength + counters.byteLength;
    if (this.bytes >= (this.options.segmentBytes ?? SEGMENT_BYTES)) await this.store(undefined);
  }

  private rowsOf({ name, dim, stateParts }: TableRead): CompactRows {
    const rows = this.tables.get(name) ?? { name, dim, stateParts, keys: [], values: [], state: [] };
    this.tables.set(name, rows);
    return rows;
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

/** Keys of a table of a segment that are to be left out, those of rows that are gone included. */
function keysIn({ name, keys, removed }: TableRead, forgotten: ForgottenKeys): number {
  const set = forgotten.get(name);
  return set ? set.countOf(keys) + set.countOf(removed) : 0;
}

interface CompactRows extends TableToWrite {
  keys: BigUint64Array[];
  values: Float32Array[];
  state: Float32Array[];
  filter?: FilterToWrite & { slots: BigUint64Array[]; counters: Uint8Array[] };
}
