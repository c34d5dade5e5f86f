/**
 * Short texts of what a schema means for samples, which a job keeps with a run. Two schemas have the same
 * ones if the same samples train in the same way: they say nothing of formats and of the order of columns in
 * files, and nothing of the settings of tables, which tables have themselves.
 */
import { createHash } from 'node:crypto';
import type { DenseColumn, Label, Schema, SparseColumn } from './schema.js';

/** A longer text is told as its digest. */
const MAX_TEXT = 240;
const DIGEST_DIGITS = 16;

/** Text of each part; a part that a schema does not have is `none`. */
export type SchemaMeaning = Record<'label' | 'dense' | 'sparse' | 'weight' | 'time', string>;

/** The column as its name where that is all. */
function shortest<T extends { column: string }>(column: T): T | string {
  return Object.values(column).filter((value) => value !== undefined).length === 1 ? column.column : column;
}

const ownName = ({ name, column }: { name: string; column: string }) => (name === column ? undefined : name);

const labelOf = ({ column, atLeast, any }: Label) => shortest({ column, atLeast, any: any || undefined });

const denseOf = ({ column, transform, ...rest }: DenseColumn) =>
  shortest({
    ...{ column, name: ownName({ column, ...rest }) },
    transform: transform.kind === 'none' ? undefined : sorted(transform),
  });

function sparseOf(given: SparseColumn) {
  const { column, key, number, encoding, table, shared, multi } = given;
  const { pooling, limit, separator, weights } = given;
  return shortest({
    ...{ column, name: ownName(given) },
    key: key === 'string' ? undefined : key,
    number,
    encoding: encoding === 'utf8' ? encoding : undefined,
    table: shared ? table : undefined,
    ...(multi && { multi, pooling, limit, separator, weights }),
  });
}

/** The fields in the order of their names. */
const sorted = (value: object) =>
  Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));

const CRITEO = 'that of the Criteo layout';

/** Meaning of files that no schema describes. */
export const CRITEO_MEANING: SchemaMeaning = {
  ...{ label: CRITEO, dense: CRITEO, sparse: CRITEO },
  ...{ weight: 'none', time: 'none' },
};

function textOf(value: unknown): string {
  if (value === undefined) return 'none';
  const text = JSON.stringify(value);
  if (text.length <= MAX_TEXT) return text;
  const digest = createHash('sha256').update(text).digest('hex').slice(0, DIGEST_DIGITS);
  return `${Array.isArray(value) ? `${value.length} columns with` : 'what has'} the digest ${digest}`;
}

export function meaningOf({ labels, dense, sparse, weight, time }: Schema): SchemaMeaning {
  const each = labels.map(labelOf);
  return {
    label: textOf(each.length === 1 ? each[0] : each),
    dense: textOf(dense.length > 0 ? dense.map(denseOf) : undefined),
    sparse: textOf(sparse.map(sparseOf)),
    weight: textOf(weight),
    time: textOf(time),
  };
}
