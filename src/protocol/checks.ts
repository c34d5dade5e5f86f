/** Checks of the shape of values from outside: messages, and manifests of checkpoints. */
import { ERROR_CODES } from '../common/errors.js';
import { SCHEMA_PARTS } from './samples.js';

export type FieldCheck = (value: unknown) => boolean;

export const natural: FieldCheck = (v) => typeof v === 'number' && Number.isSafeInteger(v) && v >= 0;
/** A number of 32 bits, as the engine has it. */
export const word: FieldCheck = (v) => natural(v) && (v as number) < 2 ** 32;
export const bool: FieldCheck = (v) => typeof v === 'boolean';
export const text: FieldCheck = (v) => typeof v === 'string' && v.length <= 4096;
export const optional =
  (check: FieldCheck): FieldCheck =>
  (v) =>
    v === undefined || check(v);
export const either =
  (...checks: FieldCheck[]): FieldCheck =>
  (v) =>
    checks.some((check) => check(v));
export const list =
  (check: FieldCheck): FieldCheck =>
  (v) =>
    Array.isArray(v) && v.every(check);
/** A list with one check for each position. Optional positions at the end may be absent. */
export const tuple =
  (...checks: FieldCheck[]): FieldCheck =>
  (v) =>
    Array.isArray(v) && v.length <= checks.length && checks.every((check, i) => check(v[i]));
export const object: FieldCheck = (v) => typeof v === 'object' && v !== null && !Array.isArray(v);
export const record = (fields: Record<string, FieldCheck>): FieldCheck => {
  const checks = Object.entries(fields);
  return (v) => object(v) && wrongField(checks, v as Record<string, unknown>) === undefined;
};
/** The first field that is missing or malformed. */
export function wrongField(
  checks: readonly [string, FieldCheck][],
  value: Record<string, unknown>,
): string | undefined {
  for (let i = 0; i < checks.length; i++) {
    const [name, check] = checks[i]!;
    if (!check(value[name])) return name;
  }
  return undefined;
}
export const code: FieldCheck = (v) => typeof v === 'string' && Object.hasOwn(ERROR_CODES, v);
export const integer: FieldCheck = (v) => typeof v === 'number' && Number.isSafeInteger(v);
/** Checks a `DatasetSpec`. */
export const dataset = record({
  follow: optional(bool),
  files: list(record({ name: text, size: natural, rangeBytes: natural, mark: optional(text) })),
  batch: natural,
  epochs: natural,
  seed: natural,
  shuffle: bool,
  staleness: natural,
  schema: optional(record(Object.fromEntries(SCHEMA_PARTS.map((part) => [part, optional(text)])))),
});
