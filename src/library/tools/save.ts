/**
 * Saves a job: reads all rows through a client, shard by shard, and writes them to a place as its checkpoint
 * number 1. The manifest is written last, so there is a whole checkpoint or none.
 *
 * The job goes on meanwhile. Every saved row is whole (values and state of one moment), but different rows
 * are of different moments, and a row that is new since its shard was listed is left out. Stop the workers
 * first for a state of one moment of the training. A checkpoint that the job makes (`Client.checkpoint`) also
 * has the queue of samples, and which pushes each shard holds.
 */
import { randomBytes } from 'node:crypto';
import { KintsugiError } from '../../common/errors.js';
import {
  checkFunction,
  checkOptions,
  checkSignal,
  checkSwitch,
  checkText,
  type OptionKeys,
} from '../../common/options.js';
import {
  type CheckpointDraft,
  checkpointOfSegment,
  type SavedShard,
  SEGMENT_BYTES,
  type SegmentRef,
  segmentName,
} from '../../protocol/checkpoints.js';
import { locate, type Pool, shardCount, type TableSpec } from '../../protocol/map.js';
import { publishCheckpoint, storeSegment } from '../../stores/checkpoint/checkpoints.js';
import { splitRows } from '../../stores/checkpoint/layout.js';
import { withPlace } from '../../stores/checkpoint/open.js';
import type { Place } from '../../stores/checkpoint/place.js';
import { keepNewest } from '../../stores/checkpoint/retention.js';
import { statePartsOf, type TableToWrite } from '../../stores/checkpoint/segment.js';
import type { Client, RequestOptions } from '../client/client.js';
import { pipelined, ranges } from '../client/concurrent.js';
import { internalsOf } from '../client/connected.js';
import { batchRows, pullRows, shardKeys } from '../client/scan.js';

/** Options of {@link save}. */
export interface SaveOptions {
  /** Called after every batch. */
  onProgress?: ((progress: SaveProgress) => void) | undefined;
  signal?: AbortSignal | undefined;
  /** Leave out shards that are beyond repair, and say so in the manifest, instead of failing. */
  partial?: boolean | undefined;
}

const SAVE_OPTIONS = {
  onProgress: checkFunction,
  signal: checkSignal,
  partial: checkSwitch,
} satisfies OptionKeys<SaveOptions>;

/** How far a save is. */
export interface SaveProgress {
  table: string;
  /** Shards of all pools that are saved, and how many there are. */
  shards: number;
  shardsTotal: number;
  rows: number;
}

/** The result of a save. */
export interface SaveResult {
  tables: number;
  rows: number;
  files: number;
  bytes: number;
  /** Shards that a partial save had to leave out. */
  lost: number;
}

/** The number of the checkpoint of a save. */
const NUMBER = 1;
/** Batches under way while one is being handled. */
const DEPTH = 2;

/**
 * Saves every table, without the ones of audits, as checkpoint number 1 of a place that has none: a directory
 * that is empty or does not exist, or `s3://bucket/prefix`.
 * @throws BAD_ARGUMENT (the place is in use), PLACE_FAILED, CHECKPOINT_TAKEN, UNRECOVERABLE, ABORTED, CLOSED
 */
export async function save(client: Client, url: string, options: SaveOptions = {}): Promise<SaveResult> {
  checkText('save: url', url);
  internalsOf(client);
  checkOptions('save', options, SAVE_OPTIONS);
  const own = { ...options };
  return withPlace(url, (place) => saveTo(place, client, own));
}

/** See {@link save}. `segmentBytes`: bytes of rows with which a segment ends. */
export async function saveTo(
  place: Place,
  client: Client,
  options: SaveOptions,
  segmentBytes = SEGMENT_BYTES,
): Promise<SaveResult> {
  const hasLeftovers = await refuseUsed(place);
  const writing = new Writing(place, client, options, segmentBytes);
  try {
    const manifest = await publishCheckpoint(place, await writing.write(), options.signal);
    // Leftovers are of a save that was killed.
    if (hasLeftovers) await keepNewest(place, 1);
    const { tables, rows, bytes, shards, lost = [] } = manifest;
    const files = shards.reduce((sum, { segments }) => sum + segments.length, 0);
    return { tables: tables.length, rows, files, bytes, lost: lost.length };
  } catch (error) {
    // Whether the manifest is there is not known when its answer was lost: then all files stay.
    const isKnown = error instanceof KintsugiError && error.code !== 'PLACE_FAILED';
    if (isKnown) await place.remove(writing.written).catch(() => undefined);
    // The file that was just written is missing: another save was complete first, and removed files.
    if (isKnown && error.code === 'BAD_CHECKPOINT')
      throw new KintsugiError(
        'CHECKPOINT_TAKEN',
        `another save to ${place.url} was first (${error.message})`,
        { cause: error },
      );
    throw error;
  }
}

/**
 * Looks whether a save could be made there now, and writes and removes a file of one. Where it is ended
 * before it is removed, it is like what a save leaves that was ended. @throws BAD_ARGUMENT (the place is in
 * use), PLACE_FAILED
 */
export async function demandFree(place: Place): Promise<void> {
  await refuseUsed(place);
  const attempt = randomBytes(4).toString('hex');
  const name = segmentName({ number: NUMBER, attempt }, { group: 0, member: 0 }, 0);
  await place.put(name, []);
  await place.remove([name]);
}

/** Returns whether it has files of a save that was not completed. @throws BAD_ARGUMENT, PLACE_FAILED */
async function refuseUsed(place: Place): Promise<boolean> {
  let hasLeftovers = false;
  for await (const { name } of place.list('')) {
    if (checkpointOfSegment(name) !== NUMBER) {
      const text = `${place.url} is not empty: it has ${name}; save to a place of its own`;
      throw new KintsugiError('BAD_ARGUMENT', text);
    }
    hasLeftovers = true;
  }
  return hasLeftovers;
}

class Writing {
  /** Names of all files that were begun. */
  readonly written: string[] = [];
  private readonly tables: TableSpec[];
  private readonly progress = { shards: 0, shardsTotal: 0, rows: 0 };
  private readonly draft: CheckpointDraft;

  constructor(
    private readonly place: Place,
    private readonly client: Client,
    private readonly options: SaveOptions,
    private readonly segmentBytes: number,
  ) {
    const { job, pools, lastTable } = client.clusterMap;
    this.tables = client.tables().sort((a, b) => (a.name < b.name ? -1 : 1));
    this.progress.shardsTotal = pools.reduce((sum, pool) => sum + shardCount(pool), 0);
    this.draft = {
      number: NUMBER,
      kind: 'full job',
      attempt: randomBytes(4).toString('hex'),
      job,
      createdAt: new Date().toISOString(),
      barrier: false,
      pools: [...pools],
      tables: this.tables.map(({ id: _, ...spec }) => spec),
      ...(lastTable !== undefined && { lastTable }),
      shards: [],
    };
  }

  async write(): Promise<CheckpointDraft> {
    const lost: { pool: string; shard: number }[] = [];
    for (const pool of this.draft.pools) {
      for (let shard = 0; shard < shardCount(pool); shard++) {
        const segments = await this.segmentsOrLost(pool, shard);
        const saved = { pool: pool.name, shard, ...locate(pool, shard), position: 0, since: 0 };
        if (segments) this.draft.shards.push({ ...saved, segments });
        else lost.push({ pool: pool.name, shard });
        this.progress.shards++;
      }
    }
    return { ...this.draft, ...(lost.length > 0 && { lost }) };
  }

  /** Undefined: the shard is beyond repair, and the save is a partial one. */
  private async segmentsOrLost(pool: Pool, shard: number): Promise<SegmentRef[] | undefined> {
    if (!this.options.partial) return this.segmentsOf(pool, shard);
    const { group, member } = locate(pool, shard);
    const { unrecoverable } = await this.client.status();
    if (unrecoverable.some(({ g, m }) => g === group && m === member)) return undefined;
    const [files, rows] = [this.written.length, this.progress.rows];
    try {
      return await this.segmentsOf(pool, shard);
    } catch (error) {
      if (!(error instanceof KintsugiError && error.code === 'UNRECOVERABLE')) throw error;
      await this.place.remove(this.written.splice(files));
      this.progress.rows = rows;
      return undefined;
    }
  }

  private async segmentsOf(pool: Pool, shard: number): Promise<SegmentRef[]> {
    const home = { ...locate(pool, shard), position: 0 };
    const output = new SaveOutput(this.place, this.draft, home, this.written, this.options);
    const { signal } = this.options;
    try {
      for (const spec of this.tables.filter(({ pool: name }) => name === pool.name)) {
        const width = this.client.rowWidth(spec);
        for await (const { keys, rows } of shardRows(this.client, spec, shard, { signal })) {
          output.add(spec, keys, splitRows(rows, width, spec.dim));
          if (output.bytes >= this.segmentBytes) await output.store(undefined);
          this.progress.rows += keys.length;
          this.options.onProgress?.({ table: spec.name, ...this.progress });
        }
      }
      return await output.finish();
    } finally {
      await output.settled();
    }
  }
}

/** Whole rows of a shard in batches, in the order of their slots. */
function shardRows(
  client: Client,
  spec: TableSpec,
  shard: number,
  options: RequestOptions,
): AsyncGenerator<{ keys: BigUint64Array; rows: Float32Array }> {
  const internals = internalsOf(client);
  const size = batchRows(client.rowWidth(spec));
  async function* lists() {
    for await (const keys of shardKeys(internals.session, spec, shard, options))
      for (const [start, end] of ranges(keys.length, size)) yield keys.subarray(start, end);
  }
  return pipelined(DEPTH, lists(), async (keys) => {
    return { keys, rows: await pullRows(internals, spec, keys, 'rows', options) };
  });
}

interface SavedRows extends TableToWrite {
  keys: BigUint64Array[];
  values: Float32Array[];
  state: Float32Array[];
}

/** The segments of a shard; one is written while the next one is collected. */
class SaveOutput {
  bytes = 0;
  private readonly segments: SegmentRef[] = [];
  private readonly tables = new Map<string, SavedRows>();
  private parts = 0;
  private storing: Promise<void> | undefined;

  constructor(
    private readonly place: Place,
    private readonly draft: CheckpointDraft,
    private readonly home: Pick<SavedShard, 'group' | 'member' | 'position'>,
    private readonly written: string[],
    private readonly options: SaveOptions,
  ) {}

  add(
    { name, dim, optimizer, policy }: TableSpec,
    keys: BigUint64Array,
    { values, state }: { values: Float32Array; state: Float32Array },
  ): void {
    let rows = this.tables.get(name);
    if (!rows) {
      rows = { name, dim, stateParts: statePartsOf(dim, optimizer, policy), keys: [], values: [], state: [] };
      this.tables.set(name, rows);
    }
    rows.keys.push(keys);
    rows.values.push(values);
    rows.state.push(state);
    this.bytes += keys.byteLength + values.byteLength + state.byteLength;
  }

  /** Begins to write what was added. `sessions`: of the last segment, none. */
  async store(sessions: [] | undefined): Promise<void> {
    await this.storing;
    const name = segmentName(this.draft, this.home, this.parts++);
    this.written.push(name);
    const tables = [...this.tables.values()];
    this.tables.clear();
    this.bytes = 0;
    const { signal } = this.options;
    this.storing = storeSegment(this.place, name, tables, sessions, this.home, signal).then((ref) => {
      this.segments.push(ref);
    });
    // A failure before anybody awaits the promise is not unhandled.
    this.storing.catch(() => undefined);
  }

  /** Resolves when no file is being written any more. */
  async settled(): Promise<void> {
    await this.storing?.catch(() => undefined);
  }

  async finish(): Promise<SegmentRef[]> {
    await this.store([]);
    await this.storing;
    return this.segments;
  }
}
