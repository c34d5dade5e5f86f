/**
 * What the columns of data files mean to a model. `parseSchema` (parse-schema.ts) makes a schema of what
 * users write; here every default is filled in. Data in the Criteo layout need no schema (criteo.ts).
 */
import type { InitializerSpec, OptimizerSpec } from '../native.js';

/** Columns that name no table have rows of their own in this one. */
export const COMMON_TABLE = 'embedding';
/** Values of a multi-valued column that count, unless the schema says otherwise: the last ones. */
export const DEFAULT_LIMIT = 100;

/** What is predicted: 0 or 1. */
export interface Label {
  column: string;
  /** 1 from this number on, else 0; undefined: the column has 0 and 1. */
  atLeast?: number | undefined;
}

/** What becomes of a number. A missing one becomes zeros, whatever the transform. */
export type Transform =
  | { kind: 'none' }
  /** log(1 + x); negative numbers count as 0 */
  | { kind: 'log1p' }
  /** (x - mean) / std */
  | { kind: 'normalise'; mean: number; std: number }
  /** One value per bucket, 1 in the one that x falls into: below, between and from the boundaries on */
  | { kind: 'bucketise'; boundaries: readonly number[] };

/** A column of numbers, with what becomes of them. */
export interface DenseColumn {
  name: string;
  column: string;
  transform: Transform;
  /** Values that it gives */
  width: number;
}

/**
 * `integer`: from 0 to 2^63 - 1. `hash`: up to 16 hexadecimal digits of a hash, of which the highest bit does
 * not count. `string`: any text, of which a hash is taken.
 */
export type KeyKind = 'integer' | 'hash' | 'string';

/** How the rows of several values become those of one; `none`: they are a sequence and stay apart. */
export type Pooling = 'sum' | 'mean' | 'none';

/** A column of values that have rows in a table. */
export interface SparseColumn {
  name: string;
  column: string;
  key: KeyKind;
  table: string;
  /** The table was named: its keys are the values themselves, and columns that name it share its rows. */
  shared: boolean;
  /** Several values; of a single-valued one a missing value has a key of its own. */
  multi: boolean;
  pooling: Pooling;
  /** Of more values only the last ones count. */
  limit: number;
  /** Column with as many weights */
  weights?: string | undefined;
  /** Between the values, where a cell is text */
  separator: string;
}

/** What is not said here is what the worker's flags say. */
export interface SchemaTable {
  name: string;
  dim?: number | undefined;
  optimizer?: OptimizerSpec | undefined;
  initializer?: InitializerSpec | undefined;
}

/** What the columns of data files mean to a model. */
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
  /** Columns of CSV and TSV files that have no header; undefined: their first line names them. */
  header?: readonly string[] | undefined;
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
