/**
 * A schema says what the columns of data files mean to a model. `parseSchema` (parse-schema.ts) makes one of
 * the JSON that users write; here every default is filled in. Data in the Criteo layout need no schema
 * (criteo.ts).
 */
import type { InitializerSpec, OptimizerSpec } from '../engine/native.js';

/** Columns that name no table have rows of their own in this one. */
export const COMMON_TABLE = 'embedding';
/** Values of a multi-valued column that count, unless the schema says otherwise: the last ones. */
export const DEFAULT_LIMIT = 100;

/** A label, which a model predicts: 0 or 1. */
export interface Label {
  column: string;
  /** 1 from this number on, else 0; undefined: the column has 0 and 1. */
  atLeast?: number | undefined;
  /** The column has any numbers, and they are the labels (named-columns.ts). */
  any?: boolean | undefined;
}

/** How a number becomes an input of the model. A missing one becomes zeros, whatever the transform. */
export type Transform =
  | { kind: 'none' }
  /** log(1 + x); negative numbers count as 0 */
  | { kind: 'log1p' }
  /** (x - mean) / std */
  | { kind: 'normalise'; mean: number; std: number }
  /** One value per bucket, 1 in the one that x falls into: below, between and from the boundaries on */
  | { kind: 'bucketise'; boundaries: readonly number[] };

/** A column of numbers, with their transform. */
export interface DenseColumn {
  name: string;
  column: string;
  transform: Transform;
  /** Inputs of the model that the column gives */
  width: number;
}

/**
 * `integer`: from -2^63 + 1 to 2^64 - 2, but for -1 and 2^63; a negative one is the key of its
 * two's complement. `hash64`: a hash, as a number or as text of up to 16 hexadecimal digits. `hash`: the same
 * without the highest bit, so two hashes that differ in it alone are one key. `string`: any text, of which a
 * hash is taken.
 */
export type KeyKind = 'integer' | 'hash' | 'hash64' | 'string';

/**
 * Keys with the number of their column in them, which no JSON of a schema can ask for (named-columns.ts):
 * up to 8 hexadecimal or 9 decimal digits below that number, or the FNV-1a hash of a text mixed with it.
 */
export type NumberedKeyKind = 'hex8' | 'digits9' | 'fnv';

/** How the text of a cell is read: as it stands, or as UTF-8, and then anything else is BAD_DATA. */
export type TextEncoding = 'bytes' | 'utf8';

/** How the rows of several values become those of one; `none`: they are a sequence and stay apart. */
export type Pooling = 'sum' | 'mean' | 'none';

/** A column of values that have rows in a table. */
export interface SparseColumn {
  name: string;
  column: string;
  key: KeyKind | NumberedKeyKind;
  /** The number of the column from 1, in a `NumberedKeyKind` */
  number?: number | undefined;
  /** Encoding of text that becomes `string` keys; default: `bytes` */
  encoding?: TextEncoding | undefined;
  table: string;
  /** The table was named: its keys are the values themselves, and columns that name it share its rows. */
  shared: boolean;
  /** Several values; of a single-valued one a missing value has a key of its own. */
  multi: boolean;
  pooling: Pooling;
  /** Most values of a sample that count: the last ones. */
  limit: number;
  /** Column with as many weights */
  weights?: string | undefined;
  /** Separates the values of a cell that is text */
  separator: string;
}

/** A table of the schema. A field that is undefined has the value of the worker's flags. */
export interface SchemaTable {
  name: string;
  dim?: number | undefined;
  optimizer?: OptimizerSpec | undefined;
  initializer?: InitializerSpec | undefined;
}

/** The meaning of the columns of data files. */
export interface Schema {
  /** At least one */
  labels: readonly Label[];
  dense: readonly DenseColumn[];
  sparse: readonly SparseColumn[];
  /** All tables that columns use, in the order of their first use */
  tables: readonly SchemaTable[];
  /** Column with the weight of a sample */
  weight?: string | undefined;
  /** Column with the time of a sample, a number */
  time?: string | undefined;
  /**
   * Columns of CSV and TSV files that have no header; undefined: their first line names them. `positions`:
   * the names are 0, 1, and so on, as many as the first line has.
   */
  header?: readonly string[] | 'positions' | undefined;
}

/** Columns of the files that a schema needs, each once. */
export function columnsOf({ labels, dense, sparse, weight, time }: Schema): string[] {
  const all = [...labels, ...dense, ...sparse].map(({ column }) => column);
  const weights = sparse.map((each) => each.weights);
  const given = [...all, ...weights, weight, time].filter((column) => column !== undefined);
  return [...new Set(given)];
}

/** Values of the dense columns of a sample. */
export function denseWidth({ dense }: Schema): number {
  return dense.reduce((sum, { width }) => sum + width, 0);
}
