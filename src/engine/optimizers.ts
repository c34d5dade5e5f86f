/**
 * The optimizers: one table, from which everything else in TypeScript is derived. The public type, the
 * validation of table specifications, the flags of the command line and the layout of saved files all read
 * it. The engine's own table is in native/kernels/optimizers.h; test/engine/optimizers.test.ts checks that
 * both agree.
 */
import { KintsugiError } from '../common/errors.js';
import { lifeParts, type TablePolicy } from './policies.js';
import { type ScheduleSpec, scheduleProblem, scheduleText, wholeSchedule } from './schedules.js';

/** The valid values of a number: `low` <= value < `high`. */
interface ParameterRange {
  low: number;
  high: number;
}

interface Parameter extends ParameterRange {
  /** The value if a user gives none. */
  usual: number;
}

/**
 * A part of the state of a row, in the order in which it follows the values. A 'vector' has as many floats as
 * the row has values; a 'scalar' is one float for the whole row. Step counts are such scalars: each row
 * counts its own steps.
 */
export interface StatePart {
  /** As torch.optim names it; saved files use this name. */
  name: string;
  shape: 'vector' | 'scalar';
  /** The parameter that its floats begin with; default: with 0. */
  start?: 'initialAccumulator';
}

interface Optimizer {
  /** The step as one line of a formula: `w` are the values, `g` the gradient. */
  help: string;
  /** The learning rate has no usual value. */
  lr: ParameterRange;
  parameters: Readonly<Record<string, Parameter>>;
  state: readonly StatePart[];
  /** Why its learning rate stays what it is; undefined: schedules and pushes may change it. */
  fixedRate?: string;
}

/** The largest float32: the engine computes in single precision and takes no parameter beyond it. */
const LARGEST = 2 ** 128 - 2 ** 104;

const ANY: ParameterRange = { low: -LARGEST, high: LARGEST };
const NOT_NEGATIVE: ParameterRange = { low: 0, high: LARGEST };
const FRACTION: ParameterRange = { low: 0, high: 1 };
/** From the least normal float32 on. */
const POSITIVE: ParameterRange = { low: 2 ** -126, high: LARGEST };

export const OPTIMIZERS = {
  sgd: {
    help: 'w -= lr * g',
    // A negative rate adds gradients to the values: exact counters, used by audits and tests.
    lr: ANY,
    parameters: {},
    state: [],
  },
  momentum: {
    help: 'v = momentum * v + g; w -= lr * v',
    lr: NOT_NEGATIVE,
    parameters: { momentum: { ...FRACTION, usual: 0.9 } },
    state: [{ name: 'momentum', shape: 'vector' }],
  },
  adagrad: {
    help: 's += g^2; w -= lr * g / (sqrt(s) + eps)',
    lr: NOT_NEGATIVE,
    parameters: {
      eps: { ...FRACTION, usual: 1e-10 },
      initialAccumulator: { ...NOT_NEGATIVE, usual: 0 },
    },
    state: [{ name: 'sum', shape: 'vector', start: 'initialAccumulator' }],
  },
  rowwise_adagrad: {
    help: 's += mean(g^2), one s per row; w -= lr * g / (sqrt(s) + eps)',
    lr: NOT_NEGATIVE,
    parameters: {
      eps: { ...FRACTION, usual: 1e-10 },
      initialAccumulator: { ...NOT_NEGATIVE, usual: 0 },
    },
    state: [{ name: 'sum', shape: 'scalar', start: 'initialAccumulator' }],
  },
  adam: {
    help: "m, v = moving averages of g, g^2; w -= lr * m' / (sqrt(v') + eps), both corrected for the start",
    lr: NOT_NEGATIVE,
    parameters: {
      beta1: { ...FRACTION, usual: 0.9 },
      beta2: { ...FRACTION, usual: 0.999 },
      eps: { ...FRACTION, usual: 1e-8 },
    },
    state: [
      { name: 'exp_avg', shape: 'vector' },
      { name: 'exp_avg_sq', shape: 'vector' },
      { name: 'step', shape: 'scalar' },
    ],
  },
  adamw: {
    help: 'w -= lr * weightDecay * w, then as adam: decay that the moving averages do not see',
    lr: NOT_NEGATIVE,
    parameters: {
      beta1: { ...FRACTION, usual: 0.9 },
      beta2: { ...FRACTION, usual: 0.999 },
      eps: { ...FRACTION, usual: 1e-8 },
      weightDecay: { ...NOT_NEGATIVE, usual: 0.01 },
    },
    state: [
      { name: 'exp_avg', shape: 'vector' },
      { name: 'exp_avg_sq', shape: 'vector' },
      { name: 'step', shape: 'scalar' },
    ],
  },
  ftrl: {
    help:
      'z += g - (sqrt(n + g^2) - sqrt(n)) / lr * w; n += g^2; w = 0 if abs(z) <= l1, else ' +
      '(sign(z) * l1 - z) / ((beta + sqrt(n)) / lr + l2)',
    lr: POSITIVE,
    parameters: {
      beta: { ...NOT_NEGATIVE, usual: 1 },
      l1: { ...NOT_NEGATIVE, usual: 0 },
      l2: { ...NOT_NEGATIVE, usual: 0 },
      initialAccumulator: { ...NOT_NEGATIVE, usual: 0 },
    },
    // Parts of the state are named as TensorFlow names them.
    state: [
      { name: 'linear', shape: 'vector' },
      { name: 'accumulator', shape: 'vector', start: 'initialAccumulator' },
    ],
    fixedRate: 'its values are a function of z, n and lr, so another lr would scale what was learnt before',
  },
} as const satisfies Record<string, Optimizer>;

/** The optimizers by name. */
export type OptimizerKind = keyof typeof OPTIMIZERS;

type ParametersOf<Kind extends OptimizerKind> = {
  -readonly [Name in 'lr' | keyof (typeof OPTIMIZERS)[Kind]['parameters']]: number;
};

/** Options of an optimizer of any kind. */
export interface OptimizerExtras {
  /**
   * The gradient of a row, summed over a push, is scaled down to this Euclidean norm where its own is larger.
   * Above 0. Default: gradients are taken as they come.
   */
  clipNorm?: number | undefined;
  /** `lr` is multiplied by a factor that changes with the steps of each row. Default: 1. */
  schedule?: ScheduleSpec | undefined;
}

/** The names of the extras, without values. */
export const NO_EXTRAS = { clipNorm: undefined, schedule: undefined } satisfies Required<OptimizerExtras>;

/**
 * An optimizer with its parameters, for example `{ kind: 'adam', lr: 1e-3, beta1: 0.9, beta2: 0.999, eps:
 * 1e-8 }`. All parameters are required; `optimizerOf` fills in the usual ones.
 */
export type OptimizerSpec = {
  [Kind in OptimizerKind]: { kind: Kind } & ParametersOf<Kind> & OptimizerExtras;
}[OptimizerKind];

/** Changes of the optimizer of a table that exists; what is left out stays. */
export interface OptimizerChanges {
  /** Learning rate of the pushes from now on that bring none of their own. FTRL takes no other one. */
  lr?: number | undefined;
  /** Largest norm of the gradient of a row; null: any. */
  clipNorm?: number | null | undefined;
  /** Null: none. It comes and goes only where rows count their steps without it: with adam and adamw. */
  schedule?: ScheduleSpec | null | undefined;
}

/** The name of something that may change. */
export type Setting = keyof OptimizerChanges;

/** As flags and `kintsugi table set` name them. */
export const SETTING_FLAGS = {
  lr: 'lr',
  clipNorm: 'clip-norm',
  schedule: 'lr-schedule',
} as const satisfies Record<Setting, string>;

/** A setting as events and flags have it. */
export function settingText(value: OptimizerSpec[Setting]): number | string {
  return typeof value === 'object' ? scheduleText(value) : (value ?? 'none');
}

const CLIP_NORM: ParameterRange = POSITIVE;

export const OPTIMIZER_KINDS = Object.keys(OPTIMIZERS) as OptimizerKind[];

export function isOptimizerKind(kind: unknown): kind is OptimizerKind {
  return typeof kind === 'string' && Object.hasOwn(OPTIMIZERS, kind);
}

/** Names of the parameters of a kind, `lr` first. */
export function optimizerParameters(kind: OptimizerKind): string[] {
  return ['lr', ...Object.keys(OPTIMIZERS[kind].parameters)];
}

/**
 * An optimizer with this learning rate and the usual values of its other parameters.
 * @throws BAD_ARGUMENT
 */
export function optimizerOf(kind: OptimizerKind, lr: number): OptimizerSpec {
  if (!isOptimizerKind(kind))
    throw new KintsugiError(
      'BAD_ARGUMENT',
      `unknown optimizer ${quoted(kind)}; one of ${OPTIMIZER_KINDS.join(', ')}`,
    );
  if (typeof lr !== 'number')
    throw new KintsugiError('BAD_ARGUMENT', `optimizer ${kind}: lr must be a number`);
  const usual = Object.entries<Parameter>(OPTIMIZERS[kind].parameters).map(([name, it]) => [name, it.usual]);
  return { kind, lr, ...Object.fromEntries(usual) } as OptimizerSpec;
}

/** The optimizer of a table for which none is given. */
export const DEFAULT_OPTIMIZER = optimizerOf('adagrad', 0.05);

/** A kind as messages show it. Another process may have sent an object that has no text. */
export function quoted(kind: unknown): string {
  return typeof kind === 'string' ? `"${kind}"` : typeof kind;
}

function outside(value: unknown, { low, high }: ParameterRange): boolean {
  return typeof value !== 'number' || !Number.isFinite(value) || value < low || value >= high;
}

/** Why a specification is not valid, in one line; undefined when it is. */
export function optimizerProblem(optimizer: OptimizerSpec): string | undefined {
  const kind: unknown = optimizer?.kind;
  if (!isOptimizerKind(kind))
    return `unknown optimizer ${quoted(kind)}; one of ${OPTIMIZER_KINDS.join(', ')}`;
  const { lr, parameters, fixedRate }: Optimizer = OPTIMIZERS[kind];
  const { clipNorm, schedule } = optimizer;
  const limited = clipNorm === undefined ? {} : { clipNorm: CLIP_NORM };
  for (const [name, range] of Object.entries<ParameterRange>({ lr, ...parameters, ...limited })) {
    const value = (optimizer as unknown as Record<string, unknown>)[name];
    if (outside(value, range))
      return `optimizer ${kind}: ${name} must be a number in [${range.low}, ${range.high})`;
  }
  if (schedule === undefined) return undefined;
  if (fixedRate) return `optimizer ${kind} takes no schedule: ${fixedRate}`;
  const problem = scheduleProblem(schedule);
  return problem && `optimizer ${kind}: ${problem}`;
}

const isRounded = (value: number): boolean => value !== 0 && Math.fround(value) === 0;
const NOT_ROUNDED = 'must be 0, or a number that single precision does not round to it';

/**
 * Why nobody means a valid optimizer, in one line: single precision rounds a parameter that is not 0 to it.
 * It is asked where parameters are given: files and jobs may have such ones. `names`: of what is given.
 */
export function roundedProblem(
  optimizer: OptimizerSpec,
  names: readonly string[] = optimizerParameters(optimizer.kind),
): string | undefined {
  const values = optimizer as unknown as Record<string, number>;
  const name = names.find((each) => isRounded(values[each]!));
  return name && `optimizer ${optimizer.kind}: ${name} ${NOT_ROUNDED}, not ${values[name]}`;
}

/** Why the learning rate of a table with this optimizer never changes; undefined when it may. */
function fixedRateOf({ kind }: Pick<OptimizerSpec, 'kind'>): string | undefined {
  const { fixedRate }: Optimizer = OPTIMIZERS[kind];
  return fixedRate;
}

/** Why a valid setting of a table never becomes that of `given`; undefined when it may. */
export function fixedSettingOf(
  name: Setting,
  known: OptimizerSpec,
  given: OptimizerSpec,
): string | undefined {
  if (name === 'clipNorm') return undefined;
  const fixed = fixedRateOf(known);
  if (fixed || name === 'lr' || countsSteps(known) === countsSteps(given)) return fixed;
  return countsSteps(known)
    ? 'rows have a step count for their schedule, which would have to go'
    : 'rows of this table have no step count';
}

/** The part of a valid optimizer that stays as long as its table: all but the settings that may change. */
export function lastingPart(optimizer: OptimizerSpec): object {
  const { lr, clipNorm: _, schedule: __, ...rest } = optimizer;
  return { ...rest, ...(fixedRateOf(optimizer) !== undefined && { lr }), counts: countsSteps(optimizer) };
}

/**
 * Why a push of gradients to a table with this optimizer cannot have this learning rate, in one line;
 * undefined when it can.
 */
export function pushRateProblem({ kind }: OptimizerSpec, lr: unknown): string | undefined {
  const fixed = fixedRateOf({ kind });
  if (fixed) return `optimizer ${kind} takes no lr with a push: ${fixed}`;
  const { low, high } = NOT_NEGATIVE;
  if (outside(lr, NOT_NEGATIVE)) return `the lr of a push must be a number in [${low}, ${high})`;
  return isRounded(lr as number) ? `the lr of a push ${NOT_ROUNDED}, not ${lr}` : undefined;
}

/** A valid specification without further fields, in a form that is the same for all that mean the same. */
export function onlyKnownOptimizer(optimizer: OptimizerSpec): OptimizerSpec {
  const { kind, clipNorm, schedule } = optimizer;
  const given = optimizer as unknown as Record<string, unknown>;
  const known = ['kind', ...optimizerParameters(kind)].map((name) => [name, given[name]]);
  return {
    ...Object.fromEntries(known),
    ...(clipNorm !== undefined && { clipNorm }),
    ...(schedule && { schedule: wholeSchedule(schedule) }),
  };
}

/** The part of an optimizer that decides how long rows are. */
export type StateOf = { kind: OptimizerKind; schedule?: ScheduleSpec | undefined };

const STEP_COUNT: StatePart = { name: 'step', shape: 'scalar' };

/**
 * The state of a row, in order; the floats of a vector are `dim`. A schedule counts steps as the optimizer
 * does, or adds a count where that has none. A policy adds words.
 */
export function stateParts(optimizer: StateOf, policy?: TablePolicy): readonly StatePart[] {
  const parts = optimizerParts(optimizer);
  return policy ? [...parts, ...lifeParts(policy)] : parts;
}

function countsSteps(optimizer: StateOf): boolean {
  return optimizerParts(optimizer).some(({ name }) => name === STEP_COUNT.name);
}

function optimizerParts({ kind, schedule }: StateOf): readonly StatePart[] {
  const state: readonly StatePart[] = OPTIMIZERS[kind].state;
  return !schedule || state.some(({ name }) => name === STEP_COUNT.name) ? state : [...state, STEP_COUNT];
}
