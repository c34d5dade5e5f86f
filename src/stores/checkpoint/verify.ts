/** Checks every file that a checkpoint needs, those of its parents included. */
import { KintsugiError } from '../../common/errors.js';
import { rowStride } from '../../engine/filters.js';
import type { Manifest, SavedShard, SavedTable, SegmentRef } from '../../protocol/checkpoints.js';
import { readManifest, readSegment } from './checkpoints.js';
import type { Place } from './place.js';
import { bad } from './safetensors.js';
import { type Segment, statePartsOf, type TableRead } from './segment.js';

/** Files in memory at a time. */
const IN_FLIGHT = 2;

/** The result of checking a checkpoint. */
export interface Verified {
  number: number;
  files: number;
  rows: number;
  bytes: number;
  /** Files that are missing, damaged, or not what the manifest says, and why; empty: it is whole. */
  bad: { name: string; problem: string }[];
}

export interface VerifyOptions {
  /** Called after every file, with the number of files so far and of all. */
  onProgress?: ((files: number, total: number) => void) | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * Reads everything that a restore of a checkpoint would read; default: the newest. Memory holds a few files
 * at a time. @throws CHECKPOINT_MISSING, BAD_CHECKPOINT for the manifest, PLACE_FAILED, ABORTED
 */
export async function verifyCheckpoint(
  place: Place,
  number?: number | undefined,
  options: VerifyOptions = {},
): Promise<Verified> {
  const manifest = await readManifest(place, number, options.signal);
  const all = manifest.shards.flatMap((shard) => shard.segments.map((segment) => ({ shard, segment })));
  const found: Verified['bad'] = [];
  let files = 0;
  const rest = all.values();
  const verifier = async (): Promise<void> => {
    for (const { shard, segment } of rest) {
      try {
        await readSegmentOf(place, manifest, shard, segment, options.signal);
      } catch (error) {
        if (!(error instanceof KintsugiError) || error.code !== 'BAD_CHECKPOINT') throw error;
        const { message } = error;
        const prefix = `${segment.name}: `;
        const problem = message.startsWith(prefix) ? message.slice(prefix.length) : message;
        found.push({ name: segment.name, problem });
      }
      options.onProgress?.(++files, all.length);
    }
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, verifier));
  const order = new Map(all.map(({ segment }, i) => [segment.name, i]));
  found.sort((a, b) => order.get(a.name)! - order.get(b.name)!);
  return {
    number: manifest.number,
    files: all.length,
    rows: manifest.rows,
    bytes: manifest.bytes,
    bad: found,
  };
}

/**
 * A segment of a shard, checked against everything that the manifest says. @throws BAD_CHECKPOINT with the
 * file's name, PLACE_FAILED, ABORTED
 */
export async function readSegmentOf(
  place: Place,
  manifest: Manifest,
  shard: SavedShard,
  ref: SegmentRef,
  signal?: AbortSignal | undefined,
): Promise<Segment> {
  const segment = await readSegment(place, ref, signal);
  const problem = segmentProblem(segment, manifest, shard, ref === shard.segments.at(-1));
  if (problem !== undefined) throw bad(ref.name, problem);
  return segment;
}

/** A segment of a shard. */
export interface Wanted {
  shard: SavedShard;
  ref: SegmentRef;
}

/**
 * Segments in the order of the list; the next one is read while the caller handles one. @throws what
 * `readSegmentOf` throws
 */
export async function* readSegments(
  place: Place,
  manifest: Manifest,
  all: readonly Wanted[],
  signal?: AbortSignal | undefined,
): AsyncGenerator<Wanted & { segment: Segment }> {
  const start = (wanted: Wanted | undefined) => {
    if (!wanted) return undefined;
    const reading = readSegmentOf(place, manifest, wanted.shard, wanted.ref, signal);
    // A caller that leaves the loop early does not await this read, so its failure must not count as
    // unhandled.
    reading.catch(() => undefined);
    return reading;
  };
  let next = start(all[0]);
  for (const [i, wanted] of all.entries()) {
    const segment = await next!;
    next = start(all[i + 1]);
    yield { ...wanted, segment };
  }
}

/** Why a segment is not the one of this shard; undefined when it is. */
export function segmentProblem(
  { group, member, position, tables, sessions }: Segment,
  manifest: Pick<Manifest, 'kind' | 'tables'>,
  shard: SavedShard,
  isLast: boolean,
): string | undefined {
  if (group !== shard.group || member !== shard.member) {
    return `it is of member ${member} of group ${group}, not ${shard.member} of ${shard.group}`;
  }
  const isJob = manifest.kind === 'full job';
  if (isLast && position !== shard.position) {
    return `it is of position ${position}, the manifest says ${shard.position}`;
  }
  if (isLast && isJob && !sessions) return 'the state of sessions is missing';
  for (const table of tables) {
    const spec = manifest.tables.find(({ name, pool }) => name === table.name && pool === shard.pool);
    if (!spec) return `pool "${shard.pool}" has no table "${table.name}"`;
    const wanted = isJob ? statePartsOf(spec.dim, spec.optimizer, spec.policy) : [];
    const same =
      table.dim === spec.dim &&
      table.stateParts.length === wanted.length &&
      table.stateParts.every(
        ({ name, floats }, i) => name === wanted[i]!.name && floats === wanted[i]!.floats,
      );
    if (!same) return `rows of table "${table.name}" have another layout than its specification`;
    const { filter } = table;
    if (filter && !(isJob && isFilterOf(spec, filter)))
      return `table "${table.name}" has a filter that its specification does not have`;
  }
  return undefined;
}

/** A restore looks at the rest: it takes no filter of another shape. */
function isFilterOf(spec: SavedTable, { width }: NonNullable<TableRead['filter']>): boolean {
  return spec.policy?.bloom !== undefined && width === rowStride(spec);
}
