/**
 * Policies of tables: which rows go by themselves, and which are not admitted yet. The engine carries them
 * out (native/engine/life.cc). A step of a table is a push of gradients to it that a shard has applied, so
 * each shard has a clock of its own, which is coded, recovered and followed as rows are. A clock of seconds
 * goes on with such pushes, too: to the second of the job that the scheduler has told.
 */
/** The policy of a table: its rows change by themselves as it says. It has at least one field. */
export interface TablePolicy {
  /** A row is gone when more than so many steps, or seconds (see `clock`), passed since it was last seen. */
  ttl?: number | undefined;
  /** The same for a row that was seen fewer than `sightings` times; with `ttl`, the lower of both holds. */
  minFrequency?: FrequencyPolicy | undefined;
  /** The same for a row whose values have a Euclidean norm below `norm`, which is rounded to a float32. */
  l2Below?: { norm: number; ttl: number } | undefined;
  /**
   * `seconds`: ttls, and ages of rows, are counted in seconds for which the scheduler of the job ran. Absent:
   * in steps of a shard, which are pushes of gradients to the table that the shard has applied. From the
   * creation of the table on, or never.
   */
  clock?: 'seconds' | undefined;
  /**
   * Rows of all shards together that `ttl` alone lets not go, however old they are: those that were seen
   * last. It needs `ttl`.
   */
  keep?: number | undefined;
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

/** Rows that were seen seldom have a ttl of their own. */
export interface FrequencyPolicy {
  /** Rows that were seen fewer times. */
  sightings: number;
  /** In steps, or in seconds. */
  ttl: number;
  /** Sightings that lie back count less. Default: all count alike. */
  decay?: FrequencyDecay | undefined;
}

/**
 * At each multiple of `every`, sightings of rows are multiplied by `factor`. What is left is rounded to the
 * nearest number when the row is seen again or looked at.
 */
export interface FrequencyDecay {
  /** Above 0 and below 1, rounded to a multiple of 1/65536. */
  factor: number;
  /** In steps, or in seconds. */
  every: number;
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

/** True: rows go by their age. */
export function hasTtl({ ttl, minFrequency, l2Below }: TablePolicy): boolean {
  return ttl !== undefined || minFrequency !== undefined || l2Below !== undefined;
}

const DECAY_PARTS = 65_536;

/** The factor as the engine has it, in parts of 65,536; a valid one has 1 to 65,535 of them. */
export function decayParts({ factor }: Pick<FrequencyDecay, 'factor'>): number {
  return Math.round(factor * DECAY_PARTS);
}

/** Sightings after so many multiples of `every`, rounded once: what the engine finds, to the bit. */
export function decayedSightings(sightings: number, decay: FrequencyDecay, times: number): number {
  if (times === 0) return sightings;
  // Parts of 2^64, rounded down after each multiplication.
  let [left, part] = [undefined as bigint | undefined, BigInt(decayParts(decay)) << 48n];
  for (let rest = times; rest > 0; rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) left = left === undefined ? part : (left * part) >> 64n;
    part = (part * part) >> 64n;
  }
  return Number((left! * BigInt(sightings) + (1n << 63n)) >> 64n);
}

/** The policy for one of so many shards: its part of `keep`, of `maxRows` and of the filter's capacity. */
export function policyOfShard(policy: TablePolicy, shards: number): TablePolicy {
  const { keep, maxRows, bloom } = policy;
  if (keep === undefined && maxRows === undefined && !bloom) return policy;
  const { sightings, capacity, error } = wholeBloom(bloom ?? { sightings: 0 });
  return {
    ...policy,
    ...(keep !== undefined && { keep: Math.ceil(keep / shards) }),
    ...(maxRows !== undefined && { maxRows: Math.ceil(maxRows / shards) }),
    ...(bloom && { bloom: bloomOfShard({ sightings, capacity, error }, shards) }),
  };
}

function bloomOfShard(bloom: ReturnType<typeof wholeBloom>, shards: number): BloomOfShard {
  const { capacity: whole } = bloom;
  return { ...bloom, capacity: Math.ceil(whole / shards), whole, shards };
}

/** A policy as a flag has it: "admit=counter(2),evict=ttl(2000),evict=memory". Seconds have their unit. */
export function policyText(policy: TablePolicy): string {
  const { ttl, minFrequency, l2Below, keep, maxRows, memory, score, counter, bloom } = policy;
  const { probability, likely } = policy;
  const time = (value: number): string => `${value}${policy.clock === 'seconds' ? 's' : ''}`;
  const parts: string[] = [];
  if (bloom) parts.push(`admit=bloom(${Object.values(wholeBloom(bloom)).join(',')})`);
  if (probability !== undefined) parts.push(`admit=probability(${probability})`);
  if (likely !== undefined) parts.push(`admit=likely(${likely})`);
  if (counter !== undefined) parts.push(`admit=counter(${counter})`);
  if (ttl !== undefined) parts.push(`evict=ttl(${time(ttl)})`);
  if (minFrequency) {
    const { sightings, ttl, decay } = minFrequency;
    const decaying = decay ? `,${decay.factor},${time(decay.every)}` : '';
    parts.push(`evict=minFrequency(${sightings},${time(ttl)}${decaying})`);
  }
  if (l2Below) parts.push(`evict=l2Below(${l2Below.norm},${time(l2Below.ttl)})`);
  if (keep !== undefined) parts.push(`evict=keep(${keep})`);
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
const TIME = /^\s*(\d+)([smhd])\s*$/;
const UNIT_SECONDS = { s: 1, m: 60, h: 3600, d: 86_400 };

/** Seconds of a time like "24h", whose units are s, m, h and d; undefined: it is none. */
export function secondsOf(text: string): number | undefined {
  const [, digits, unit] = TIME.exec(text) ?? [];
  return digits === undefined ? undefined : Number(digits) * UNIT_SECONDS[unit as keyof typeof UNIT_SECONDS];
}

interface Clause {
  field: keyof TablePolicy;
  /** How many numbers it has in parentheses; 0: no parentheses. */
  numbers: number;
  /** How many it may have instead. */
  or?: readonly number[];
  /** Places of those that are steps, or seconds with a unit. */
  times?: readonly number[];
  value(...numbers: number[]): TablePolicy[keyof TablePolicy];
}

const CLAUSES: Readonly<Record<string, Clause | undefined>> = {
  'admit=counter': { field: 'counter', numbers: 1, value: (counter) => counter },
  'evict=ttl': { field: 'ttl', numbers: 1, times: [0], value: (ttl) => ttl },
  'evict=minFrequency': {
    field: 'minFrequency',
    numbers: 2,
    or: [4],
    times: [1, 3],
    value: (sightings = 0, ttl = 0, factor?: number, every = 0) => ({
      ...{ sightings, ttl },
      ...(factor !== undefined && { decay: { factor, every } }),
    }),
  },
  'evict=l2Below': {
    field: 'l2Below',
    numbers: 2,
    times: [1],
    value: (norm = 0, ttl = 0) => ({ norm, ttl }),
  },
  'evict=keep': { field: 'keep', numbers: 1, value: (keep) => keep },
  'evict=maxRows': { field: 'maxRows', numbers: 1, value: (maxRows) => maxRows },
  'evict=memory': { field: 'memory', numbers: 0, value: () => true },
  'evict=score': { field: 'score', numbers: 0, value: () => true },
  'admit=bloom': {
    field: 'bloom',
    numbers: 1,
    or: [2, 3],
    value: (...[sightings, capacity, error]) => wholeBloom({ sightings: sightings!, capacity, error }),
  },
  'admit=probability': { field: 'probability', numbers: 1, value: (probability) => probability },
  'admit=likely': { field: 'likely', numbers: 1, value: (likely) => likely },
};

/** The inverse of `policyText`; undefined: this is none. The policy may be invalid. */
export function parsedPolicy(text: string): TablePolicy | undefined {
  const { policy, clocks } = readPolicy(text) ?? {};
  return clocks?.size === 2 ? undefined : policy;
}

/** True: it would be a policy, but for ttls of which some have a unit and some have none. */
export function mixesClocks(text: string): boolean {
  return readPolicy(text)?.clocks.size === 2;
}

/** A policy, and in what its ttls are counted. */
function readPolicy(text: string): { policy: TablePolicy; clocks: Set<'steps' | 'seconds'> } | undefined {
  const policy: TablePolicy = {};
  const clocks = new Set<'steps' | 'seconds'>();
  let rest = text;
  do {
    const match = CLAUSE.exec(rest);
    if (!match) return undefined;
    const [whole, what, kind, list] = match;
    const clause = CLAUSES[`${what}=${kind}`];
    if (!clause || policy[clause.field] !== undefined) return undefined;
    const texts = list === undefined ? [] : list.split(',');
    if (texts.length !== clause.numbers && !clause.or?.includes(texts.length)) return undefined;
    const numbers = texts.map((each, place) => {
      const isTime = clause.times?.includes(place) ?? false;
      const seconds = isTime ? secondsOf(each) : undefined;
      if (isTime) clocks.add(seconds === undefined ? 'steps' : 'seconds');
      return seconds ?? Number(NUMBER.exec(each)?.[1]);
    });
    if (numbers.some(Number.isNaN)) return undefined;
    Object.assign(policy, { [clause.field]: clause.value(...numbers) });
    rest = rest.slice(whole.length);
    if (rest === '' && whole.trimEnd().endsWith(',')) return undefined;
  } while (rest !== '');
  return { policy: clocks.has('seconds') ? { ...policy, clock: 'seconds' } : policy, clocks };
}

/** Adds the counts of a table, where it has some, to those that are known. */
export function addLife(lives: Map<number, LifeCounts>, table: number, life: LifeCounts | undefined): void {
  if (life) lives.set(table, sumOfLives([lives.get(table), life])!);
}
