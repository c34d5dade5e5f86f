/**
 * Schedules of learning rates: one table, from which type, validation and documentation derive. The engine's
 * own table is in native/kernels/schedules.h; test/engine/optimizers.test.ts checks that both agree.
 *
 * A schedule counts the steps of a row, not those of a job. The count is a float of the row's state, so it is
 * coded, recovered, moved and saved with the values, and rows that are seldom pushed are not behind a
 * schedule that others have finished.
 */

export interface ScheduleParameter {
  /** `low` <= value <= `high`. */
  low: number;
  high: number;
  integer: boolean;
  /** The value if a user gives none; undefined: a user must give one. */
  usual?: number;
}

interface Schedule {
  /** The factor after the warm-up, in one line: `n` are the steps that the row has had since then. */
  help: string;
  parameters: Readonly<Record<string, ScheduleParameter>>;
}

/** A float32 counts steps exactly up to here, and stays here then. */
export const MOST_STEPS = 2 ** 24;

const STEPS = { low: 1, high: MOST_STEPS, integer: true } as const satisfies ScheduleParameter;

/** Every kind has a warm-up: so many first steps of a row have the factors 1 / warmup, 2 / warmup, ..., 1. */
const WARMUP = { low: 0, high: MOST_STEPS, integer: true, usual: 0 } as const satisfies ScheduleParameter;

/**
 * How the learning rate of a row changes with the steps that the row has had, for example `{ kind: 'cosine',
 * warmup: 10, steps: 1000 }`. `warmup` is 0 and `floor` is 0 where they are left out.
 */
export type ScheduleSpec =
  | { kind: 'constant'; warmup?: number | undefined }
  | { kind: 'cosine'; warmup?: number | undefined; steps: number; floor?: number | undefined }
  | { kind: 'step'; warmup?: number | undefined; every: number; factor: number }
  | { kind: 'inverse_sqrt'; warmup?: number | undefined; scale: number };

/** The schedules by name. */
export type ScheduleKind = ScheduleSpec['kind'];

export const SCHEDULES = {
  constant: { help: '1', parameters: { warmup: WARMUP } },
  cosine: {
    help: 'floor + (1 - floor) * (1 + cos(pi * min(n / steps, 1))) / 2',
    parameters: { warmup: WARMUP, steps: STEPS, floor: { low: 0, high: 1, integer: false, usual: 0 } },
  },
  step: {
    help: 'factor ^ floor(n / every)',
    parameters: { warmup: WARMUP, every: STEPS, factor: { low: 0, high: 1, integer: false } },
  },
  inverse_sqrt: {
    help: 'sqrt(scale / (scale + n))',
    parameters: { warmup: WARMUP, scale: STEPS },
  },
} as const satisfies Record<ScheduleKind, Schedule>;

export const SCHEDULE_KINDS = Object.keys(SCHEDULES) as ScheduleKind[];

function isScheduleKind(kind: unknown): kind is ScheduleKind {
  return typeof kind === 'string' && Object.hasOwn(SCHEDULES, kind);
}

/** Names of the parameters of a kind, `warmup` first. */
export function scheduleParameters(kind: ScheduleKind): string[] {
  return Object.keys(SCHEDULES[kind].parameters);
}

/** Why a schedule is not valid, in one line; undefined when it is. */
export function scheduleProblem(schedule: ScheduleSpec): string | undefined {
  if (typeof schedule !== 'object' || schedule === null) return 'schedule must be an object';
  const { kind, ...given } = schedule as { kind: unknown } & Record<string, unknown>;
  if (!isScheduleKind(kind)) return `unknown schedule; one of ${SCHEDULE_KINDS.join(', ')}`;
  const parameters: Readonly<Record<string, ScheduleParameter>> = SCHEDULES[kind].parameters;
  const surplus = Object.keys(given).find((name) => !Object.hasOwn(parameters, name));
  if (surplus !== undefined) return `schedule ${kind} has no parameter "${surplus}"`;
  for (const [name, { low, high, integer, usual }] of Object.entries(parameters)) {
    const value = given[name] ?? usual;
    const valid = typeof value === 'number' && value >= low && value <= high;
    if (valid && (!integer || Number.isInteger(value))) continue;
    const what = integer ? 'an integer' : 'a number';
    return `schedule ${kind}: ${name} must be ${what} from ${low} to ${high}`;
  }
  return undefined;
}

/** A schedule as flags name it: `cosine,warmup=0,steps=10,floor=0`. */
export function scheduleText({ kind, ...parameters }: ScheduleSpec): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
  return [kind, ...given.map(([name, value]) => `${name}=${value}`)].join(',');
}

/** A valid schedule with all its parameters, in one order. */
export function wholeSchedule(schedule: ScheduleSpec): ScheduleSpec {
  const { kind } = schedule;
  const given = schedule as unknown as Record<string, number | undefined>;
  const parameters: Readonly<Record<string, ScheduleParameter>> = SCHEDULES[kind].parameters;
  const all = Object.entries(parameters).map(([name, { usual }]) => [name, given[name] ?? usual]);
  return { kind, ...Object.fromEntries(all) } as ScheduleSpec;
}
