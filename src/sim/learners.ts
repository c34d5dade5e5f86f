/**
 * The optimizers of a schedule's tables: their rows after some pushes are computed here a second time, with
 * every operation rounded as the engine rounds it, so that rows are compared bit for bit.
 */
import type { OptimizerSpec } from '../engine/native.js';
import type { TablePolicy } from '../engine/policies.js';
import type { ScheduleSpec } from '../engine/schedules.js';

export interface Learner {
  optimizer: OptimizerSpec;
  /** Floats of a whole row. */
  width(dim: number): number;
  /** The learning rate of push number `number`; undefined: that of the table. */
  rate(number: number): number | undefined;
  /** How often push number `number` says that its key was seen; undefined: nothing, so it was once. */
  count?(number: number): number | undefined;
  /** The score that push number `number` gives its row; undefined: none, so the row keeps its own. */
  score?(number: number): number | undefined;
  /** True: push number `number` deletes the row. */
  deletes?(number: number): boolean;
  /** The policy of its tables: a row has the pushes since it was gone last (living.ts). */
  policy?: TablePolicy;
  /** A whole row after these pushes, in order. */
  row(dim: number, numbers: readonly number[]): Float32Array;
}

/** Value of a row that was never pushed. */
export const INITIAL = 0.25;

const { fround } = Math;

/** Gradient of push number `number` for a row; not exact in binary, so that rounding shows. */
export function gradient(number: number, column: number): number {
  return fround((((number * 7 + column * 13) % 29) - 14) * 0.037);
}

/** A step on `row`, whose values are its first floats, with the gradient `g` and the rate `lr`. */
type UpdateRule = (row: Float32Array, g: Float32Array, lr: number) => void;

/** The sum of squares in sixteen parts, folded in halves. */
function sumOfSquares(g: Float32Array): number {
  const lanes = new Float32Array(16);
  for (const [i, x] of g.entries()) lanes[i % 16] = fround(lanes[i % 16]! + fround(x * x));
  for (let half = 8; half >= 1; half /= 2)
    for (let i = 0; i < half; i++) lanes[i] = fround(lanes[i]! + lanes[i + half]!);
  return lanes[0]!;
}

function power(base: number, exponent: number): number {
  let [result, factor] = [1, base];
  for (let rest = exponent; rest > 0; rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) result *= factor;
    factor *= factor;
  }
  return result;
}

/** Factor of the learning rate for a row that has had `before` steps. */
function factorOf(schedule: ScheduleSpec, before: number): number {
  const { warmup = 0 } = schedule;
  if (before < warmup) return (before + 1) / warmup;
  const since = before - warmup;
  if (schedule.kind === 'step') return power(schedule.factor, Math.floor(since / schedule.every));
  if (schedule.kind === 'inverse_sqrt') return Math.sqrt(schedule.scale / (schedule.scale + since));
  return 1;
}

interface LearnerShape {
  /** Initial value of each float of state that a value has. */
  vectors: readonly number[];
  /** True: the row counts its steps, in its last float. */
  counts: boolean;
}

/**
 * The learning rate of a push: every other push has one, and each table another one. Some rates are zero,
 * others not exact in float32.
 */
function rateOf({ kind, lr }: OptimizerSpec, number: number): number | undefined {
  return kind === 'ftrl' || number % 2 === 0 ? undefined : ((number % 5) * lr) / 1.7;
}

function learner(optimizer: OptimizerSpec, { vectors, counts }: LearnerShape, rule: UpdateRule): Learner {
  const { clipNorm, schedule, lr } = optimizer;
  const rate = (number: number) => rateOf(optimizer, number);
  const width = (dim: number) => dim * (1 + vectors.length) + (counts ? 1 : 0);
  const start = (dim: number) => {
    const row = new Float32Array(width(dim)).fill(INITIAL, 0, dim);
    for (const [i, value] of vectors.entries()) row.fill(value, dim * (1 + i), dim * (2 + i));
    return row;
  };
  const clipped = (g: Float32Array) => {
    if (clipNorm === undefined) return g;
    const norm = fround(Math.sqrt(sumOfSquares(g)));
    const factor = norm > fround(clipNorm) ? fround(fround(clipNorm) / norm) : 1;
    return g.map((x) => fround(factor * x));
  };
  const row = (dim: number, numbers: readonly number[]) => {
    const values = start(dim);
    const last = values.length - 1;
    for (const number of numbers) {
      const g = clipped(Float32Array.from({ length: dim }, (_, i) => gradient(number, i)));
      const own = rate(number);
      const base = own === undefined ? lr : fround(own);
      const now = schedule ? base * factorOf(schedule, values[last]!) : base;
      if (counts) values[last] = values[last]! + 1;
      rule(values, g, now);
    }
    return values;
  };
  return { optimizer, width, rate, row };
}

const ADAGRAD = { kind: 'adagrad', lr: 0.05, eps: 1e-8, initialAccumulator: 0.1 } as const;

/** s += g*g; w -= (lr*g) / (sqrt(s) + eps) */
const adagrad = learner(ADAGRAD, { vectors: [0.1], counts: false }, (row, g, lr) => {
  const eps = fround(ADAGRAD.eps);
  for (const [i, x] of g.entries()) {
    const s = fround(row[g.length + i]! + fround(x * x));
    row[g.length + i] = s;
    row[i] = fround(row[i]! - fround(fround(fround(lr) * x) / fround(fround(Math.sqrt(s)) + eps)));
  }
});

const MOMENTUM = {
  kind: 'momentum',
  lr: 0.05,
  momentum: 0.9,
  clipNorm: 0.4,
  schedule: { kind: 'step', warmup: 2, every: 2, factor: 0.7 },
} as const;

/** v = momentum*v + g; w -= lr*v */
const momentum = learner(MOMENTUM, { vectors: [0], counts: true }, (row, g, lr) => {
  const keep = fround(MOMENTUM.momentum);
  for (const [i, x] of g.entries()) {
    const v = fround(fround(keep * row[g.length + i]!) + x);
    row[g.length + i] = v;
    row[i] = fround(row[i]! - fround(fround(lr) * v));
  }
});

const ADAMW = {
  kind: 'adamw',
  lr: 0.02,
  beta1: 0.9,
  beta2: 0.999,
  eps: 1e-8,
  weightDecay: 0.3,
  schedule: { kind: 'inverse_sqrt', warmup: 1, scale: 3 },
} as const;

/** w *= 1 - lr*weightDecay; m, v = moving averages; w -= (lr / (1-beta1^t) * m) / (sqrt(v) / c + eps) */
const adamw = learner(ADAMW, { vectors: [0, 0], counts: true }, (row, g, lr) => {
  const { beta1, beta2, eps, weightDecay } = ADAMW;
  const step = row.at(-1)!;
  const rate = fround(fround(lr) / (1 - power(beta1, step)));
  const correction = fround(Math.sqrt(1 - power(beta2, step)));
  const decay = fround(1 - lr * weightDecay);
  const [b1, rest1, b2, rest2] = [beta1, 1 - beta1, beta2, 1 - beta2].map(fround) as [
    number,
    number,
    number,
    number,
  ];
  for (const [i, x] of g.entries()) {
    const [atM, atV] = [g.length + i, 2 * g.length + i];
    const m = fround(fround(b1 * row[atM]!) + fround(rest1 * x));
    const v = fround(fround(b2 * row[atV]!) + fround(fround(rest2 * x) * x));
    row[atM] = m;
    row[atV] = v;
    const denominator = fround(fround(fround(Math.sqrt(v)) / correction) + fround(eps));
    row[i] = fround(fround(row[i]! * decay) - fround(fround(rate * m) / denominator));
  }
});

const FTRL = {
  kind: 'ftrl',
  lr: 0.05,
  beta: 1,
  l1: 0.1,
  l2: 0.2,
  initialAccumulator: 0.1,
  clipNorm: 0.4,
} as const;

/** z += g - (sqrt(n+g*g) - sqrt(n)) / lr * w; w = -(z beyond l1) / ((beta + sqrt(n)) / lr + l2) */
const ftrl = learner(FTRL, { vectors: [0, 0.1], counts: false }, (row, g, lr) => {
  const [rate, l1, l2] = [fround(lr), fround(FTRL.l1), fround(FTRL.l2)];
  for (const [i, x] of g.entries()) {
    const [atZ, atN] = [g.length + i, 2 * g.length + i];
    const sum = fround(row[atN]! + fround(x * x));
    const root = fround(Math.sqrt(sum));
    const sigma = fround(fround(root - fround(Math.sqrt(row[atN]!))) / rate);
    const z = fround(fround(row[atZ]! + x) - fround(sigma * row[i]!));
    row[atN] = sum;
    row[atZ] = z;
    const denominator = fround(fround(fround(FTRL.beta + root) / rate) + l2);
    const beyond = z > l1 ? fround(l1 - z) : -l1 > z ? fround(-l1 - z) : 0;
    row[i] = beyond === 0 ? 0 : fround(beyond / denominator);
  }
});

const isDeletion = (number: number) => number % 3 === 0;

/** Every third push deletes the row: what comes later finds nothing of what was before. */
const forgetting: Learner = {
  ...adagrad,
  deletes: isDeletion,
  row: (dim, numbers) => adagrad.row(dim, numbers.slice(numbers.findLastIndex(isDeletion) + 1)),
};

/** Some pushes say that their key was seen four times, some that it was once, and some nothing. */
const count = (number: number): number | undefined => [undefined, undefined, 4, 1][number % 4];

/** How often these pushes say that their key was seen. */
export function sightingsOf(learner: Learner, numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + (learner.count?.(number) ?? 1), 0);
}

/** A row after these pushes, of which those before its second sighting have changed no value. */
function rowOfSecond(this: Learner, dim: number, numbers: readonly number[]): Float32Array {
  const first = numbers.findIndex((_, i) => sightingsOf(this, numbers.slice(0, i + 1)) >= 2);
  return adagrad.row(dim, first < 0 ? [] : numbers.slice(first));
}

/** Rows go by themselves, and the first sighting of a row changes none of its values. */
const expiring: Learner = {
  ...adagrad,
  count,
  policy: { ttl: 4, minFrequency: { sightings: 3, ttl: 2 }, counter: 2 },
  width: (dim) => adagrad.width(dim) + 2,
  row: rowOfSecond,
};

/** Rows make room for others. */
const crowded: Learner = {
  ...adagrad,
  count,
  policy: { maxRows: 3 },
  width: (dim) => adagrad.width(dim) + 2,
};

/** Two of three pushes give their row a score. Different pushes give the same one. */
const score = (number: number): number | undefined =>
  number % 3 === 0 ? undefined : fround((((number * 5) % 7) - 3) * 0.1);

/** The score after these pushes, of a row that began with the first of them. */
function scoreAfter(learner: Learner, numbers: readonly number[]): number {
  return numbers.reduce((now, number) => learner.score?.(number) ?? now, 0);
}

/** Rows make room for others, those of the lowest score first. A score follows the state of a row. */
const scored: Learner = {
  ...adagrad,
  count,
  score,
  policy: { maxRows: 3, score: true },
  width: (dim) => adagrad.width(dim) + 3,
  row(dim, numbers) {
    return Float32Array.of(...adagrad.row(dim, numbers), scoreAfter(this, numbers));
  },
};

/** Rows go by the seconds of the job. */
const timed: Learner = {
  ...adagrad,
  count,
  policy: { clock: 'seconds', ttl: 3 },
  width: (dim) => adagrad.width(dim) + 2,
};

/** The first sighting of a row is counted in a filter, which is so large that no key is taken for another. */
const waiting: Learner = {
  ...adagrad,
  count,
  policy: { bloom: { sightings: 2, capacity: 400, error: 1e-5 } },
  width: (dim) => adagrad.width(dim) + 2,
  row: rowOfSecond,
};

/** A row begins with any of its pushes. */
const chosen: Learner = {
  ...adagrad,
  count,
  policy: { probability: 0.5 },
  width: (dim) => adagrad.width(dim) + 2,
};

/** The optimizers by the letter in the name of a table. */
export const LEARNERS = {
  x: forgetting,
  e: expiring,
  c: crowded,
  s: scored,
  z: timed,
  b: waiting,
  p: chosen,
  a: adagrad,
  m: momentum,
  w: adamw,
  f: ftrl,
} as const satisfies Record<string, Learner>;

export type LearnerName = keyof typeof LEARNERS;
