/**
 * Brings the content of one export to that of another. Of a shard whose list of files only grew, the new
 * files are read. Of another one all are read, and rows that are the same take no memory a second time.
 *
 * That is not enough where rows are gone: a job was restored, or another job writes there. Then the content
 * is made anew (`loaded`).
 */

import { KintsugiError } from '../../common/errors.js';
import {
  checkpointOfSegment,
  type Manifest,
  type SavedShard,
  type SavedTable,
  type SegmentRef,
  shardsOf,
} from '../../protocol/checkpoints.js';
import { turn } from '../../stores/checkpoint/bytes.js';
import type { Place } from '../../stores/checkpoint/place.js';
import type { Segment, TableRead } from '../../stores/checkpoint/segment.js';
import { readSegments, type Wanted } from '../../stores/checkpoint/verify.js';
import { ExportContent, type ServedTable, TURN_BYTES } from './content.js';

/** The chosen tables of a manifest, and the shards of their pools. */
export interface Chosen {
  manifest: Manifest;
  tables: SavedTable[];
  shards: SavedShard[];
}

/** An export in memory. */
export interface HeldTable extends Chosen {
  content: ExportContent;
  /** Rows of (shard, table); see `rowsKey`. */
  rows: Map<string, number>;
}

/** @throws UNKNOWN_TABLE, UNRECOVERABLE when the export lacks shards of these tables */
export function choose(manifest: Manifest, names: readonly string[] | undefined): Chosen {
  const { number, tables: all } = manifest;
  const unknown = names?.find((name) => !all.some((table) => table.name === name));
  if (unknown !== undefined)
    throw new KintsugiError('UNKNOWN_TABLE', `export ${number} has no table "${unknown}"`);
  const tables = names ? all.filter(({ name }) => names.includes(name)) : all;
  const { shards, wanted } = shardsOf(manifest, tables);
  if (shards.length < wanted)
    throw new KintsugiError('UNRECOVERABLE', `export ${number} has ${shards.length} of ${wanted} shards`);
  return { manifest, tables, shards };
}

/** The next export is an ordinary successor: the same shards, and the same tables or some more. */
export function isSuccessor(held: HeldTable, next: Chosen): boolean {
  if (JSON.stringify(held.manifest.pools) !== JSON.stringify(next.manifest.pools)) return false;
  const shape = ({ pool, dim, initializer, seed }: SavedTable) =>
    JSON.stringify([pool, dim, seed, Object.entries(initializer).sort()]);
  const isThere = ({ name }: SavedTable) => next.tables.some((table) => table.name === name);
  return (
    held.tables.every(isThere) &&
    next.tables.every((table) => {
      const known = held.content.table(table.name);
      return known === undefined || shape(known.spec) === shape(table);
    })
  );
}

/** Reads all of an export. @throws BAD_CHECKPOINT, PLACE_FAILED, MEMORY_LIMIT, ABORTED */
export async function loaded(
  place: Place,
  chosen: Chosen,
  missing: number | undefined,
  signal: AbortSignal,
): Promise<HeldTable> {
  const content = new ExportContent(missing);
  const rows = new Map<string, number>();
  try {
    for (const table of chosen.tables) content.add(table);
    const all = chosen.shards.flatMap((shard) => shard.segments.map((ref): Wanted => ({ shard, ref })));
    for await (const { shard, segment } of readSegments(place, chosen.manifest, all, signal)) {
      for (const each of wantedTables(segment, content)) {
        await remove(each, content, (table, keys, values) => content.load(table, keys, values));
        const added = await inTurns(each, (keys, values) => content.load(each.table, keys, values));
        count(rows, shard, each, added);
      }
    }
    return { ...chosen, content, rows };
  } catch (error) {
    content.close();
    throw error;
  }
}

/**
 * Collects what the next export changes. Undefined: rows are gone, so it has to be loaded anew. The caller
 * shows what was collected, or discards it. @throws BAD_CHECKPOINT, PLACE_FAILED, MEMORY_LIMIT, ABORTED
 */
export async function collected(
  place: Place,
  held: HeldTable,
  next: Chosen,
  signal: AbortSignal,
): Promise<HeldTable | undefined> {
  const { content } = held;
  const rows = new Map(held.rows);
  for (const table of next.tables) content.add(table);
  const changes = next.shards.map((shard) => changeOf(shard, held));
  const all = changes.flatMap(({ shard, refs }) => refs.map((ref): Wanted => ({ shard, ref })));
  const whole = new Map(changes.filter(({ isWhole }) => isWhole).map((each) => [each.shard, each]));
  /** Keys of a whole shard that had a row. */
  const kept = new Map<string, number>();
  for (const { shard } of whole.values())
    for (const { name } of next.tables) rows.delete(rowsKey(shard, name));
  for await (const { shard, ref, segment } of readSegments(place, next.manifest, all, signal)) {
    const isFirstPart = whole.get(shard)?.firstPart.has(ref) ?? false;
    for (const each of wantedTables(segment, content)) {
      const { table } = each;
      await remove(each, content, (of, keys, values) => content.collect(of, keys, values));
      const key = rowsKey(shard, table.spec.name);
      if (isFirstPart) {
        const found = await inTurns(each, (keys, values) => content.collectDifferent(table, keys, values));
        kept.set(key, (kept.get(key) ?? 0) + found);
        count(rows, shard, each, each.read.keys.length);
      } else {
        const added = await inTurns(each, (keys, values) => content.collect(table, keys, values));
        count(rows, shard, each, added);
      }
    }
  }
  for (const { shard } of whole.values()) {
    for (const { name } of next.tables) {
      const key = rowsKey(shard, name);
      if ((kept.get(key) ?? 0) < (held.rows.get(key) ?? 0)) return undefined;
    }
  }
  return { ...next, content, rows };
}

const rowsKey = ({ pool, shard }: SavedShard, table: string) => `${pool}/${shard}/${table}`;

/**
 * Counts the rows of a shard. After removed rows the number is unknown, so the next whole shard is loaded
 * anew.
 */
function count(
  rows: Map<string, number>,
  shard: SavedShard,
  { table, read }: TableRows,
  added: number,
): void {
  const key = rowsKey(shard, table.spec.name);
  const uncertain = read.removed.length > 0 ? Number.POSITIVE_INFINITY : 0;
  rows.set(key, (rows.get(key) ?? 0) + added + uncertain);
}

interface RowChange {
  shard: SavedShard;
  /** Files to read. */
  refs: SegmentRef[];
  /** These are all files of the shard; those of the oldest part have each key once. */
  isWhole: boolean;
  firstPart: Set<SegmentRef>;
}

function changeOf(shard: SavedShard, held: Chosen): RowChange {
  const known = held.shards.find((each) => each.pool === shard.pool && each.shard === shard.shard)!;
  const { segments } = shard;
  const isMore = known.segments.every(
    ({ name, sha256 }, i) => segments[i]?.name === name && segments[i].sha256 === sha256,
  );
  if (isMore) {
    const refs = segments.slice(known.segments.length);
    return { shard, refs, isWhole: false, firstPart: new Set() };
  }
  const oldest = checkpointOfSegment(segments[0]?.name ?? '');
  const firstPart = new Set(segments.filter(({ name }) => checkpointOfSegment(name) === oldest));
  return { shard, refs: segments, isWhole: true, firstPart };
}

// ---- rows

/** Rows of a table in a segment. */
interface TableRows {
  table: ServedTable;
  read: TableRead;
}

function wantedTables({ tables }: Segment, content: ExportContent): TableRows[] {
  return tables.flatMap((rows) => {
    const table = content.table(rows.name);
    return table ? [{ table, read: rows }] : [];
  });
}

type Take = (keys: BigUint64Array, values: Float32Array) => number;

/** Rows that are handled in one turn of the event loop. */
const rowsOfTurn = (dim: number) => Math.max(1, Math.floor(TURN_BYTES / (8 + 4 * dim)));

/** A little in each turn of the event loop. Returns the sum of what `take` returns. */
async function inTurns({ table, read: { keys, values } }: TableRows, take: Take): Promise<number> {
  const { dim } = table.spec;
  const size = rowsOfTurn(dim);
  let sum = 0;
  for (let from = 0; from < keys.length; from += size) {
    await turn();
    sum += take(keys.subarray(from, from + size), values.subarray(from * dim, (from + size) * dim));
  }
  return sum;
}

/** A row that was removed is kept as what its key reads as without a row. `take` copies what it is given. */
async function remove(
  { table, read: { removed } }: TableRows,
  content: ExportContent,
  take: (table: ServedTable, keys: BigUint64Array, values: Float32Array) => number,
): Promise<void> {
  const { dim } = table.spec;
  const size = rowsOfTurn(dim);
  const values = new Float32Array(Math.min(size, removed.length) * dim);
  for (let from = 0; from < removed.length; from += size) {
    await turn();
    const keys = removed.subarray(from, from + size);
    const some = values.subarray(0, keys.length * dim);
    content.withoutRow(table, keys, some);
    take(table, keys, some);
  }
}
