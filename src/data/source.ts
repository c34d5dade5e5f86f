/**
 * Sources: where samples come from. A source has parts, such as the files of a directory or the partitions of
 * a topic. A part is cut in ranges, and workers lease them. The files that `--data` names are a source as any
 * other one (file-source.ts).
 *
 * The same range is the same samples in the same order, for every worker and at any time. Ranges that follow
 * each other share no sample and miss none. This is what makes training exactly once.
 */
import { checkInteger } from '../common/options.js';
import type { Batch } from './batch.js';
import { bad } from './bytes.js';
import { problemText, SchemaRows } from './rows.js';
import { columnsOf, type Schema } from './schema.js';

/** A part of a source. */
export interface SourcePart {
  /** All workers of a run must list the same names in the same order. */
  name: string;
  /** Where the part ends, in the unit of its ranges: bytes, rows, offsets. */
  size: number;
  /** Units per sample, about. Default: 1. */
  perSample?: number;
  /** Least units of a range. Default: 1. */
  least?: number;
  /**
   * Differs between parts of one name and size with other samples, and is the same for every worker. A worker
   * that has another one is refused. Default: the name and the size say which part it is.
   */
  mark?: string;
  /** The part has no samples although it has a size; a worker warns of it. Default: whether `size` is 0. */
  empty?: boolean;
}

/** A range that a worker has leased: units `begin` to `end` of a part, without the unit `end`. */
export interface SourceRange {
  /** Index in what `list` returned */
  part: number;
  begin: number;
  end: number;
  /** Samples per batch; the last one of the range may have fewer */
  batch: number;
  /** To be called while reading goes on and no batch is complete for a long time */
  onRead?: () => void;
}

/** A source of samples. */
export interface Source {
  /** The parts, each with its size now. */
  list(): Promise<readonly SourcePart[]> | readonly SourcePart[];
  /** The samples of a range. `batchesOf` makes batches of samples that are objects. */
  read(range: SourceRange): AsyncIterable<Batch>;
  /** Number of samples in all parts. Without this method all samples are read to count them. */
  count?(): Promise<number>;
  /**
   * For `--follow`: how far each part goes now, in the order of `list`. Samples below that stay as they are,
   * also after a power failure, and no part ever gets smaller.
   */
  sizes?(): Promise<readonly number[]>;
  /**
   * For `--follow`: called once, with sizes that the run knows already, when the parts go so far. @throws
   * BAD_DATA when these are other samples
   */
  resume?(known: readonly number[]): Promise<void>;
  /** Resolves when a part may have grown, or at the signal. Without it `sizes` is asked every second. */
  changed?(signal: AbortSignal): Promise<void>;
  /** Ends the source: no method is called afterwards. */
  close?(): Promise<void> | void;
}

/** Arguments of a `SourceFactory`. */
export interface SourceOptions {
  /** Values of `--data` or `--test`, as the user wrote them */
  paths: readonly string[];
  /** Meaning of the columns; undefined: the Criteo layout */
  schema: Schema | undefined;
}

/** The default export of a file for `--source`. */
export type SourceFactory = (options: SourceOptions) => Promise<Source> | Source;

/** Batches of all samples of a source, part by part. */
export async function* readAll(source: Source, batch: number): AsyncGenerator<Batch, void, undefined> {
  for (const [part, { size }] of (await source.list()).entries())
    if (size > 0) yield* source.read({ part, begin: 0, end: size, batch });
}

/** Samples of a source. */
export async function countSamples(source: Source): Promise<number> {
  if (source.count) return source.count();
  let samples = 0;
  for await (const { size } of readAll(source, 1024)) samples += size;
  return samples;
}

/**
 * Batches of samples that are objects with a field per column; a field that is not there is a missing value.
 * @param where names what is read, in messages
 * @throws BAD_DATA for a sample that does not fit the schema, BAD_ARGUMENT
 */
export async function* batchesOf(
  schema: Schema,
  samples: AsyncIterable<object> | Iterable<object>,
  batch: number,
  where: string,
): AsyncGenerator<Batch, void, undefined> {
  checkInteger('batchesOf: batch', batch, 1);
  const columns = columnsOf(schema);
  let rows = new SchemaRows(schema, batch);
  let number = 0;
  for await (const sample of samples) {
    number += 1;
    const values = sample as Record<string, unknown>;
    const problem = rows.add(columns.map((column) => values[column]));
    if (problem) throw bad(`${where}: sample ${number}: ${problemText(problem)}`);
    if (rows.size < batch) continue;
    yield rows.finish();
    rows = new SchemaRows(schema, batch);
  }
  if (rows.size > 0) yield rows.finish();
}
