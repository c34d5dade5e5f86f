/** The rules of a specification of a table, and the equality of two specifications. */
import { filterProblem } from '../engine/filters.js';
import type { InitializerSpec } from '../engine/native.js';
import { onlyKnownOptimizer, optimizerProblem, quoted } from '../engine/optimizers.js';
import { onlyKnownPolicy, policyProblem } from '../engine/policy-checks.js';
import type { Pool, TableSpec } from './map.js';
import { earlierProblem, inOneLine } from './settings.js';

export const MAX_DIM = 65_536;
const MAX_TABLE_NAME = 256;

const INITIALIZERS: Record<string, string[]> = {
  zeros: [],
  constant: ['value'],
  uniform: ['low', 'high'],
  normal: ['mean', 'std'],
};

function initializerProblem(initializer: InitializerSpec): string | undefined {
  const kind: unknown = initializer?.kind;
  const fields = typeof kind === 'string' && Object.hasOwn(INITIALIZERS, kind) && INITIALIZERS[kind];
  if (!fields) return `unknown initializer ${quoted(kind)}; one of ${Object.keys(INITIALIZERS).join(', ')}`;
  for (const field of fields) {
    const value = (initializer as unknown as Record<string, unknown>)[field];
    if (typeof value !== 'number' || !Number.isFinite(value))
      return `initializer ${kind}: ${field} must be a number`;
  }
  return undefined;
}

/** The problem with a specification, in one line; undefined when it is valid. */
export function tableProblem(
  spec: Omit<TableSpec, 'id'>,
  pools: readonly Pick<Pool, 'name' | 'k' | 'groups'>[],
): string | undefined {
  if (typeof spec.name !== 'string' || spec.name.length === 0 || spec.name.length > MAX_TABLE_NAME) {
    return `a table needs a name of 1 to ${MAX_TABLE_NAME} characters`;
  }
  const pool = pools.find(({ name }) => name === spec.pool);
  if (!pool) return `table "${spec.name}": unknown pool "${spec.pool}"`;
  if (!Number.isInteger(spec.dim) || spec.dim < 1 || spec.dim > MAX_DIM) {
    return `table "${spec.name}": dim must be an integer from 1 to ${MAX_DIM}`;
  }
  if (!Number.isSafeInteger(spec.seed) || spec.seed < 0)
    return `table "${spec.name}": seed must be an integer from 0 to 2^53-1`;
  const problem =
    optimizerProblem(spec.optimizer) ??
    initializerProblem(spec.initializer) ??
    policyProblem(spec.policy) ??
    filterProblem(spec, pool.k * pool.groups) ??
    earlierProblem(spec);
  return problem && `table "${spec.name}": ${problem}`;
}

/** Fields of a kind that differ; of another kind, the kinds alone. */
function kindDifferences(where: string, old: { kind: string }, given: { kind: string }): string[] {
  if (old.kind !== given.kind) return [`${where} ${old.kind}, not ${given.kind}`];
  const [a, b] = [old, given] as unknown as Record<string, unknown>[];
  const names = [...new Set([...Object.keys(a!), ...Object.keys(b!)])];
  return names.flatMap((name) => difference(`${where}.${name}`, a![name], b![name]));
}

function difference(where: string, old: unknown, given: unknown): string[] {
  const [a, b] = [inOneLine(old), inOneLine(given)];
  return a === b ? [] : [`${where} ${a}, not ${b}`];
}

/**
 * The fields in which another specification of a table differs, each with its old and its new value. Both
 * must be without further fields.
 */
export function tableDifferences(old: Omit<TableSpec, 'id'>, given: Omit<TableSpec, 'id'>): string[] {
  return [
    ...difference('pool', old.pool, given.pool),
    ...difference('dim', old.dim, given.dim),
    ...kindDifferences('optimizer', old.optimizer, given.optimizer),
    ...kindDifferences('initializer', old.initializer, given.initializer),
    ...difference('seed', old.seed, given.seed),
    ...difference('policy', old.policy, given.policy),
  ];
}

/** A valid specification with known fields only: a message may have others, and the map takes none. */
export function onlyKnownTable(spec: Omit<TableSpec, 'id'>): Omit<TableSpec, 'id'> {
  const pick = <T extends { kind: string }>(value: T, fields: readonly string[]): T =>
    Object.fromEntries(['kind', ...fields].map((field) => [field, value[field as keyof T]])) as unknown as T;
  const { name, pool, dim, optimizer, initializer, seed, policy } = spec;
  return {
    name,
    pool,
    dim,
    optimizer: onlyKnownOptimizer(optimizer),
    initializer: pick(initializer, INITIALIZERS[initializer.kind]!),
    seed,
    ...(policy && { policy: onlyKnownPolicy(policy) }),
  };
}
