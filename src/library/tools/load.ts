/**
 * Loads the rows of a checkpoint into a running job, of any number of nodes and any code: what `save` wrote,
 * a checkpoint of a job, or an export. All files are read and verified before the first row is loaded, so a
 * checkpoint that is damaged anywhere is refused as a whole, with the name of the file. That reads them
 * twice.
 *
 * Rows alone are loaded: the queue of samples, and which pushes shards hold, are of the job that made the
 * checkpoint. A new job that goes on with them begins with `--restore`.
 */

import { KintsugiError } from '../../common/errors.js';
import {
  checkFunction,
  checkInteger,
  checkOptions,
  checkSignal,
  checkText,
  type OptionKeys,
} from '../../common/options.js';
import { type Manifest, type SavedTable, shardsOf } from '../../protocol/checkpoints.js';
import { tableByName } from '../../protocol/map.js';
import { withoutEarlier } from '../../protocol/settings.js';
import { checkpointNumbers, readManifest } from '../../stores/checkpoint/checkpoints.js';
import { initialState, joinRows, wordsOf } from '../../stores/checkpoint/layout.js';
import { copyRuns, countRows, liveRows, type RowRun } from '../../stores/checkpoint/live-rows.js';
import { withExistingPlace } from '../../stores/checkpoint/open.js';
import type { Place } from '../../stores/checkpoint/place.js';
import type { TableRead } from '../../stores/checkpoint/segment.js';
import { verifyCheckpoint } from '../../stores/checkpoint/verify.js';
import { isAuditTable } from '../client/audit.js';
import type { Client, Table } from '../client/client.js';
import { pipelined } from '../client/concurrent.js';
import { internalsOf, resumeTables } from '../client/connected.js';
import { batchRows, rowCounts } from '../client/scan.js';

/** Batches that are not durable yet, and bytes of keys and rows in each; it is in memory several times. */
const IN_FLIGHT = 4;
const BATCH_BYTES = 1 << 20;

/** Options of {@link load}. */
export interface LoadOptions {
  /** Number of the checkpoint. Default: the newest of the place. */
  number?: number | undefined;
  /** Called when a batch is durable. */
  onProgress?: ((progress: LoadProgress) => void) | undefined;
  signal?: AbortSignal | undefined;
}

const LOAD_OPTIONS = {
  number: true,
  onProgress: checkFunction,
  signal: checkSignal,
} satisfies OptionKeys<LoadOptions>;

/** How far a load is. */
export interface LoadProgress {
  table: string;
  rows: number;
  /** Rows of all files. Fewer are loaded where newer files replace rows of older ones. */
  rowsTotal: number;
}

/** The result of loading. */
export interface LoadResult {
  tables: number;
  rows: number;
  /** Shards that the checkpoint lacks, because they were beyond repair: their rows begin anew. */
  lost: number;
}

/**
 * Creates the tables of a checkpoint, without the ones of audits, and fills them. Resolves when every row is
 * durable. The client must have been opened without `audit`, and tables that exist must be empty: rows that
 * are in the job and not in the checkpoint would otherwise survive. Rows of an export begin with the state of
 * new rows. Shards that the checkpoint lacks are left out.
 * @param url of the place: a directory, or `s3://bucket/prefix`
 * @throws BAD_CHECKPOINT, CHECKPOINT_MISSING, PLACE_FAILED, TABLE_EXISTS, BAD_ARGUMENT, MEMORY_LIMIT,
 * UNRECOVERABLE, ABORTED, CLOSED
 */
export async function load(client: Client, url: string, options: LoadOptions = {}): Promise<LoadResult> {
  checkText('load: url', url);
  internalsOf(client);
  checkOptions('load', options, LOAD_OPTIONS);
  if (options.number !== undefined) checkInteger('load: number', options.number, 1);
  const own = { ...options };
  return withExistingPlace(url, async (place) => {
    const manifest = await verified(place, own);
    return new TableLoading(place, client, manifest, own).load();
  });
}

/** A checkpoint whose files are all there and whole. @throws BAD_CHECKPOINT, CHECKPOINT_MISSING, ... */
async function verified(place: Place, { number, signal }: LoadOptions): Promise<Manifest> {
  await refuseOldSave(place);
  const manifest = await readManifest(place, number, signal);
  const { bad } = await verifyCheckpoint(place, manifest.number, { signal });
  const [first, ...others] = bad;
  if (!first) return manifest;
  const more = others.length > 0 ? ` (and ${others.length} more files are bad)` : '';
  throw new KintsugiError('BAD_CHECKPOINT', `${first.name}: ${first.problem}${more}`);
}

/** Version 0.1 saved a manifest and files without folders. */
async function refuseOldSave(place: Place): Promise<void> {
  if ((await checkpointNumbers(place)).length > 0) return;
  for await (const { name } of place.list('manifest.json')) {
    const text = `${place.url} was saved by version 0.1, whose files this version does not read`;
    throw new KintsugiError('BAD_CHECKPOINT', `${name}: ${text}; load them with that version`);
  }
}

/** Rows of one table. */
interface LoadBatch {
  table: string;
  keys: BigUint64Array;
  rows: Float32Array;
}

class TableLoading {
  private readonly tables: SavedTable[];
  /** The tables of the job, by name: others that take a name later are not meant. */
  private readonly made = new Map<string, Table>();

  constructor(
    private readonly place: Place,
    private readonly client: Client,
    private readonly manifest: Manifest,
    private readonly options: LoadOptions,
  ) {
    this.tables = manifest.tables.filter(({ name }) => !isAuditTable(name));
  }

  async load(): Promise<LoadResult> {
    const { client } = this;
    const { onProgress, signal } = this.options;
    await this.refuseFilled();
    const specs = this.tables.map((spec) => ({ ...withoutEarlier(spec), set: [] }));
    const made = await resumeTables(client, specs);
    for (const table of made) this.made.set(table.name, table);
    let rows = 0;
    const loaded = pipelined(IN_FLIGHT, this.batches(), async ({ table, keys, rows: gradients }) => {
      await client.assign([{ table: this.made.get(table)!, keys, gradients }], { signal });
      return { table, count: keys.length };
    });
    for await (const { table, count } of loaded) {
      rows += count;
      onProgress?.({ table, rows, rowsTotal: this.manifest.rows });
    }
    const { shards, wanted } = shardsOf(this.manifest, this.tables);
    return { tables: this.tables.length, rows, lost: wanted - shards.length };
  }

  /** @throws BAD_ARGUMENT */
  private async refuseFilled(): Promise<void> {
    const known = this.tables.flatMap(({ name }) => tableByName(this.client.clusterMap, name) ?? []);
    if (known.length === 0) return;
    const counts = await rowCounts(internalsOf(this.client).session);
    for (const { id, name } of known) {
      if ((counts.get(id) ?? 0) === 0) continue;
      const text = `table "${name}" already has rows; load into a job that has none`;
      throw new KintsugiError('BAD_ARGUMENT', text);
    }
  }

  private async *batches(): AsyncGenerator<LoadBatch> {
    const { signal } = this.options;
    for (const shard of this.manifest.shards) {
      for await (const { tables } of liveRows(this.place, this.manifest, shard, { signal })) {
        for (const { table, runs } of tables) {
          const spec = this.tables.find(({ name }) => name === table.name);
          if (spec) yield* this.batchesOf(spec, table, runs);
        }
      }
    }
  }

  private *batchesOf(spec: SavedTable, table: TableRead, runs: readonly RowRun[]): Generator<LoadBatch> {
    const { name, dim, optimizer, policy } = spec;
    const fresh = this.manifest.kind === 'export' ? initialState(dim, optimizer, policy) : undefined;
    const width = this.client.rowWidth(this.made.get(name)!.spec);
    const rest = width - dim;
    for (const some of batchesOfRuns(runs, batchRows(width, BATCH_BYTES))) {
      const count = countRows(some);
      const keys = copyRuns(table.keys, new BigUint64Array(count), 1, some);
      const values = new Float32Array(count * dim);
      copyRuns(wordsOf(table.values), wordsOf(values), dim, some);
      const state = new Float32Array(count * rest);
      if (!fresh) copyRuns(wordsOf(table.state), wordsOf(state), rest, some);
      else for (let row = 0; row < count; row++) state.set(fresh, row * rest);
      yield { table: name, keys, rows: joinRows({ values, state }, width, dim) };
    }
  }
}

/** Runs cut into lists of `size` rows, the last one shorter. */
function* batchesOfRuns(runs: readonly RowRun[], size: number): Generator<RowRun[]> {
  let some: RowRun[] = [];
  let count = 0;
  for (const [first, end] of runs) {
    for (let from = first; from < end; ) {
      const to = Math.min(end, from + size - count);
      some.push([from, to]);
      count += to - from;
      from = to;
      if (count < size) continue;
      yield some;
      some = [];
      count = 0;
    }
  }
  if (count > 0) yield some;
}
