/** Checks of the shape of values that come from outside: messages, and manifests of checkpoints. */
import { ERROR_CODES } from '../errors.js';

export type Check = (value: unknown) => boolean;

export const natural: Check = (v) => typeof v === 'number' && Number.isSafeInteger(v) && v >= 0;
export const bool: Check = (v) => typeof v === 'boolean';
export const text: Check = (v) => typeof v === 'string' && v.length <= 4096;
export const optional =
  (check: Check): Check =>
  (v) =>
    v === undefined || check(v);
export const either =
  (...checks: Check[]): Check =>
  (v) =>
    checks.some((check) => check(v));
export const list =
  (check: Check): Check =>
  (v) =>
    Array.isArray(v) && v.every(check);
/** Fixed positions; trailing optional ones may be absent. */
export const tuple =
  (...checks: Check[]): Check =>
  (v) =>
    Array.isArray(v) && v.length <= checks.length && checks.every((check, i) => check(v[i]));
export const object: Check = (v) => typeof v === 'object' && v !== null && !Array.isArray(v);
export const record = (fields: Record<string, Check>): Check => {
  const checks = Object.entries(fields);
  return (v) => object(v) && wrongField(checks, v as Record<string, unknown>) === undefined;
};
/** The first field that is missing or malformed. */
export function wrongField(
  checks: readonly [string, Check][],
  value: Record<string, unknown>,
): string | undefined {
  for (let i = 0; i < checks.length; i++) {
    const [name, check] = checks[i]!;
    if (!check(value[name])) return name;
  }
  return undefined;
}
export const code: Check = (v) => typeof v === 'string' && Object.hasOwn(ERROR_CODES, v);
export const integer: Check = (v) => typeof v === 'number' && Number.isSafeInteger(v);
/** DatasetSpec. */
export const dataset = record({
  follow: optional(bool),
  files: list(record({ name: text, size: natural, rangeBytes: natural })),
  batch: natural,
  epochs: natural,
  seed: natural,
  shuffle: bool,
  staleness: natural,
});
