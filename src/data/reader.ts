/**
 * Readers of data files. A format says what a range of a file is and makes rows of it; everything above (the
 * ranges that workers lease, batches) is the same for all formats.
 *
 * Ranges that follow each other share no sample and miss none. This is what makes training exactly once, so
 * whether a sample belongs to a range may depend on nothing but the file and the range.
 */
import { KintsugiError } from '../common/errors.js';
import type { Batch, SparseRows } from './batch.js';
import { checkFiles } from './bytes.js';
import { isRemote } from './object-store.js';
import { isPacked } from './packing.js';

/** How large a file is, in the unit of its ranges. */
export interface Measure {
  size: number;
  /** Units per sample, about. */
  perSample: number;
  /** Least units of a range; where it can only be read from the start of the file, few ranges are better. */
  least: number;
  /** The file has no samples although it has a size: it is a header, and nothing else. */
  empty?: boolean;
}

export interface ByteRange {
  file: string;
  /** The samples that start in these units; the last one may end beyond. */
  begin: number;
  end: number;
}

/**
 * Share `index` of `count`: samples of a batch that follow each other, as many as every other share has. So
 * ranks that train a batch together each parse their own samples only.
 */
export interface BatchShare {
  index: number;
  count: number;
}

/** A share of a batch. */
export interface SharedBatch {
  batch: Batch;
  /** Samples of the whole batch */
  samples: number;
}

/** Which of so many samples a share has: all, where they cannot be divided. */
export function shareOf(samples: number, { index, count }: BatchShare): { first: number; end: number } {
  if (samples % count !== 0) return { first: 0, end: samples };
  const size = samples / count;
  return { first: index * size, end: (index + 1) * size };
}

/** Takes the rows of a format: after each one it says whether that completed a batch. */
export interface RowSink<R extends SparseRows> {
  /** Where the next row goes. */
  readonly rows: R;
  /** A row was added. */
  added(): Batch | undefined;
  /** Ends the batch, full or not. */
  end(): Batch | undefined;
}

/** Memory where whoever takes the batches wants their arrays. */
export interface BatchMemory {
  /** So many bytes for the next batch; undefined: its arrays are anywhere. */
  take(bytes: number): Uint8Array | undefined;
}

/** A range whose batches are shared. */
export interface SharedRange extends ByteRange {
  /** Samples per batch */
  batch: number;
  share: BatchShare;
}

export interface Format<R extends SparseRows> {
  /** @throws BAD_DATA for a file that cannot be read */
  measure(file: string): Promise<Measure>;
  /** Samples. @throws BAD_DATA */
  count(file: string): Promise<number>;
  /** Looks for the columns in the file. Default: reading finds out. @throws BAD_DATA */
  check?(file: string): Promise<void>;
  /** The batches that the samples of a range complete. @throws BAD_DATA */
  read(range: ByteRange, sink: RowSink<R>, onRead?: () => void): AsyncGenerator<Batch, void, undefined>;
  /** The same share of each batch of a range. Other samples are looked at no more than is needed. */
  readShares(range: SharedRange, sink: RowSink<R>): AsyncGenerator<SharedBatch, void, undefined>;
}

export interface RangeOptions extends ByteRange {
  /** Samples per batch; the last one of the range may have fewer */
  batch: number;
  /** Called while reading goes on, also when no batch is complete for a long time. */
  onRead?: () => void;
  /** A batch is written over when the next one is asked for. Default: each has arrays of its own. */
  memory?: BatchMemory;
}

/** A reader of files, whatever their formats. */
export interface DataReader {
  /** Whether a file can be followed while it grows. */
  grows(file: string): boolean;
  /** @throws BAD_DATA for a file that cannot be read */
  measure(file: string): Promise<Measure>;
  /** Samples in all files. @throws BAD_DATA */
  countRows(files: readonly string[]): Promise<number>;
  /** Looks for the columns in every file. @throws BAD_DATA */
  check(files: readonly string[]): Promise<void>;
  /** Batches of a range of a file. @throws BAD_DATA with the place of the first sample that is malformed */
  readRange(options: RangeOptions): AsyncGenerator<Batch, void, undefined>;
  /** A share of each batch of a range. @throws BAD_DATA, also where a sample of another share is malformed */
  readShares(range: SharedRange): AsyncGenerator<SharedBatch, void, undefined>;
}

/** The batches of rows, one after the other. A batch begins with its first row. */
export class Collector<R extends SparseRows> implements RowSink<R> {
  private begun: R | undefined;
  /** Rows of the batch before, which its user has left when the next one begins */
  private used: R | undefined;

  constructor(
    private readonly begin: ReaderFormats<R>['begin'],
    private readonly batch: number,
    private readonly memory?: BatchMemory,
  ) {
    if (!Number.isSafeInteger(batch) || batch < 1) {
      throw new KintsugiError('BAD_ARGUMENT', `batch must be a positive integer, not ${batch}`);
    }
  }

  get rows(): R {
    this.begun ??= this.begin(this.batch, this.memory && { memory: this.memory, used: this.used });
    return this.begun;
  }

  added(): Batch | undefined {
    return this.begun && this.begun.size === this.begun.capacity ? this.end() : undefined;
  }

  end(): Batch | undefined {
    const { begun } = this;
    if (!begun || begun.size === 0) return undefined;
    this.used = begun;
    this.begun = undefined;
    return begun.finish();
  }
}

/** Where the rows of a batch may be. */
export interface RowsPlace<R> {
  memory: BatchMemory;
  /** Rows of the batch before, which may be used again */
  used: R | undefined;
}

/** How a reader reads files of several formats. */
export interface ReaderFormats<R extends SparseRows> {
  /** The format that the name of a file says. */
  formatOf(file: string): Format<R>;
  /** Whether the format of this file allows that it grows. */
  grows(file: string): boolean;
  /** An empty batch of so many rows. Without a place its arrays are new. */
  begin(capacity: number, place?: RowsPlace<R>): R;
}

export function readerOf<R extends SparseRows>({ formatOf, grows, begin }: ReaderFormats<R>): DataReader {
  async function* read({ batch, onRead, memory, ...range }: RangeOptions) {
    const sink = new Collector(begin, batch, memory);
    yield* formatOf(range.file).read(range, sink, onRead);
    const last = sink.end();
    if (last) yield last;
  }
  return {
    grows: (file) => grows(file) && !isPacked(file) && !isRemote(file),
    async measure(file) {
      await checkFiles([file]);
      return formatOf(file).measure(file);
    },
    async countRows(files) {
      await checkFiles(files);
      let rows = 0;
      for (const file of files) rows += await formatOf(file).count(file);
      return rows;
    },
    async check(files) {
      for (const file of files) await formatOf(file).check?.(file);
    },
    readRange: read,
    readShares: (range) => formatOf(range.file).readShares(range, new Collector(begin, range.batch)),
  };
}
