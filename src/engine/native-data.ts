/** The functions of the addon for readers of data files: lines of text become rows of a batch. */

/** Words of the state of `xxh64`. */
export const XXH64_STATE_WORDS = 9;

/**
 * Arguments and results of a parser call, as numbers: rows of the batch (in and out), its capacity (in), the
 * start of the line where the call stopped, lines that it took, why it stopped (`LineStop`), late numbers,
 * and of ROOM the sparse column. Keys of each sparse column (in and out) follow.
 */
export type LineState = Uint32Array;

export const LINE_STATE = {
  rows: 0,
  capacity: 1,
  at: 2,
  lines: 3,
  why: 4,
  late: 5,
  column: 6,
  counts: 7,
} as const;

export const LineStop = {
  /** No further whole line begins before the limit. */
  END: 0,
  /** The batch is full. */
  FULL: 1,
  /** This line is not taken: it is wrong, or unusual. */
  HARD: 2,
  /** A list of keys is full, or that of late numbers (`NO_COLUMN`). */
  ROOM: 3,
} as const;

export const NO_COLUMN = 0xffff_ffff;

/**
 * log1p of 0, 1, 2, ... and room for the numbers x whose log1p is left to the caller, with their places among
 * the dense values of the batch.
 */
export type Logarithms = [table: Float32Array, places: Uint32Array, numbers: Float64Array];

export interface LinePlan {
  /** Code of an ASCII character */
  delimiter: number;
  /** Columns of every line; places are below. */
  fields: number;
  labels: readonly { place: number; atLeast?: number | undefined; any: boolean }[];
  /** kind: 0 none, 1 log1p, 2 normalise, 3 bucketise */
  dense: readonly { place: number; kind: number; mean?: number; std?: number; boundaries?: Float64Array }[];
  sparse: readonly {
    place: number;
    weights?: number | undefined;
    /** 0 integer, 1 hash, 2 string, 3 hash64, 4 hex8, 5 digits9, 6 fnv */
    key: number;
    shared: boolean;
    /** A text that is no UTF-8 is not taken. */
    utf8: boolean;
    multi: boolean;
    /** Bytes are one value where `multi`. */
    whole: boolean;
    seed: number;
    limit: number;
    separator: string;
  }[];
  weight?: number | undefined;
  time?: number | undefined;
}

/** A `LinePlan`, ready for use. */
export type NativeLineParser = { readonly brand: unique symbol };

/** A database of DuckDB, without a file. */
export type NativeDuckdb = { readonly brand: unique symbol };

/** A query of DuckDB whose rows become rows of batches. */
export type NativeColumns = { readonly brand: unique symbol };

/** Arrays of a batch that a parser fills. `lists`: keys, offsets and weights of each sparse column. */
export type BatchArrays = [
  targets: Float32Array,
  dense: Float32Array,
  weights: Float32Array,
  times: Float64Array,
  lists: readonly (readonly [BigUint64Array, Uint32Array, Float32Array | undefined])[],
];

export interface NativeData {
  /**
   * Takes lines in the Criteo layout of `bytes[from..)` that begin before `until`, until one that it does
   * not take. @throws BAD_ARGUMENT for arrays that are too short
   */
  parseCriteo(
    bytes: Uint8Array,
    from: number,
    until: number,
    state: LineState,
    labels: Float32Array,
    dense: Float32Array,
    keys: BigUint64Array,
    ...logarithms: Logarithms
  ): void;
  /** @throws BAD_ARGUMENT */
  createLineParser(plan: LinePlan): NativeLineParser;
  /** As `parseCriteo`, of the lines of a schema. */
  parseLines(
    parser: NativeLineParser,
    bytes: Uint8Array,
    from: number,
    until: number,
    state: LineState,
    ...arrays: [...BatchArrays, ...Logarithms]
  ): void;
  /** CRC-32 as gzip and parquet have it. */
  crc32(bytes: Uint8Array): number;
  /**
   * XXH64 with seed 0 of bytes that come in pieces, as frames of zstd have it. `state` holds
   * `XXH64_STATE_WORDS`; zeros: nothing has come. Returns the lower 32 bits of the hash of all bytes so far.
   */
  xxh64(state: BigUint64Array, bytes: Uint8Array): number;
  /**
   * Loads the shared library of DuckDB and opens a database. `settings`: statements of SQL.
   * @throws DEPENDENCY_MISSING for a library that cannot be loaded
   */
  openDuckdb(library: string, settings: string): NativeDuckdb;
  /**
   * Begins a query that gives the columns of `plan`, whose delimiter does not matter. @throws BAD_DATA with
   * what DuckDB says
   */
  openColumns(database: NativeDuckdb, plan: LinePlan, query: string): NativeColumns;
  /**
   * Takes at most `most` rows as `parseLines` takes lines. Where DuckDB fails, there is a row that is not
   * taken.
   */
  takeColumns(
    columns: NativeColumns,
    most: number,
    state: LineState,
    ...arrays: [...BatchArrays, ...Logarithms]
  ): void;
  /** Leaves rows out. Returns whether there were so many. */
  skipColumns(columns: NativeColumns, rows: number): boolean;
  /** Ends a query, and frees what it holds. Nothing comes of it afterwards. */
  closeColumns(columns: NativeColumns): void;
}
