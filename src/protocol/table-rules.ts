/** The rules of a specification of a table, and the equality of two specifications. */
import type { InitializerSpec, OptimizerSpec } from '../engine/native.js';
import { fixedRateOf, onlyKnownOptimizer, optimizerProblem, quoted } from '../engine/optimizers.js';
import { onlyKnownPolicy, policyProblem } from '../engine/policies.js';
import type { Pool, TableSpec } from './map.js';

export const MAX_DIM = 65_536;
/** Earlier learning rates that a table remembers. */
export const MAX_EARLIER_RATES = 64;
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
export function tableProblem(spec: Omit<TableSpec, 'id'>, pools: readonly Pool[]): string | undefined {
  if (typeof spec.name !== 'string' || spec.name.length === 0 || spec.name.length > MAX_TABLE_NAME) {
    return `a table needs a name of 1 to ${MAX_TABLE_NAME} characters`;
  }
  if (!pools.some((pool) => pool.name === spec.pool))
    return `table "${spec.name}": unknown pool "${spec.pool}"`;
  if (!Number.isInteger(spec.dim) || spec.dim < 1 || spec.dim > MAX_DIM) {
    return `table "${spec.name}": dim must be an integer from 1 to ${MAX_DIM}`;
  }
  if (!Number.isSafeInteger(spec.seed) || spec.seed < 0)
    return `table "${spec.name}": seed must be an integer from 0 to 2^53-1`;
  const problem =
    optimizerProblem(spec.optimizer) ??
    initializerProblem(spec.initializer) ??
    policyProblem(spec.policy) ??
    earlierProblem(spec);
  return problem && `table "${spec.name}": ${problem}`;
}

function earlierProblem({ earlierRates = [] }: Pick<TableSpec, 'earlierRates'>): string | undefined {
  const isList = Array.isArray(earlierRates) && earlierRates.length <= MAX_EARLIER_RATES;
  if (isList && earlierRates.every((lr) => Number.isFinite(lr))) return undefined;
  return `earlierRates must be at most ${MAX_EARLIER_RATES} numbers`;
}

/** The kind is first, the others in the order of their names. */
const byName = ([a]: [string, unknown], [b]: [string, unknown]): number => {
  const [first, second] = [a === 'kind' ? '' : a, b === 'kind' ? '' : b];
  return first < second ? -1 : 1;
};

/** A value in one line, whose fields have an order that depends on their names only. */
const inOneLine = (value: unknown): string =>
  value === undefined
    ? 'none'
    : JSON.stringify(value, (_, part) =>
        typeof part === 'object' && part !== null
          ? Object.fromEntries(Object.entries(part).sort(byName))
          : part,
      );

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

type Rated = Pick<TableSpec, 'optimizer' | 'earlierRates'>;

/** The table with another valid learning rate; the rate that it had is an earlier one from now on. */
export function withRate<T extends Rated>(table: T, lr: number): T {
  const { optimizer, earlierRates = [] } = table;
  const isNew = !earlierRates.includes(optimizer.lr) && earlierRates.length < MAX_EARLIER_RATES;
  return {
    ...table,
    optimizer: { ...optimizer, lr },
    earlierRates: isNew ? [...earlierRates, optimizer.lr] : earlierRates,
  };
}

/**
 * The end of a sentence for people that begins with the table: what it had before. A worker that asks
 * for such a rate may be one that was started with it long ago, so the table keeps its own. A table whose
 * list is full may have forgotten a rate. Undefined: the rate is a new one.
 */
export function oldRateText({ earlierRates = [] }: Rated, lr: number): string | undefined {
  if (earlierRates.includes(lr)) return 'had this rate before';
  const isFull = earlierRates.length >= MAX_EARLIER_RATES;
  return isFull
    ? `had ${MAX_EARLIER_RATES} other rates before and remembers no more, perhaps also this one`
    : undefined;
}

/** See `oldRateText`. */
export function isOldRate(table: Rated, lr: number): boolean {
  return oldRateText(table, lr) !== undefined;
}

/** Why the learning rate of a table cannot become `lr`, in one line; undefined when it can. */
export function newRateProblem({ optimizer }: Pick<TableSpec, 'optimizer'>, lr: unknown): string | undefined {
  const changed = { ...optimizer, lr } as OptimizerSpec;
  const fixed = lr === optimizer.lr ? undefined : fixedRateOf(optimizer);
  return fixed
    ? `optimizer ${optimizer.kind}: lr stays ${optimizer.lr} and cannot become ${lr}: ${fixed}`
    : optimizerProblem(changed);
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
