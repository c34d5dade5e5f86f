/** Parquet files as columns of cells, by the package hyparquet, an optional peer. */
import * as zlib from 'node:zlib';
import type { AsyncBuffer, Compressors, FileMetaData, SchemaTree } from 'hyparquet';
import { describe } from '../common/errors.js';
import { importOptional } from '../common/optional.js';
import { bad, remoteFile } from './bytes.js';
import { decimalCell, scaleOf, withRawDecimals } from './decimals.js';
import type { DecodedGroup } from './duckdb.js';
import { exactJson } from './jsonl.js';
import { textOfBytes } from './keys.js';
import { unlz4 } from './lz4.js';
import { isRemote, remoteBytes } from './object-store.js';
import { checkPages, checkSnappy, chunkRange, type PageLibrary } from './parquet-pages.js';
import { isEncrypted, typeProblem } from './parquet-types.js';
import { unzstd } from './zstd.js';

/** Values that are in memory at a time, and rows at least: every slice begins to decode at a page's start. */
const SLICE_VALUES = 2 ** 22;
const SLICE_ROWS = 16_384;
/** Most bytes of pages that were decompressed to be looked through and are kept until they are decoded. */
const KEPT_BYTES = 2 ** 27;

/** Text is what the file calls UTF-8, and is UTF-8. JSON is its value. Everything else stays bytes. */
const DECODING = {
  utf8: false,
  parsers: {
    stringFromBytes: (bytes: Uint8Array | undefined) => bytes && (textOfBytes(bytes) ?? bytes),
    jsonFromBytes: (bytes: Uint8Array | undefined) => bytes && exactJson(Buffer.from(bytes).toString('utf8')),
  },
} as unknown as { utf8: false };

/** Ends a file whose metadata are encrypted. */
const ENCRYPTED = 'PARE';

type Hyparquet = typeof import('hyparquet') & PageLibrary;

interface RowGroup extends DecodedGroup {
  /** True once all its pages were looked through: they are safe to decode. */
  checked: boolean;
  /** Slices are decoded from its first row on: hyparquet must not pass over its pages. */
  isWhole: boolean;
}

/** A file whose metadata, at its end, were read. */
interface Parsed {
  file: string;
  hyparquet: Hyparquet;
  buffer: AsyncBuffer;
  metadata: FileMetaData;
  tree: SchemaTree;
}

/** A parsed file with the columns that are read of it. */
export interface OpenedParquet extends Parsed {
  columns: readonly string[];
  rows: number;
  groups: readonly RowGroup[];
  /** Bytes of the metadata, which end the file */
  metadataBytes: number;
}

async function importHyparquet(): Promise<Hyparquet> {
  const modules = ['hyparquet', 'hyparquet/src/column.js', 'hyparquet/src/delta.js'];
  const parts = await Promise.all(modules.map((name) => importOptional<object>('hyparquet', name)));
  return Object.assign({}, ...parts) as Hyparquet;
}

/**
 * Decompressed pages of a row group, by their places in the file. Every page is decompressed to be looked
 * through, and hyparquet decompresses it once more for every slice.
 */
class ColumnPages {
  private readonly bases = new WeakMap<ArrayBufferLike, number>();
  private readonly pages = new Map<number, Uint8Array>();
  private bytes = 0;

  /** These are the bytes of the file from `base` on. */
  place(buffer: ArrayBufferLike, base: number): void {
    this.bases.set(buffer, base);
  }

  /** The same decompressors, which keep what they make. */
  keeping(compressors: Compressors): Compressors {
    const each = ([codec, unpack]: [string, (input: Uint8Array, size: number) => Uint8Array]) => [
      codec,
      (input: Uint8Array, size: number) => this.unpacked(input, size, unpack),
    ];
    return Object.fromEntries(
      Object.entries(compressors as Record<string, (input: Uint8Array, size: number) => Uint8Array>).map(
        each,
      ),
    ) as Compressors;
  }

  private unpacked(
    input: Uint8Array,
    size: number,
    unpack: (input: Uint8Array, size: number) => Uint8Array,
  ): Uint8Array {
    const base = this.bases.get(input.buffer);
    const at = base === undefined ? Number.NaN : base + input.byteOffset;
    const known = this.pages.get(at);
    if (known?.length === size) return known;
    const page = unpack(input, size);
    if (base !== undefined && this.bytes + size <= KEPT_BYTES) {
      this.pages.set(at, page);
      this.bytes += size;
    }
    return page;
  }
}

/** hyparquet calls decompressors synchronously, so zstd is loaded before, if a column needs it. */
async function compressorsOf({ hyparquet, groups }: OpenedParquet): Promise<Compressors> {
  const zstd = groups.some(({ columns }) => columns.some(({ codec }) => codec === 'ZSTD'));
  const unpackZstd = zstd ? await unzstd() : undefined;
  const most = (size: number) => ({ maxOutputLength: Math.max(1, size) });
  return {
    GZIP: (input, size) => zlib.gunzipSync(input, most(size)),
    BROTLI: (input, size) => zlib.brotliDecompressSync(input, most(size)),
    SNAPPY(input, size) {
      checkSnappy(input);
      const output = new Uint8Array(size);
      hyparquet.snappyUncompress(input, output);
      return output;
    },
    LZ4_RAW: unlz4,
    ...(unpackZstd && { ZSTD: unpackZstd }),
  };
}

function groupsOf({ num_rows, row_groups }: FileMetaData, columns: readonly string[]): RowGroup[] {
  let first = 0;
  const groups = row_groups.map((group) => {
    const rows = Number(group.num_rows);
    if (!(rows >= 0)) throw new Error(`a row group must have rows, not ${rows}`);
    const metas = group.columns.map(({ meta_data }) => meta_data!);
    const needed = metas.filter(({ path_in_schema }) => columns.includes(path_in_schema[0]!));
    first += rows;
    return { first: first - rows, rows, columns: needed, checked: false, isWhole: false };
  });
  if (first !== Number(num_rows) || !Number.isSafeInteger(first))
    throw new Error(`row groups must have ${num_rows} rows together, not ${first}`);
  return groups;
}

async function remoteBuffer(file: string): Promise<AsyncBuffer> {
  const { bytes: byteLength, version } = await remoteFile(file);
  const slice = async (from: number, to = byteLength) => (await remoteBytes(file, from, to, version)).buffer;
  return { byteLength, slice };
}

const noParquet = (file: string, error: unknown) =>
  bad(`${file}: must be a parquet file: ${describe(error)}`, error);

/** Whether the metadata of a file are encrypted: its last bytes say so. */
async function hasEncryptedFooter({ byteLength, slice }: AsyncBuffer): Promise<boolean> {
  const end = await slice(Math.max(0, byteLength - ENCRYPTED.length), byteLength);
  return Buffer.from(end).toString('latin1') === ENCRYPTED;
}

async function parse(file: string): Promise<Parsed> {
  const hyparquet = await importHyparquet();
  let buffer: AsyncBuffer | undefined;
  try {
    buffer = isRemote(file) ? await remoteBuffer(file) : await hyparquet.asyncBufferFromFile(file);
    const metadata = await hyparquet.parquetMetadataAsync(buffer);
    const tree = hyparquet.parquetSchema(metadata);
    return { file, hyparquet, buffer, metadata: withRawDecimals(metadata), tree };
  } catch (error) {
    const isEncryptedFile = buffer !== undefined && (await hasEncryptedFooter(buffer).catch(() => false));
    throw noParquet(file, isEncryptedFile ? new Error('it is encrypted') : error);
  }
}

/** @throws BAD_DATA for columns that cannot be read */
function withColumns(parsed: Parsed, columns: readonly string[]): OpenedParquet {
  const { file, metadata, tree } = parsed;
  for (const column of columns) {
    const problem = typeProblem(tree, column);
    if (problem) throw bad(`${file}: column "${column}" ${problem}`);
    if (isEncrypted(metadata, column)) throw bad(`${file}: column "${column}" is encrypted`);
  }
  try {
    const groups = groupsOf(metadata, columns);
    const { num_rows, metadata_length } = metadata;
    return { ...parsed, columns, rows: Number(num_rows), groups, metadataBytes: metadata_length + 8 };
  } catch (error) {
    throw noParquet(file, error);
  }
}

/** @throws BAD_DATA for two columns of one name */
function namesOf({ file, tree }: Parsed): string[] {
  const names = tree.children.map(({ element }) => element.name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw bad(`${file}: has the column "${twice}" more than once`);
  return names;
}

/** A file with the columns of a schema. @throws BAD_DATA */
export async function openSamples(file: string, columns: readonly string[]): Promise<OpenedParquet> {
  const parsed = await parse(file);
  const there = namesOf(parsed);
  const missing = columns.find((column) => !there.includes(column));
  if (missing === undefined) return withColumns(parsed, columns);
  throw bad(`${file}: there must be a column "${missing}", and the file has ${there.join(', ')}`);
}

/** The levels that values of a column have, and their length if it is fixed. */
function levelsOf(tree: SchemaTree, path: readonly string[]) {
  let [node, maxRepetition, maxDefinition] = [tree, 0, 0];
  const leastDefinition = [0];
  for (const name of path) {
    node = node.children.find(({ element }) => element.name === name)!;
    if (node.element.repetition_type === 'REPEATED') maxRepetition += 1;
    if (node.element.repetition_type !== 'REQUIRED') maxDefinition += 1;
    if (node.element.repetition_type === 'REPEATED') leastDefinition.push(maxDefinition);
  }
  return { maxRepetition, maxDefinition, leastDefinition, typeLength: node.element.type_length };
}

/** The needed columns of a row group, in memory; its pages are looked through the first time. */
async function loaded(
  opened: OpenedParquet,
  index: number,
  compressors: Compressors,
  pages: ColumnPages,
): Promise<AsyncBuffer> {
  const { file, hyparquet, buffer, tree, groups } = opened;
  const group = groups[index]!;
  const parts: { begin: number; bytes: Uint8Array }[] = [];
  for (const meta of group.columns) {
    const where = `${file}: row group ${index + 1}, column "${meta.path_in_schema[0]}"`;
    try {
      const { from: begin, to: end } = chunkRange(meta);
      if (!(begin >= 0 && begin <= end && end <= buffer.byteLength))
        throw new Error(`must lie in the ${buffer.byteLength} bytes of the file`);
      const bytes = new Uint8Array(await buffer.slice(begin, end));
      pages.place(bytes.buffer, begin - bytes.byteOffset);
      const chunk = { bytes, meta, rows: group.rows, ...levelsOf(tree, meta.path_in_schema) };
      if (!group.checked && !checkPages(hyparquet, compressors, chunk)) group.isWhole = true;
      parts.push({ begin, bytes });
    } catch (error) {
      throw bad(`${where} must be pages that can be decoded: ${describe(error)}`, error);
    }
  }
  group.checked = true;
  return {
    byteLength: buffer.byteLength,
    /** Bytes between the needed columns are zero: hyparquet does not look at them. */
    slice(from, to = buffer.byteLength) {
      const whole = parts.find(({ begin, bytes }) => begin === from && begin + bytes.length === to);
      if (whole && whole.bytes.length === whole.bytes.buffer.byteLength)
        return whole.bytes.buffer as ArrayBuffer;
      const result = new Uint8Array(to - from);
      pages.place(result.buffer, from);
      for (const { begin, bytes } of parts) {
        const [first, last] = [Math.max(from, begin), Math.min(to, begin + bytes.length)];
        if (first < last) result.set(bytes.subarray(first - begin, last - begin), first - from);
      }
      return result.buffer;
    },
  };
}

/** Rows that follow each other: the cells of each column, in the order in which they were asked for. */
interface ColumnSlice {
  /** Number of the first row of the file, from 0 */
  first: number;
  rows: number;
  columns: readonly Cells[];
}

/** Cells of a column, one after the other. */
class Cells {
  private readonly chunks: { start: number; data: ArrayLike<unknown> }[] = [];
  private index = 0;
  private at = 0;

  /** @param scale digits behind the point; undefined: the cells are no decimals */
  constructor(private readonly scale: number | undefined) {}

  add(start: number, data: ArrayLike<unknown>): void {
    this.chunks.push({ start, data });
  }

  /** Whether there are cells of these rows; the first one is the next one then. */
  begin(begin: number, end: number): boolean {
    this.chunks.sort((a, b) => a.start - b.start);
    const first = this.chunks.findIndex(({ start, data }) => start <= begin && begin < start + data.length);
    if (first < 0) return false;
    this.index = first;
    this.at = begin - this.chunks[first]!.start;
    let reached = this.chunks[first]!.start;
    for (const { start, data } of this.chunks.slice(first)) {
      if (start !== reached) break;
      reached += data.length;
    }
    return reached >= end;
  }

  next(): unknown {
    let { data } = this.chunks[this.index]!;
    if (this.at === data.length) {
      this.index += 1;
      this.at = 0;
      data = this.chunks[this.index]!.data;
    }
    const cell = data[this.at++];
    return this.scale === undefined ? cell : decimalCell(cell, this.scale);
  }
}

/** Cells of the rows of a range. @throws BAD_DATA */
export async function* slices(
  opened: OpenedParquet,
  range: { begin: number; end: number },
  onRead: () => void = () => {},
): AsyncGenerator<ColumnSlice, void, undefined> {
  const all = await compressorsOf(opened);
  const step = Math.max(SLICE_ROWS, Math.floor(SLICE_VALUES / Math.max(1, opened.columns.length)));
  for (const [index, { first, rows }] of opened.groups.entries()) {
    const [begin, end] = [Math.max(range.begin, first), Math.min(range.end, first + rows)];
    if (begin >= end) continue;
    const pages = new ColumnPages();
    const compressors = pages.keeping(all);
    const buffer = await loaded(opened, index, compressors, pages);
    onRead();
    for (let at = begin; at < end; at += step) {
      const from = opened.groups[index]!.isWhole ? first : at;
      const slice = { buffer, compressors, group: index, from, begin: at, end: Math.min(end, at + step) };
      yield { first: at, rows: slice.end - at, columns: await readSlice(opened, slice) };
      onRead();
    }
  }
}

interface Slice {
  buffer: AsyncBuffer;
  compressors: Compressors;
  group: number;
  /** The row from which on rows are decoded */
  from: number;
  begin: number;
  end: number;
}

async function readSlice(
  { file, hyparquet, metadata, tree, columns }: OpenedParquet,
  { buffer, compressors, group, from, begin, end }: Slice,
): Promise<Cells[]> {
  const where = `${file}: row group ${group + 1}, rows ${begin + 1} to ${end}`;
  let cells: Map<string, Cells>;
  try {
    cells = new Map(columns.map((column) => [column, new Cells(scaleOf(tree, column))]));
    await hyparquet.parquetRead({
      ...{ file: buffer, metadata, compressors, rowStart: from, rowEnd: end },
      columns: [...columns],
      ...DECODING,
      onChunk: ({ columnName, columnData, rowStart }) => cells.get(columnName)?.add(rowStart, columnData),
    });
  } catch (error) {
    throw bad(`${where} cannot be read: ${describe(error)}`, error);
  }
  const all = columns.map((column) => cells.get(column)!);
  const short = all.findIndex((each) => !each.begin(begin, end));
  if (short < 0) return all;
  throw bad(`${where}: must be ${end - begin} rows, and column "${columns[short]}" has not as many`);
}

/** Rows that follow each other, as objects with a field per column. */
export interface ParquetSlice {
  /** Number of the first row of the file, from 0 */
  first: number;
  objects: readonly Record<string, unknown>[];
}

/** A file: names of its columns, and a reader of some of them in all rows. */
export interface ParquetFile {
  columns: readonly string[];
  /** @throws BAD_DATA */
  read(columns: readonly string[]): AsyncGenerator<ParquetSlice, void, undefined>;
}

/** @throws BAD_DATA */
export async function openParquet(file: string): Promise<ParquetFile> {
  const parsed = await parse(file);
  return {
    columns: namesOf(parsed),
    async *read(columns) {
      const opened = withColumns(parsed, columns);
      for await (const slice of slices(opened, { begin: 0, end: opened.rows })) {
        const row = () => Object.fromEntries(columns.map((name, at) => [name, slice.columns[at]!.next()]));
        yield { first: slice.first, objects: Array.from({ length: slice.rows }, row) };
      }
    },
  };
}
