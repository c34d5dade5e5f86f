/** A schema in the terms of the parser of the addon. */
import { loadNative } from '../engine/native.js';
import type { LinePlan, NativeLineParser } from '../engine/native-data.js';
import { isWellFormed, KeyMaker } from './keys.js';
import type { Schema, Transform } from './schema.js';

const KEYS = { integer: 0, hash: 1, string: 2, hash64: 3, hex8: 4, digits9: 5, fnv: 6 } as const;

function transformOf(transform: Transform) {
  if (transform.kind === 'none') return { kind: 0 };
  if (transform.kind === 'log1p') return { kind: 1 };
  if (transform.kind === 'normalise') return { ...transform, kind: 2 };
  return { kind: 3, boundaries: Float64Array.from(transform.boundaries) };
}

/**
 * The plan for the columns of `header`, which has all columns of the schema; undefined for a schema that the
 * addon cannot express. `whole`: columns in which bytes are one value each, with a separator in them or not.
 */
export function linePlan(
  schema: Schema,
  header: readonly string[],
  delimiter: string,
  whole?: ReadonlySet<string>,
): LinePlan | undefined {
  // Text that is no UTF-8 is compared as JavaScript reads it, and has no bytes to be looked for.
  if (!schema.sparse.every(({ separator }) => isWellFormed(separator))) return undefined;
  const place = (column: string) => header.indexOf(column);
  const perhaps = (column: string | undefined) => (column === undefined ? undefined : place(column));
  return {
    delimiter: delimiter.charCodeAt(0),
    fields: header.length,
    labels: schema.labels.map(({ column, atLeast, any = false }) => {
      return { place: place(column), atLeast, any };
    }),
    dense: schema.dense.map(({ column, transform }) => ({ place: place(column), ...transformOf(transform) })),
    sparse: schema.sparse.map((column) => {
      const { key, shared, multi, limit, separator } = column;
      const weights = perhaps(column.weights);
      const { seed } = new KeyMaker(column);
      const what = {
        key: KEYS[key],
        shared,
        multi,
        utf8: column.encoding === 'utf8',
        whole: whole?.has(column.column) ?? false,
        seed,
        limit,
        separator,
      };
      return { place: place(column.column), weights, ...what };
    }),
    weight: perhaps(schema.weight),
    time: perhaps(schema.time),
  };
}

/** The addon's parser of lines with the columns of `header`; undefined as for `linePlan`. */
export function createParser(
  schema: Schema,
  header: readonly string[],
  delimiter: string,
): NativeLineParser | undefined {
  const plan = linePlan(schema, header, delimiter);
  return plan && loadNative().createLineParser(plan);
}
