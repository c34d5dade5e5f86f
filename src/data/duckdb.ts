/**
 * Parquet by DuckDB, where its package for Node is installed. Its library decodes columns, and the addon
 * makes rows of a batch of them. A row that is unusual or wrong, a column of another type, and a file that
 * DuckDB refuses are left to hyparquet (parquet.ts). So a file means the same with and without the package.
 */
import { closeSync, existsSync, openSync, readSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { ColumnMetaData, SchemaTree } from 'hyparquet';
import { loadNative } from '../engine/native.js';
import type { NativeColumns, NativeDuckdb } from '../engine/native-data.js';
import type { Batch } from './batch.js';
import { linePlan } from './line-plan.js';
import { isRemote } from './object-store.js';
import { arePagesSound, chunkRange, type PageLibrary } from './parquet-pages.js';
import type { ByteRange, RowSink } from './reader.js';
import { RemoteGroup, type RemoteObject } from './remote-groups.js';
import type { SchemaRows } from './rows.js';
import type { Schema } from './schema.js';

const SETTINGS = [
  'SET threads = 1',
  // A damaged page may claim to be large. A reader of sound files needs some 50 MB.
  "SET memory_limit = '1GB'",
  "SET temp_directory = ''",
  'SET autoinstall_known_extensions = false',
  'SET autoload_known_extensions = false',
  // A file without a name may have the path of another one before it.
  'SET enable_external_file_cache = false',
].join('; ');
/** Rows that are read before other work of the process has its turn. */
const ROWS_PER_TURN = 16_384;

/** The library of DuckDB's package for Node; undefined: the package is not installed. */
function libraryFile(): string | undefined {
  const name = process.platform === 'darwin' ? 'libduckdb.dylib' : 'libduckdb.so';
  const platform = `@duckdb/node-bindings-${process.platform}-${process.arch}`;
  for (const folder of [platform, `${platform}-musl`]) {
    try {
      let at = import.meta.url;
      for (const wanted of ['@duckdb/node-api', '@duckdb/node-bindings', folder])
        at = createRequire(at).resolve(`${wanted}/package.json`);
      const file = join(dirname(at), name);
      if (existsSync(file)) return file;
    } catch {
      // The next one, or none.
    }
  }
  return undefined;
}

let database: NativeDuckdb | undefined;
let looked = false;

/** One database for the process; undefined: DuckDB is not there, or does not run here. */
function duckdb(): NativeDuckdb | undefined {
  if (looked) return database;
  looked = true;
  const file = libraryFile();
  try {
    if (file !== undefined) database = loadNative().openDuckdb(file, SETTINGS);
  } catch {
    // A library for another C library, such as that of glibc on musl. hyparquet reads instead.
  }
  return database;
}

/** Types that have one meaning as numbers, text or bytes. */
const CONVERTED = /^(UTF8|U?INT_(8|16|32|64))$/;
const PHYSICAL = ['BOOLEAN', 'INT32', 'INT64', 'FLOAT', 'DOUBLE', 'BYTE_ARRAY', 'FIXED_LEN_BYTE_ARRAY'];

function isPlain({ element, children }: SchemaTree): boolean {
  const { type, converted_type, logical_type, repetition_type } = element;
  return (
    children.length === 0 &&
    repetition_type !== 'REPEATED' &&
    PHYSICAL.includes(type ?? '') &&
    (converted_type === undefined || CONVERTED.test(converted_type)) &&
    (logical_type === undefined || logical_type.type === 'STRING' || logical_type.type === 'INTEGER')
  );
}

/** A list as the format writes it today: a group that repeats, of one element. */
function isPlainList({ element, children }: SchemaTree): boolean {
  const [list] = children;
  const isList = element.converted_type === 'LIST' || element.logical_type?.type === 'LIST';
  if (!list || !isList || element.repetition_type === 'REPEATED' || children.length !== 1) return false;
  if (list.element.repetition_type !== 'REPEATED' || list.children.length !== 1) return false;
  return isPlain(list.children[0]!);
}

const lower = (name: string) => name.toLowerCase();
const text = (value: string) => `'${value.replaceAll("'", "''")}'`;
const identifier = (name: string) => `"${name.replaceAll('"', '""')}"`;

/** A row group of a file. */
export interface DecodedGroup {
  /** Number of its first row in the file, from 0 */
  first: number;
  rows: number;
  /** The needed columns */
  columns: readonly ColumnMetaData[];
  /** All pages are of a size that a reader takes, and have their checksums; undefined: nobody has looked. */
  isSound?: boolean;
}

/** A file whose metadata were read. */
export interface DecodedFile {
  file: string;
  tree: SchemaTree;
  /** Columns of the schema */
  columns: readonly string[];
  hyparquet: PageLibrary;
  groups: readonly DecodedGroup[];
  /** Columns whose cells are bytes that are one value each */
  single: ReadonlySet<string>;
  /** The bytes of `file` */
  buffer: RemoteObject;
  /** Bytes of its metadata, which end it */
  metadataBytes: number;
}

/** A file that DuckDB opens. */
interface LocalFile extends DecodedFile {
  /** Only this group is there, whose file `path` is. */
  held?: RemoteGroup;
}

/** Whether DuckDB reads the columns as hyparquet does. */
function isReadable({ file, tree, columns }: DecodedFile): boolean {
  // DuckDB would take a pattern for several files, and names that differ in case for one.
  if (!isRemote(file) && /[*?[\]]/.test(file)) return false;
  const names = tree.children.map(({ element }) => lower(element.name));
  if (new Set(names).size !== names.length || names.includes('file_row_number')) return false;
  return columns.every((column) => {
    const node = tree.children.find(({ element }) => element.name === column);
    return node !== undefined && (isPlain(node) || isPlainList(node));
  });
}

/**
 * Whether the pages of a range are small enough to be decoded before anything else is known of them, and have
 * their checksums, which DuckDB does not compare. It reads ahead, so the row group after the range counts.
 */
function areGroupsSound({ file, groups, hyparquet }: DecodedFile, { begin, end }: ByteRange): boolean {
  const first = groups.findIndex((group) => begin < group.first + group.rows);
  const behind = groups.findIndex((group) => end <= group.first + group.rows) + 2;
  const wanted = groups.slice(first, behind);
  const unknown = wanted.filter(({ isSound }) => isSound === undefined);
  if (unknown.length > 0) {
    const fd = openSync(file, 'r');
    const read = (from: number, bytes: number) => {
      const buffer = new Uint8Array(bytes);
      return buffer.subarray(0, readSync(fd, buffer, 0, bytes, from));
    };
    for (const group of unknown)
      group.isSound = group.columns.every((column) => arePagesSound(hyparquet, column, read));
    closeSync(fd);
  }
  return wanted.every(({ isSound }) => isSound);
}

/** Whether two rows are in one row group: those between them cost no more than to begin at the second. */
function isOneGroup({ groups }: DecodedFile, row: number, other: number): boolean {
  return groups.some(({ first, rows }) => first <= row && other < first + rows);
}

/** Rows from `begin` on. A filter on the number of a row leaves row groups out. */
function queryOf({ file, columns, groups, held }: LocalFile, begin: number): string {
  const [group] = groups;
  const isWhole = begin === 0 && !held;
  const options = `hive_partitioning = false${isWhole ? '' : ', file_row_number = true'}`;
  const from = `SELECT ${columns.map(identifier).join(', ')} FROM read_parquet(${text(file)}, ${options})`;
  const until = held ? ` AND file_row_number < ${group!.first + group!.rows}` : '';
  return isWhole ? from : `${from} WHERE file_row_number >= ${begin}${until}`;
}

/** A query of a file, and the row that comes next. */
interface OpenQuery {
  file: string;
  held: RemoteGroup | undefined;
  columns: NativeColumns;
  row: number;
}

function close({ columns, held }: OpenQuery): void {
  loadNative().closeColumns(columns);
  held?.leave();
}

/** Reads the columns of a schema. */
export class ColumnReader {
  /** The newest query: the next range mostly goes on where it is. */
  private idle: OpenQuery | undefined;
  /** The newest row group of an object store */
  private newest: { of: DecodedGroup; held: RemoteGroup } | undefined;

  constructor(private readonly schema: Schema) {}

  /**
   * The batches that rows of a range complete. Returns the first row of the range that was not taken: its
   * end, if all were.
   */
  async *read(
    opened: DecodedFile,
    range: ByteRange,
    sink: RowSink<SchemaRows>,
    onRead: () => void = () => {},
  ): AsyncGenerator<Batch, number, undefined> {
    if (!isRemote(opened.file)) return yield* this.readLocal(opened, range, sink, onRead);
    let { begin } = range;
    for (const group of opened.groups) {
      const end = Math.min(range.end, group.first + group.rows);
      if (begin >= end) continue;
      const held = await this.hold(opened, group);
      if (!held) return begin;
      onRead();
      try {
        const local = { ...opened, file: held.path, groups: [group], held };
        begin = yield* this.readLocal(local, { ...range, begin, end }, sink, onRead);
      } finally {
        held.leave();
      }
      if (begin < end) return begin;
      if (end === group.first + group.rows) this.release();
    }
    return begin;
  }

  /** A group of an object store, for one more user. */
  private async hold(opened: DecodedFile, group: DecodedGroup): Promise<RemoteGroup | undefined> {
    if (this.newest?.of === group) return this.newest.held.use();
    this.release();
    if (!isReadable(opened) || !duckdb()) return undefined;
    const ranges = group.columns.map(chunkRange);
    const held = await RemoteGroup.open(opened.buffer, opened.metadataBytes, ranges);
    if (!held) return undefined;
    this.release();
    this.newest = { of: group, held };
    return held.use();
  }

  /** Gives up the newest group of an object store, and the query of it. */
  private release(): void {
    if (this.idle?.held) {
      close(this.idle);
      this.idle = undefined;
    }
    this.newest?.held.leave();
    this.newest = undefined;
  }

  private async *readLocal(
    opened: LocalFile,
    range: ByteRange,
    sink: RowSink<SchemaRows>,
    onRead: () => void,
  ): AsyncGenerator<Batch, number, undefined> {
    const query = this.query(opened, range);
    if (!query) return range.begin;
    let isDone = false;
    try {
      for (let turn = ROWS_PER_TURN; query.row < range.end; ) {
        const taken = sink.rows.addColumns(query.columns, range.end - query.row);
        query.row += taken;
        onRead();
        const batch = sink.added();
        if (batch) yield batch;
        else if (query.row < range.end) return query.row;
        turn -= taken;
        if (turn > 0) continue;
        turn = ROWS_PER_TURN;
        await nextTurn();
      }
      isDone = true;
      return range.end;
    } finally {
      if (isDone) this.keep(query);
      else close(query);
    }
  }

  /** Undefined: DuckDB is not there, or does not take the file. */
  private query(opened: LocalFile, range: ByteRange): OpenQuery | undefined {
    try {
      return this.goOn(opened, range) ?? this.begin(opened, range);
    } catch (error) {
      // hyparquet says what is wrong with the file, or reads it.
      if (['BAD_DATA', 'ENOENT'].includes(String((error as { code?: string }).code))) return undefined;
      throw error;
    }
  }

  /** The newest query, if the range begins where it is, or a little further. */
  private goOn(opened: LocalFile, range: ByteRange): OpenQuery | undefined {
    const known = this.idle;
    this.idle = undefined;
    if (!known) return undefined;
    const { begin } = range;
    const skipped = begin - known.row;
    const goesOn =
      known.file === opened.file &&
      known.held === opened.held &&
      skipped >= 0 &&
      isOneGroup(opened, known.row, begin) &&
      areGroupsSound(opened, range);
    if (goesOn && loadNative().skipColumns(known.columns, skipped))
      return Object.assign(known, { row: begin });
    close(known);
    return undefined;
  }

  private begin(opened: LocalFile, range: ByteRange): OpenQuery | undefined {
    const { file, held, columns, single } = opened;
    const plan = isReadable(opened) ? linePlan(this.schema, columns, '\n', single) : undefined;
    const db = plan && duckdb();
    if (!plan || !db || !areGroupsSound(opened, range)) return undefined;
    const query = queryOf(opened, range.begin);
    const opening = loadNative().openColumns(db, plan, query);
    return { file, held: held?.use(), columns: opening, row: range.begin };
  }

  private keep(query: OpenQuery): void {
    if (this.idle) close(this.idle);
    this.idle = query;
  }
}
