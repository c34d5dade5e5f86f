/**
 * Columns as programs in Python name them: numbers, keys and one label, by position or by name, without a
 * schema. Each key has the number of its column in it, so that all columns share one table. In the Criteo
 * layout these are the keys of criteo.ts.
 */
import { KintsugiError, valueText } from '../common/errors.js';
import type { NumberedKeyKind, Schema } from './schema.js';
import { COMMON_TABLE } from './schema.js';

/** Positions are numbers from 0. Columns are all positions, or all names. */
export interface NamedColumns {
  dense: readonly (number | string)[];
  sparse: readonly (number | string)[];
  label: number | string;
  keys: 'hex' | 'integer' | 'text';
}

const KINDS: Readonly<Record<NamedColumns['keys'], NumberedKeyKind>> = {
  hex: 'hex8',
  integer: 'digits9',
  text: 'fnv',
};

const wrong = (text: string) => new KintsugiError('BAD_ARGUMENT', text);

/** @throws BAD_ARGUMENT */
function checkColumns({ dense, sparse, label, keys }: NamedColumns): void {
  if (!Array.isArray(dense) || !Array.isArray(sparse))
    throw wrong('dense and sparse must be lists of columns');
  const kind = typeof label;
  const other = [label, ...dense, ...sparse].find((column) => typeof column !== kind);
  if (other !== undefined || !['string', 'number'].includes(kind))
    throw wrong('columns must be all positions, or all names');
  if (!Object.hasOwn(KINDS, keys))
    throw wrong(`keys must be "hex", "integer" or "text", not ${valueText(keys)}`);
}

/** The schema of such columns. @throws BAD_ARGUMENT */
export function schemaOfColumns(columns: NamedColumns): Schema {
  checkColumns(columns);
  const { dense, sparse, label, keys } = columns;
  const single = { table: COMMON_TABLE, shared: true, multi: false, pooling: 'mean', limit: 1 } as const;
  return {
    labels: [{ column: String(label), any: true }],
    dense: dense.map((column, index) => {
      return { name: String(index), column: String(column), transform: { kind: 'none' }, width: 1 };
    }),
    sparse: sparse.map((column, index) => {
      const which = { name: String(index), column: String(column), key: KINDS[keys], number: index + 1 };
      return { ...which, ...single, separator: '|' };
    }),
    tables: [{ name: COMMON_TABLE }],
    header: typeof label === 'number' ? 'positions' : undefined,
  };
}
