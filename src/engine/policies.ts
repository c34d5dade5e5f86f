/**
 * Policies of tables: which rows go by themselves, and which are not admitted yet. The engine carries them
 * out (native/engine/life.cc). A step of a table is a push of gradients to it that a shard has applied, so
 * each shard has a clock of its own, which is coded, recovered and followed as rows are.
 */
/** The policy of a table: its rows change by themselves as it says. It has at least one field. */
export interface TablePolicy {
  /** A row is gone when its shard has applied more than so many pushes of gradients since the row's last. */
  ttl?: number | undefined;
  /** The same for a row that was seen fewer than `sightings` times; with `ttl`, the lower of both holds. */
  minFrequency?: { sightings: number; ttl: number } | undefined;
  /** The same for a row whose values have a Euclidean norm below `norm`, which is rounded to a float32. */
  l2Below?: { norm: number; ttl: number } | undefined;
  /**
   * The rows of all shards together. Where a shard has its part of them, new rows displace those that were
   * not seen for long, or seldom, among a few that it looks at.
   */
  maxRows?: number | undefined;
  /** The same where nearly all of a PS's `--memory` is used. */
  memory?: true | undefined;
  /**
   * Pushes may give rows scores, and of the rows that `maxRows` or `memory` looks at, those of the lowest
   * score go first. From the creation of the table on, or never.
   */
  score?: true | undefined;
  /** Gradients change a row from this sighting on. Before, it reads as its initial value. */
  counter?: number | undefined;
  /**
   * The same without a row before: counters of a filter, which few keys share, count sightings of keys that
   * have none. With `counter` and what follows, a table has at most one of these.
   */
  bloom?: BloomPolicy | undefined;
  /** Each sighting of a key without a row makes it one with this chance, from 0 (without it) to 1. */
  probability?: number | undefined;
  /** The same, with the chance that lets 95 of 100 keys have a row after so many sightings. */
  likely?: number | undefined;
}

/** A filter, of all shards together. */
export interface BloomPolicy {
  /** Sightings from which on a key has a row; 2 to 255. */
  sightings: number;
  /** Sightings of keys without a row that it counts. Beyond it forgets older ones. Default: 1,000,000. */
  capacity?: number | undefined;
  /** The part of keys that it takes for seen at their first sighting, at most. Default: 0.01. */
  error?: number | undefined;
}

/** The part of a filter that one of several shards has. */
export interface BloomOfShard extends BloomPolicy {
  /** The capacity of all shards, and their number. */
  whole?: number;
  shards?: number;
}

/** With its defaults. */
export function wholeBloom({ sightings, capacity = 1e6, error = 0.01 }: BloomPolicy): {
  sightings: number;
  capacity: number;
  error: number;
} {
  return { sightings, capacity, error };
}

/** Rows that went, by reason, and gradients of rows that were not admitted yet. */
export interface LifeCounts {
  /** Rows that went by `ttl`. */
  expired: number;
  /** Rows that went by `minFrequency`. */
  rare: number;
  /** Rows that went by `l2Below`. */
  faint: number;
  /** Rows that made room for others, by `maxRows` or `memory`. */
  displaced: number;
  /** Rows that somebody deleted. */
  deleted: number;
  /** Gradients that were dropped because of their key's admission, or by `memory` for want of a slot. */
  refused: number;
}

/** Reasons of {@link LifeCounts} as people and metrics call them. */
export const LIFE_REASONS = {
  expired: 'expired',
  rare: 'below frequency',
  faint: 'below norm',
  displaced: 'for room',
  deleted: 'deleted',
  refused: 'not admitted',
} as const satisfies Record<keyof LifeCounts, string>;

/** Reasons for which a row leaves its table, as the fields of {@link LifeCounts}. */
export type EvictionReason = Exclude<keyof LifeCounts, 'refused'>;

/** By the number that the engine gives them (`Reason`, native/engine/table.h). */
export const EVICTION_REASONS: readonly EvictionReason[] = [
  'expired',
  'rare',
  'faint',
  'displaced',
  'deleted',
];

/** Keys whose rows left a table, in that order, and the reasons, as indexes of `EVICTION_REASONS`. */
export interface EvictedKeys {
  keys: BigUint64Array;
  reasons: Uint8Array;
}

/** The part of a shard that tells which keys leave its tables. */
export interface WatchedShard {
  /** Keys of rows that leave the table are noted from now on, or not, and those that were are forgotten. */
  watch(table: number, on: boolean): void;
  /** The keys that were noted in the open batch: to be called before the batch is closed. */
  takeEvicted(): (EvictedKeys & { table: number })[];
}

/** The sum of counts; undefined: there are none. */
export function sumOfLives(counts: readonly (LifeCounts | undefined)[]): LifeCounts | undefined {
  const known = counts.filter((each) => each !== undefined);
  if (known.length === 0) return undefined;
  const sum: LifeCounts = { expired: 0, rare: 0, faint: 0, displaced: 0, deleted: 0, refused: 0 };
  // An older node has no word of some.
  for (const each of known)
    for (const name of Object.keys(sum) as (keyof LifeCounts)[]) sum[name] += each[name] ?? 0;
  return sum;
}

/** The longest ttl, and the most sightings that a policy can ask for. */
export const MOST_LIFE = 2 ** 29 - 1;
/** The most rows that `maxRows` can ask for. */
const MOST_ROWS = 2 ** 48;

/** Words of a whole row in a table with a policy. */
const LIFE_PARTS = [
  { name: 'life_age', shape: 'scalar' },
  { name: 'life_sightings', shape: 'scalar' },
] as const;
const SCORED_PARTS = [{ name: 'life_score', shape: 'scalar' }, ...LIFE_PARTS] as const;

/**
 * Words of a whole row in a table with this policy, after the state of its optimizer: a score, which is a
 * float32, then u32 in the bits of a float32. The age is counted in steps since the row was last seen.
 */
export function lifeParts({ score }: TablePolicy): typeof LIFE_PARTS | typeof SCORED_PARTS {
  return score ? SCORED_PARTS : LIFE_PARTS;
}

/** Admissions: a policy has at most one. */
const ADMISSIONS = ['counter', 'bloom', 'probability', 'likely'] as const;

const FIELDS: Readonly<Record<string, readonly string[] | undefined>> = {
  ttl: undefined,
  minFrequency: ['sightings', 'ttl'],
  l2Below: ['norm', 'ttl'],
  maxRows: undefined,
  memory: undefined,
  score: undefined,
  counter: undefined,
  bloom: ['sightings', 'capacity', 'error'],
  probability: undefined,
  likely: undefined,
};

/** The highest counter of a filter. */
const MOST_COUNTER = 255;
/** The most sightings that a filter counts. */
const MOST_CAPACITY = 2 ** 32 - 1;
const LEAST_CAPACITY = 2;
/** Bounds of the error of a filter, and the least chance. */
const [LEAST_ERROR, MOST_ERROR, LEAST_CHANCE] = [1e-6, 0.5, 1e-9];

function within(
  name: string,
  value: unknown,
  least: number,
  most: number,
  whole: boolean,
): string | undefined {
  const isNumber = whole ? Number.isInteger(value) : Number.isFinite(value);
  if (isNumber && (value as number) >= least && (value as number) <= most) return undefined;
  return `policy: ${name} must be ${whole ? 'an integer' : 'a number'} from ${least} to ${most}`;
}

function bloomProblem(bloom: object): string | undefined {
  const { sightings, capacity, error } = wholeBloom(bloom as BloomPolicy);
  return (
    within('bloom.sightings', sightings, 2, MOST_COUNTER, true) ??
    within('bloom.capacity', capacity, LEAST_CAPACITY, MOST_CAPACITY, true) ??
    within('bloom.error', error, LEAST_ERROR, MOST_ERROR, false)
  );
}

function normProblem({ norm }: { norm?: unknown }): string | undefined {
  const valid = typeof norm === 'number' && Math.fround(norm) > 0 && Number.isFinite(Math.fround(norm));
  return valid ? undefined : 'policy: l2Below.norm must be a positive float32';
}

function countProblem(name: string, value: unknown): string | undefined {
  const most = name === 'maxRows' ? MOST_ROWS : MOST_LIFE;
  const valid = Number.isInteger(value) && (value as number) >= 1 && (value as number) <= most;
  return valid ? undefined : `policy: ${name} must be an integer from 1 to ${most}`;
}

/** Why a policy is not valid, in one line; undefined when it is. */
export function policyProblem(policy: unknown): string | undefined {
  if (policy === undefined) return undefined;
  if (typeof policy !== 'object' || policy === null) return 'policy must be an object';
  const given = Object.entries(policy).filter(([, value]) => value !== undefined);
  if (given.length === 0) return `a policy has at least one of ${Object.keys(FIELDS).join(', ')}`;
  for (const [name, value] of given) {
    if (!Object.hasOwn(FIELDS, name))
      return `a policy has no field "${name}"; it may have ${Object.keys(FIELDS).join(', ')}`;
    const parts = FIELDS[name];
    if (name === 'probability') {
      const problem = within(name, value, LEAST_CHANCE, 1, false);
      if (problem) return problem;
      continue;
    }
    if (name === 'memory' || name === 'score') {
      if (value !== true) return `policy: ${name} must be true, or left out`;
      continue;
    }
    if (!parts) {
      const problem = countProblem(name, value);
      if (problem) return problem;
      continue;
    }
    if (typeof value !== 'object' || value === null)
      return `policy: ${name} must be an object of ${parts.join(', ')}`;
    const surplus = Object.keys(value).find((part) => !parts.includes(part));
    if (surplus !== undefined) return `policy: ${name} has no field "${surplus}"`;
    if (name === 'bloom') {
      const problem = bloomProblem(value);
      if (problem) return problem;
      continue;
    }
    const problem = name === 'l2Below' ? normProblem(value) : undefined;
    if (problem) return problem;
    for (const part of parts) {
      if (part === 'norm') continue;
      const problem = countProblem(`${name}.${part}`, (value as Record<string, unknown>)[part]);
      if (problem) return problem;
    }
  }
  const { score, maxRows, memory } = policy as TablePolicy;
  if (score && maxRows === undefined && !memory)
    return 'policy: score says which rows go for maxRows or memory: it needs one of them';
  const admissions = ADMISSIONS.filter((name) => (policy as TablePolicy)[name] !== undefined);
  if (admissions.length > 1)
    return `a policy has one of ${ADMISSIONS.join(', ')}, not ${admissions.join(' and ')}`;
  return undefined;
}

/** A valid policy without further fields, in one order. */
export function onlyKnownPolicy(policy: TablePolicy): TablePolicy {
  const { ttl, minFrequency, l2Below, maxRows, memory, score, counter, bloom, probability, likely } = policy;
  return {
    ...(ttl !== undefined && { ttl }),
    ...(minFrequency && {
      minFrequency: { sightings: minFrequency.sightings, ttl: minFrequency.ttl },
    }),
    ...(l2Below && { l2Below: { norm: l2Below.norm, ttl: l2Below.ttl } }),
    ...(maxRows !== undefined && { maxRows }),
    ...(memory && { memory }),
    ...(score && { score }),
    ...(counter !== undefined && { counter }),
    ...(bloom && { bloom: wholeBloom(bloom) }),
    ...(probability !== undefined && { probability }),
    ...(likely !== undefined && { likely }),
  };
}

/** The policy for one of so many shards, which has its part of `maxRows` and of the filter's capacity. */
export function policyOfShard(policy: TablePolicy, shards: number): TablePolicy {
  const { maxRows, bloom } = policy;
  if (maxRows === undefined && !bloom) return policy;
  const { sightings, capacity, error } = wholeBloom(bloom ?? { sightings: 0 });
  return {
    ...policy,
    ...(maxRows !== undefined && { maxRows: Math.ceil(maxRows / shards) }),
    ...(bloom && { bloom: bloomOfShard({ sightings, capacity, error }, shards) }),
  };
}

function bloomOfShard(bloom: ReturnType<typeof wholeBloom>, shards: number): BloomOfShard {
  const { capacity: whole } = bloom;
  return { ...bloom, capacity: Math.ceil(whole / shards), whole, shards };
}

/** A policy as a flag has it: "admit=counter(2),evict=ttl(2000),evict=memory". */
export function policyText(policy: TablePolicy): string {
  const { ttl, minFrequency, l2Below, maxRows, memory, score, counter, bloom, probability, likely } = policy;
  const parts: string[] = [];
  if (bloom) parts.push(`admit=bloom(${Object.values(wholeBloom(bloom)).join(',')})`);
  if (probability !== undefined) parts.push(`admit=probability(${probability})`);
  if (likely !== undefined) parts.push(`admit=likely(${likely})`);
  if (counter !== undefined) parts.push(`admit=counter(${counter})`);
  if (ttl !== undefined) parts.push(`evict=ttl(${ttl})`);
  if (minFrequency) parts.push(`evict=minFrequency(${minFrequency.sightings},${minFrequency.ttl})`);
  if (l2Below) parts.push(`evict=l2Below(${l2Below.norm},${l2Below.ttl})`);
  if (maxRows !== undefined) parts.push(`evict=maxRows(${maxRows})`);
  if (memory) parts.push('evict=memory');
  if (score) parts.push('evict=score');
  return parts.join(',');
}

/** True: both are the same policy, or both are none. Both are valid. */
export function isSamePolicy(a: TablePolicy | undefined, b: TablePolicy | undefined): boolean {
  return a === b || (a !== undefined && b !== undefined && policyText(a) === policyText(b));
}

const CLAUSE = /^\s*(admit|evict)\s*=\s*([a-zA-Z0-9]+)(?:\(([^()]*)\))?\s*(?:,|$)/;
const NUMBER = /^\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*$/;

interface Clause {
  field: keyof TablePolicy;
  /** How many numbers it has in parentheses; 0: no parentheses. */
  numbers: number;
  /** The most numbers that it may have. Default: `numbers`. */
  most?: number;
  value(...numbers: number[]): TablePolicy[keyof TablePolicy];
}

const CLAUSES: Readonly<Record<string, Clause | undefined>> = {
  'admit=counter': { field: 'counter', numbers: 1, value: (counter) => counter },
  'evict=ttl': { field: 'ttl', numbers: 1, value: (ttl) => ttl },
  'evict=minFrequency': {
    field: 'minFrequency',
    numbers: 2,
    value: (sightings = 0, ttl = 0) => ({ sightings, ttl }),
  },
  'evict=l2Below': { field: 'l2Below', numbers: 2, value: (norm = 0, ttl = 0) => ({ norm, ttl }) },
  'evict=maxRows': { field: 'maxRows', numbers: 1, value: (maxRows) => maxRows },
  'evict=memory': { field: 'memory', numbers: 0, value: () => true },
  'evict=score': { field: 'score', numbers: 0, value: () => true },
  'admit=bloom': {
    field: 'bloom',
    numbers: 1,
    most: 3,
    value: (...[sightings, capacity, error]) => wholeBloom({ sightings: sightings!, capacity, error }),
  },
  'admit=probability': { field: 'probability', numbers: 1, value: (probability) => probability },
  'admit=likely': { field: 'likely', numbers: 1, value: (likely) => likely },
};

/** The inverse of `policyText`; undefined: this is none. The policy may be invalid. */
export function parsedPolicy(text: string): TablePolicy | undefined {
  const policy: TablePolicy = {};
  let rest = text;
  do {
    const match = CLAUSE.exec(rest);
    if (!match) return undefined;
    const [whole, what, kind, list] = match;
    const clause = CLAUSES[`${what}=${kind}`];
    const numbers = list === undefined ? [] : list.split(',').map((text) => Number(NUMBER.exec(text)?.[1]));
    if (!clause || policy[clause.field] !== undefined || numbers.some(Number.isNaN)) return undefined;
    if (numbers.length < clause.numbers || numbers.length > (clause.most ?? clause.numbers)) return undefined;
    Object.assign(policy, { [clause.field]: clause.value(...numbers) });
    rest = rest.slice(whole.length);
    if (rest === '' && whole.trimEnd().endsWith(',')) return undefined;
  } while (rest !== '');
  return policy;
}

/** Adds the counts of a table, where it has some, to those that are known. */
export function addLife(lives: Map<number, LifeCounts>, table: number, life: LifeCounts | undefined): void {
  if (life) lives.set(table, sumOfLives([lives.get(table), life])!);
}
