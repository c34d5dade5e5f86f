/**
 * The settings of a table: what of its optimizer may change while the job trains, and its policy. A table
 * remembers the values that each of them had, so that a worker which is started again with its old flags
 * undoes nothing.
 */
import {
  fixedSettingOf,
  type OptimizerChanges,
  type OptimizerSpec,
  onlyKnownOptimizer,
  optimizerProblem,
  roundedProblem,
  type Setting,
} from '../engine/optimizers.js';
import { isSamePolicy, type TablePolicy } from '../engine/policies.js';
import { onlyKnownPolicy } from '../engine/policy-checks.js';
import { scheduleProblem, wholeSchedule } from '../engine/schedules.js';
import { either, type FieldCheck, list, natural, object, optional } from './checks.js';
import type { EarlierSettings, TableSpec } from './map.js';
import { policyChangeProblem, withPolicy } from './policy-changes.js';

/** Earlier values that a table remembers of each setting. */
export const MAX_EARLIER = 64;

/** Changes of a table that exists, one or several of them; what is left out stays. */
export interface TableChanges extends OptimizerChanges {
  /** A policy takes the place of the whole one that a table has. */
  policy?: TablePolicy | undefined;
}

/** Each setting of the optimizer, and the field that has the values from before. */
const SETTINGS = {
  lr: 'earlierRates',
  clipNorm: 'earlierClips',
  schedule: 'earlierSchedules',
} as const satisfies Record<Setting, keyof EarlierSettings>;

/** All fields that have values from before. */
const LISTS = [...Object.values(SETTINGS), 'earlierPolicies'] as const;

const NAMES = Object.keys(SETTINGS) as Setting[];

const none: FieldCheck = (v) => v === null;
const finite: FieldCheck = (v) => Number.isFinite(v);

/** Checks of the fields of messages. */
export const EARLIER_FIELDS = {
  earlierRates: optional(list(finite)),
  earlierClips: optional(list(either(none, finite))),
  earlierSchedules: optional(list(either(none, object))),
  earlierPolicies: optional(list(object)),
  policyVersion: optional(natural),
} satisfies Record<keyof EarlierSettings, FieldCheck>;
export const CHANGE_FIELDS = {
  lr: optional(finite),
  clipNorm: optional(either(none, finite)),
  schedule: optional(either(none, object)),
  policy: optional(object),
} satisfies Record<keyof TableChanges, FieldCheck>;
export const settingName: FieldCheck = (v) => typeof v === 'string' && Object.hasOwn(SETTINGS, v);

type Settable = Pick<TableSpec, 'optimizer' | 'policy' | keyof EarlierSettings>;

/** The kind is first, the others in the order of their names. */
const byName = ([a]: [string, unknown], [b]: [string, unknown]): number => {
  const [first, second] = [a === 'kind' ? '' : a, b === 'kind' ? '' : b];
  return first < second ? -1 : 1;
};

/** A value in one line, whose fields have an order that depends on their names only. */
export const inOneLine = (value: unknown): string =>
  value === undefined || value === null
    ? 'none'
    : JSON.stringify(value, (_, part) =>
        typeof part === 'object' && part !== null
          ? Object.fromEntries(Object.entries(part).sort(byName))
          : part,
      );

export function earlierProblem(table: EarlierSettings): string | undefined {
  if (!EARLIER_FIELDS.policyVersion(table.policyVersion)) return 'policyVersion must be an integer';
  for (const field of LISTS) {
    const earlier: unknown = table[field];
    const isList = EARLIER_FIELDS[field](earlier);
    if (!isList || (Array.isArray(earlier) && earlier.length > MAX_EARLIER))
      return `${field} must be at most ${MAX_EARLIER} values`;
  }
  return undefined;
}

/** A table without the values that its settings had before. */
export function withoutEarlier<T extends EarlierSettings>(table: T): Omit<T, keyof EarlierSettings> {
  const left: Partial<T> = { ...table };
  for (const field of Object.keys(EARLIER_FIELDS) as (keyof EarlierSettings)[]) delete left[field];
  return left as Omit<T, keyof EarlierSettings>;
}

/** Counts the changes that a table remembers. A newer specification has no fewer than an older one. */
export function countEarlier(table: EarlierSettings): number {
  const { policyVersion = 1 } = table;
  return LISTS.reduce((sum, field) => sum + (table[field]?.length ?? 0), policyVersion - 1);
}

/** The settings in which two valid optimizers differ. */
export function differingSettings(a: OptimizerSpec, b: OptimizerSpec): Setting[] {
  return a === b ? [] : NAMES.filter((name) => inOneLine(a[name]) !== inOneLine(b[name]));
}

/** True: the settings of both are the same. */
export function isSetAlike(a: Settable, b: Settable): boolean {
  return differingSettings(a.optimizer, b.optimizer).length === 0 && isSamePolicy(a.policy, b.policy);
}

/** The given ones alone. They are valid, and a schedule is whole then. */
export function onlyChanges(given: TableChanges): TableChanges {
  const { lr, clipNorm, schedule, policy } = given;
  return {
    ...(policy && { policy: onlyKnownPolicy(policy) }),
    ...(lr !== undefined && { lr }),
    ...(clipNorm !== undefined && { clipNorm }),
    ...(schedule !== undefined && { schedule: schedule && wholeSchedule(schedule) }),
  };
}

function merged(optimizer: OptimizerSpec, changes: OptimizerChanges): OptimizerSpec {
  const given = NAMES.filter((name) => changes[name] !== undefined);
  const values = given.map((name) => [name, changes[name] ?? undefined]);
  return { ...optimizer, ...Object.fromEntries(values) };
}

/** An optimizer with valid changes. */
export function optimizerWith(optimizer: OptimizerSpec, changes: OptimizerChanges): OptimizerSpec {
  return onlyKnownOptimizer(merged(optimizer, changes));
}

/** The table with valid changes of its settings; the values that they had are earlier ones from now on. */
export function withSettings<T extends Settable>(given: T, changes: TableChanges): T {
  const table = withPolicy(given, changes.policy, MAX_EARLIER);
  const optimizer = optimizerWith(table.optimizer, changes);
  const changed = differingSettings(table.optimizer, optimizer).map((name) => {
    const [earlier, value] = [table[SETTINGS[name]] ?? [], table.optimizer[name] ?? null];
    const isNew = !hadBefore(table, name, value) && earlier.length < MAX_EARLIER;
    return [SETTINGS[name], isNew ? [...earlier, value] : earlier];
  });
  return { ...table, optimizer, ...Object.fromEntries(changed) };
}

/** True: the table remembers that the setting had this value. */
export function hadBefore(table: EarlierSettings, name: Setting, value: unknown): boolean {
  return (table[SETTINGS[name]] ?? []).some((earlier) => inOneLine(earlier) === inOneLine(value));
}

/**
 * The end of a sentence for people that begins with the table: what it had before. A worker that asks for
 * such a value may be one that was started with it long ago, so the table keeps its own. A table whose list
 * is full may have forgotten a value. Undefined: the value is a new one.
 */
export function oldSettingText(table: EarlierSettings, name: Setting, value: unknown): string | undefined {
  if (hadBefore(table, name, value)) return `had this ${name} before`;
  const isFull = (table[SETTINGS[name]]?.length ?? 0) >= MAX_EARLIER;
  return isFull
    ? `had ${MAX_EARLIER} other values of ${name} before and remembers no more, perhaps also this one`
    : undefined;
}

/** See `oldSettingText`. */
export function isOldSetting(table: EarlierSettings, name: Setting, value: unknown): boolean {
  return oldSettingText(table, name, value) !== undefined;
}

/** Why the settings of a table cannot change so, in one line; undefined when they can. */
export function changeProblem(
  { optimizer, policy }: Pick<TableSpec, 'optimizer' | 'policy'>,
  changes: TableChanges,
): string | undefined {
  if (changes.policy === undefined && NAMES.every((name) => changes[name] === undefined))
    return `nothing is to change: it takes ${[...NAMES, 'policy'].join(', ')}`;
  const unfit = changes.policy === undefined ? undefined : policyChangeProblem(policy, changes.policy);
  if (unfit) return unfit;
  const changed = merged(optimizer, changes);
  const { kind, schedule } = changed;
  const wrong = schedule === undefined ? undefined : scheduleProblem(schedule);
  const problem =
    optimizerProblem({ ...changed, schedule: undefined }) ??
    (wrong && `optimizer ${kind}: ${wrong}`) ??
    roundedProblem(changed, changes.lr === undefined ? [] : ['lr']);
  if (problem) return problem;
  for (const name of differingSettings(optimizer, changed)) {
    const fixed = fixedSettingOf(name, optimizer, changed);
    const [was, given] = [inOneLine(optimizer[name]), inOneLine(changed[name])];
    if (fixed) return `optimizer ${kind}: ${name} stays ${was} and cannot become ${given}: ${fixed}`;
  }
  return undefined;
}
