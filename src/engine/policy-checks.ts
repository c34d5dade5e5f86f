/** Which policies of tables are valid, and the one form of those that are. */
import {
  decayParts,
  type FrequencyPolicy,
  hasTtl,
  MOST_LIFE,
  type TablePolicy,
  wholeBloom,
} from './policies.js';

/** The most rows that `maxRows` and `keep` can ask for. */
const MOST_ROWS = 2 ** 48;
/** The highest counter of a filter. */
const MOST_COUNTER = 255;
/** The most sightings that a filter counts. */
const MOST_CAPACITY = 2 ** 32 - 1;
const LEAST_CAPACITY = 2;
/** Bounds of the error of a filter, and the least chance. */
const [LEAST_ERROR, MOST_ERROR, LEAST_CHANCE] = [1e-6, 0.5, 1e-9];

/** Admissions: a policy has at most one. */
const ADMISSIONS = ['counter', 'bloom', 'probability', 'likely'] as const;

/** Why a field, or a part of one, is not valid; undefined: it is. */
type PolicyCheck = (name: string, value: unknown) => string | undefined;

function within(least: number, most: number, whole: boolean): PolicyCheck {
  return (name, value) => {
    const isNumber = whole ? Number.isInteger(value) : Number.isFinite(value);
    if (isNumber && (value as number) >= least && (value as number) <= most) return undefined;
    return `policy: ${name} must be ${whole ? 'an integer' : 'a number'} from ${least} to ${most}`;
  };
}

const life = within(1, MOST_LIFE, true);
const rowCount = within(1, MOST_ROWS, true);
const isTrue: PolicyCheck = (name, value) =>
  value === true ? undefined : `policy: ${name} must be true, or left out`;

const norm: PolicyCheck = (name, value) => {
  const valid = typeof value === 'number' && Math.fround(value) > 0 && Number.isFinite(Math.fround(value));
  return valid ? undefined : `policy: ${name} must be a positive float32`;
};

const factor: PolicyCheck = (name, value) => {
  const parts = typeof value === 'number' ? decayParts({ factor: value }) : 0;
  return parts >= 1 && parts < decayParts({ factor: 1 })
    ? undefined
    : `policy: ${name} must be a number above 0 and below 1, in steps of 1/65536`;
};

const clock: PolicyCheck = (name, value) =>
  value === 'seconds' ? undefined : `policy: ${name} must be "seconds", or left out: steps`;

/** An object that has these fields, and no others. A check of an optional one takes undefined. */
function objectOf(checks: Readonly<Record<string, PolicyCheck>>): PolicyCheck {
  return (name, value) => {
    const parts = Object.keys(checks);
    if (typeof value !== 'object' || value === null)
      return `policy: ${name} must be an object of ${parts.join(', ')}`;
    const surplus = Object.keys(value).find((part) => !parts.includes(part));
    if (surplus !== undefined) return `policy: ${name} has no field "${surplus}"`;
    for (const part of parts) {
      const problem = checks[part]!(`${name}.${part}`, (value as Record<string, unknown>)[part]);
      if (problem) return problem;
    }
    return undefined;
  };
}

const orNone =
  (check: PolicyCheck): PolicyCheck =>
  (name, value) =>
    value === undefined ? undefined : check(name, value);

const FIELDS: Readonly<Record<keyof TablePolicy, PolicyCheck>> = {
  ttl: life,
  minFrequency: objectOf({ sightings: life, ttl: life, decay: orNone(objectOf({ factor, every: life })) }),
  l2Below: objectOf({ norm, ttl: life }),
  clock,
  keep: rowCount,
  maxRows: rowCount,
  memory: isTrue,
  score: isTrue,
  counter: life,
  bloom: objectOf({
    sightings: within(2, MOST_COUNTER, true),
    capacity: orNone(within(LEAST_CAPACITY, MOST_CAPACITY, true)),
    error: orNone(within(LEAST_ERROR, MOST_ERROR, false)),
  }),
  probability: within(LEAST_CHANCE, 1, false),
  likely: life,
};

/** Why a policy is not valid, in one line; undefined when it is. */
export function policyProblem(policy: unknown): string | undefined {
  if (policy === undefined) return undefined;
  if (typeof policy !== 'object' || policy === null) return 'policy must be an object';
  const given = Object.entries(policy).filter(([, value]) => value !== undefined);
  if (given.length === 0) return `a policy has at least one of ${Object.keys(FIELDS).join(', ')}`;
  for (const [name, value] of given) {
    if (!Object.hasOwn(FIELDS, name))
      return `a policy has no field "${name}"; it may have ${Object.keys(FIELDS).join(', ')}`;
    const problem = FIELDS[name as keyof TablePolicy](name, value);
    if (problem) return problem;
  }
  return fieldsProblem(policy);
}

/** Why fields that are valid do not go together. */
function fieldsProblem(policy: TablePolicy): string | undefined {
  const { ttl, minFrequency, clock, keep, maxRows, memory, score, counter } = policy;
  if (score && maxRows === undefined && !memory)
    return 'policy: score says which rows go for maxRows or memory: it needs one of them';
  if (clock && !hasTtl(policy)) return 'policy: clock says what ttls are counted in: it needs one';
  if (keep !== undefined && ttl === undefined)
    return 'policy: keep says how many rows stay in spite of ttl: it needs one';
  if (minFrequency?.decay && counter !== undefined)
    return 'policy: by decay a row that counter admitted would lose its admission: use bloom, or no decay';
  const admissions = ADMISSIONS.filter((name) => policy[name] !== undefined);
  if (admissions.length > 1)
    return `a policy has one of ${ADMISSIONS.join(', ')}, not ${admissions.join(' and ')}`;
  return undefined;
}

/** A valid policy without further fields, in one order. */
export function onlyKnownPolicy(policy: TablePolicy): TablePolicy {
  const { ttl, minFrequency, l2Below, clock, keep, maxRows, memory, score, counter, bloom } = policy;
  const { probability, likely } = policy;
  return {
    ...(ttl !== undefined && { ttl }),
    ...(minFrequency && { minFrequency: onlyKnownFrequency(minFrequency) }),
    ...(l2Below && { l2Below: { norm: l2Below.norm, ttl: l2Below.ttl } }),
    ...(clock && { clock }),
    ...(keep !== undefined && { keep }),
    ...(maxRows !== undefined && { maxRows }),
    ...(memory && { memory }),
    ...(score && { score }),
    ...(counter !== undefined && { counter }),
    ...(bloom && { bloom: wholeBloom(bloom) }),
    ...(probability !== undefined && { probability }),
    ...(likely !== undefined && { likely }),
  };
}

function onlyKnownFrequency({ sightings, ttl, decay }: FrequencyPolicy): FrequencyPolicy {
  return { sightings, ttl, ...(decay && { decay: { factor: decay.factor, every: decay.every } }) };
}
