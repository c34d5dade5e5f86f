/**
 * The optimizers: one table, from which everything else in TypeScript is derived. The public type, the
 * validation of table specifications, the flags of the command line and the layout of saved files all read
 * it. The engine's own table is in native/kernels/optimizers.h; test/optimizers.test.ts checks that both
 * agree.
 */

/** The valid values of a number: `low` <= value < `high`. */
interface Range {
  low: number;
  high: number;
}

interface Parameter extends Range {
  /** The value of those who do not choose one. */
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
}

interface Optimizer {
  /** What one step does, in one line: `w` are the values, `g` the gradient. */
  help: string;
  /** The learning rate has no usual value. */
  lr: Range;
  parameters: Readonly<Record<string, Parameter>>;
  state: readonly StatePart[];
}

/** The largest float32: the engine computes in single precision and takes no parameter beyond it. */
const LARGEST = 2 ** 128 - 2 ** 104;

const ANY: Range = { low: -LARGEST, high: LARGEST };
const NOT_NEGATIVE: Range = { low: 0, high: LARGEST };
const FRACTION: Range = { low: 0, high: 1 };

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
    state: [{ name: 'sum', shape: 'vector' }],
  },
  rowwise_adagrad: {
    help: 's += mean(g^2), one s per row; w -= lr * g / (sqrt(s) + eps)',
    lr: NOT_NEGATIVE,
    parameters: {
      eps: { ...FRACTION, usual: 1e-10 },
      initialAccumulator: { ...NOT_NEGATIVE, usual: 0 },
    },
    state: [{ name: 'sum', shape: 'scalar' }],
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
} as const satisfies Record<string, Optimizer>;

/** The optimizers by name. */
export type OptimizerKind = keyof typeof OPTIMIZERS;

type ParametersOf<Kind extends OptimizerKind> = {
  -readonly [Name in 'lr' | keyof (typeof OPTIMIZERS)[Kind]['parameters']]: number;
};

/**
 * An optimizer with its parameters, for example `{ kind: 'adam', lr: 1e-3, beta1: 0.9, beta2: 0.999, eps:
 * 1e-8 }`. All parameters are required; `optimizerOf` fills in the usual ones.
 */
export type OptimizerSpec = {
  [Kind in OptimizerKind]: { kind: Kind } & ParametersOf<Kind>;
}[OptimizerKind];

export const OPTIMIZER_KINDS = Object.keys(OPTIMIZERS) as OptimizerKind[];

export function isOptimizerKind(kind: unknown): kind is OptimizerKind {
  return typeof kind === 'string' && Object.hasOwn(OPTIMIZERS, kind);
}

/** Names of the parameters of a kind, `lr` first. */
export function optimizerParameters(kind: OptimizerKind): string[] {
  return ['lr', ...Object.keys(OPTIMIZERS[kind].parameters)];
}

/** An optimizer with this learning rate and the usual values of its other parameters. */
export function optimizerOf(kind: OptimizerKind, lr: number): OptimizerSpec {
  const usual = Object.entries<Parameter>(OPTIMIZERS[kind].parameters).map(([name, it]) => [name, it.usual]);
  return { kind, lr, ...Object.fromEntries(usual) } as OptimizerSpec;
}

/** The optimizer of a table for which none is given. */
export const DEFAULT_OPTIMIZER = optimizerOf('adagrad', 0.05);

/** For messages. What another process sent may be an object that has no text. */
export function quoted(kind: unknown): string {
  return typeof kind === 'string' ? `"${kind}"` : typeof kind;
}

/** Why a specification is not valid, in one line; undefined when it is. */
export function optimizerProblem(optimizer: OptimizerSpec): string | undefined {
  const kind: unknown = optimizer?.kind;
  if (!isOptimizerKind(kind))
    return `unknown optimizer ${quoted(kind)}; one of ${OPTIMIZER_KINDS.join(', ')}`;
  const { lr, parameters } = OPTIMIZERS[kind];
  for (const [name, { low, high }] of Object.entries<Range>({ lr, ...parameters })) {
    const value = (optimizer as unknown as Record<string, unknown>)[name];
    if (typeof value !== 'number' || !Number.isFinite(value) || value < low || value >= high) {
      return `optimizer ${kind}: ${name} must be a number in [${low}, ${high})`;
    }
  }
  return undefined;
}

/** The state of a row, in order; the floats of a vector are `dim`. */
export function stateParts(kind: OptimizerKind): readonly StatePart[] {
  return OPTIMIZERS[kind].state;
}
