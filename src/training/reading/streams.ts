/** Batches of data files for a program of another language, on their way into memory that it gives. */
import type { Batch } from '../../data/batch.js';
import { fileSource } from '../../data/file-source.js';
import { meaningOf, type SchemaMeaning } from '../../data/meaning.js';
import { type NamedColumns, schemaOfColumns } from '../../data/named-columns.js';
import { openReader } from '../../data/open.js';
import { parseSchema } from '../../data/parse-schema.js';
import { expandPaths } from '../../data/paths.js';
import { openLines } from '../../data/raw-lines.js';
import type { BatchMemory, BatchShare, DataReader, SharedBatch } from '../../data/reader.js';
import { ARRAY_ALIGNMENT } from '../../data/rows.js';
import type { Source, SourcePart } from '../../data/source.js';
import { apart, type BatchShape, type PackedBatch, packed, packedBytes, shapeOf, write } from './shape.js';

/** How the samples of files become batches: by columns, by the JSON of a schema, or not at all. */
export interface BatchLayout {
  columns?: NamedColumns;
  schema?: unknown;
  /** Lines as they are. `true`: the first one of each file is none of them. */
  header?: boolean;
}

/** Batches begin at multiples of these bytes. */
const ALIGNMENT = 64;

/** Files that a program reads. */
export interface ProgramSource {
  source: Source;
  reader: DataReader;
  /** Files of the parts. A folder or a pattern may stand for others later. */
  files: readonly string[];
  parts: readonly SourcePart[];
  /** undefined: batches of lines */
  shape: BatchShape | undefined;
  /** Meaning of the columns, as a data set keeps it; undefined: only the program knows it. */
  meaning: SchemaMeaning | undefined;
}

/**
 * @param isExpanded the paths are files, also where their names are patterns, too
 * @throws BAD_ARGUMENT, BAD_DATA
 */
export async function openSource(
  paths: readonly string[],
  layout: BatchLayout,
  isExpanded = false,
): Promise<ProgramSource> {
  const { columns, schema: written, header = false } = layout;
  const given = written === undefined ? undefined : parseSchema(written, 'schema');
  const schema = columns ? schemaOfColumns(columns) : given;
  const reader = schema ? openReader(schema) : openLines(header);
  const files = isExpanded ? paths : await expandPaths(paths);
  const source = fileSource(reader, files);
  const parts = await source.list();
  await reader.check(files);
  const [shape, meaning] = schema ? [shapeOf(schema), meaningOf(schema)] : [];
  return { source, reader, files, parts, shape, meaning };
}

/** The answer to a program about the batches that were written. */
export interface FilledBatches {
  batches: (readonly number[])[];
  /** Samples of each, of all shares together */
  samples: number[];
  /** No batch follows. */
  done: boolean;
  /** Bytes of the next batch, where none was written because it is larger than the room. */
  need?: number;
  /** The bytes, if the program gave no room */
  behind: ArrayBufferView[];
}

/** A batch on its way. */
interface SentBatch extends PackedBatch {
  /** Samples of all shares together */
  samples: number;
}

/** A range of a part whose batches are read, in whole or a share of each. */
export interface StreamRange {
  part: number;
  begin: number;
  end: number;
  share?: BatchShare | undefined;
}

/** Batches in whole are one share. */
async function* whole(batches: AsyncIterable<Batch>): AsyncGenerator<SharedBatch, void, undefined> {
  for await (const batch of batches) yield { batch, samples: batch.size };
}

/** The batches of all parts. */
async function* readParts({ source, reader, files }: ProgramSource, batch: number, memory: BatchMemory) {
  for (const [part, { size }] of (await source.list()).entries())
    if (size > 0) yield* reader.readRange({ file: files[part]!, begin: 0, end: size, batch, memory });
}

/** The room that a program gives, as memory of batches: each lies where the one before it ends. */
class FillRoom implements BatchMemory {
  /** Where the next batch goes */
  free: Uint8Array | undefined;

  take(bytes: number): Uint8Array | undefined {
    const { free } = this;
    return free && bytes <= free.length && free.byteOffset % ARRAY_ALIGNMENT === 0
      ? free.subarray(0, bytes)
      : undefined;
  }
}

/** The batches of a range of a part, or of all parts. One after the other is asked for. */
export class BatchStream {
  private readonly batches: AsyncIterator<SharedBatch>;
  /** A batch that was read and found no room yet */
  private held: SentBatch | undefined;
  /** The failure of reading, after batches that the program gets first */
  private failure: unknown;
  private readonly room = new FillRoom();
  /** Bytes of the newest batch */
  private usual = 0;

  /** @param skip batches at the beginning that the program has */
  constructor(
    private readonly from: ProgramSource,
    range: StreamRange | undefined,
    batch: number,
    private skip: number,
  ) {
    const { reader, files } = from;
    const memory = this.room;
    if (!range) {
      this.batches = whole(readParts(from, batch, memory));
      return;
    }
    const { part, begin, end, share } = range;
    const read = { file: files[part]!, begin, end, batch };
    this.batches = share
      ? reader.readShares({ ...read, share })
      : whole(reader.readRange({ ...read, memory }));
  }

  private async next(): Promise<SentBatch | undefined> {
    for (;;) {
      const { value, done } = await this.batches.next();
      if (done) return undefined;
      const { batch, samples } = value;
      if (this.skip === 0) return { ...packed(batch, this.from.shape), samples };
      this.skip -= 1;
    }
  }

  /**
   * Writes the next batches, as many as fit into `most` bytes. Without `room` they are behind the answer, and
   * then at least one is. @throws BAD_DATA, once all batches before were written
   */
  async fill(most: number, room?: Uint8Array): Promise<FilledBatches> {
    if (this.failure) throw this.failure;
    const filled: FilledBatches = { batches: [], samples: [], done: false, behind: [] };
    for (let used = 0; ; ) {
      this.room.free = room?.subarray(used);
      // A batch that does not fit is copied twice.
      if (room && used > 0 && !this.held && used + this.usual > most) return filled;
      const batch = this.held ?? (await this.nextAfter(filled));
      this.held = undefined;
      if (!batch) return filled;
      const size = packedBytes(batch);
      const isFirst = filled.batches.length === 0;
      if (used + size > most && (room || !isFirst)) {
        this.held = room ? { ...apart(batch, room), samples: batch.samples } : batch;
        return isFirst ? { ...filled, need: size } : filled;
      }
      const padding = -size & (ALIGNMENT - 1);
      if (room) write(batch, room, used);
      else filled.behind.push(copied(batch, size + padding));
      filled.batches.push(batch.counts);
      filled.samples.push(batch.samples);
      used += size + padding;
      this.usual = size;
    }
  }

  /** The next batch, if there is one. A failure is kept as long as batches before it have to leave. */
  private async nextAfter(filled: FilledBatches): Promise<SentBatch | undefined> {
    try {
      const batch = await this.next();
      filled.done = !batch;
      return batch;
    } catch (error) {
      this.failure = error;
      if (filled.batches.length === 0) throw error;
      return undefined;
    }
  }

  async close(): Promise<void> {
    await this.batches.return?.();
  }
}

/** The arrays of a batch are used for others, and the bytes behind an answer leave later. */
function copied(batch: PackedBatch, bytes: number): Uint8Array {
  const copy = new Uint8Array(bytes);
  write(batch, copy, 0);
  return copy;
}
