/**
 * Samples of a teacher whose best reachable AUC is known exactly. Labels are coins with the odds of the
 * teacher's logit, so its noise is that of a logistic model. The logit is a sum of parts that are independent
 * of each other and take finitely many values, all of them multiples of one step. So its distribution is the
 * convolution of those of the parts, and the AUC of its own probabilities is a finite sum (`bestAuc`). By the
 * lemma of Neyman and Pearson no other score has a larger one.
 *
 * The parts are pairs of categories with a weight of each value and a product of latent factors, which is
 * what models with embeddings learn, and numbers, of which one has a bend.
 */
import { writeFileSync } from 'node:fs';
import { randomU32 } from '../common/random.js';

/** All parts of the logit are multiples of this. */
const STEP = 1 / 64;
const LATENT = 3;
const BIAS = -0.75;

/** Pairs of columns with the numbers of their values. Values are equally likely. */
const PAIRS = [
  { columns: ['user', 'item'], values: [30, 20], weight: 0.5, pair: 0.6 },
  { columns: ['hour', 'place'], values: [12, 10], weight: 0.4, pair: 0.5 },
  { columns: ['device', 'shop'], values: [6, 8], weight: 0.4, pair: 0.4 },
] as const;

/** Numbers are equally likely multiples of a quarter from -2 to 2. */
const LEVELS = Array.from({ length: 17 }, (_, index) => (index - 8) / 4);
const NUMBERS = [
  { column: 'price', effect: (x: number) => 0.375 * x },
  { column: 'age', effect: (x: number) => 0.5 * Math.abs(x) - 0.5 },
] as const;

/** The columns that describe the item: the second ones of the pairs. All else is the query. */
export const TEACHER_ITEMS = ['item', 'place', 'shop'];
export const TEACHER_GATES = ['user', 'item'] as const;
export const TEACHER_SCHEMA = {
  label: 'label',
  dense: NUMBERS.map(({ column }) => column),
  sparse: PAIRS.flatMap(({ columns }) => [...columns]),
};

/** A distribution of a multiple of STEP: probabilities by the multiple. */
export type Distribution = ReadonlyMap<number, number>;

function add(into: Map<number, number>, at: number, probability: number): void {
  into.set(at, (into.get(at) ?? 0) + probability);
}

/** The distribution of the sum of two independent parts. */
export function convolve(one: Distribution, two: Distribution): Distribution {
  const sum = new Map<number, number>();
  for (const [a, p] of one) for (const [b, q] of two) add(sum, a + b, p * q);
  return sum;
}

/** A distribution whose values are equally likely. */
function equally(multiples: readonly number[]): Distribution {
  const all = new Map<number, number>();
  for (const each of multiples) add(all, each, 1 / multiples.length);
  return all;
}

const sigmoid = (logit: number) => 1 / (1 + Math.exp(-logit));

/**
 * AUC of the true probabilities over all samples that there can be: that a random positive sample has a
 * larger logit than a random negative one, plus half of that both have the same. `logits`: multiples of
 * `step`.
 */
export function bestAuc(logits: Distribution, step = STEP): number {
  let [positives, below, sum] = [0, 0, 0];
  for (const [multiple, probability] of [...logits].sort(([a], [b]) => a - b)) {
    const positive = probability * sigmoid(multiple * step);
    const negative = probability - positive;
    sum += positive * (below + negative / 2);
    below += negative;
    positives += positive;
  }
  return sum / (positives * below);
}

export interface TaughtSample {
  label: number;
  /** The true probability of the label 1 */
  probability: number;
  fields: Record<string, number>;
}

export class Teacher {
  /** Effects of each pair, in multiples of STEP: effects[left * values of the right + right] */
  private readonly pairs: readonly Int32Array[];
  private readonly numbers: readonly Int32Array[];
  private readonly unit: () => number;
  /** The AUC of the true probabilities over all samples that there can be. */
  readonly bound: number;

  constructor(seed: number) {
    const random = randomU32(seed + 1);
    this.unit = () => (random() + 0.5) / 2 ** 32;
    const normal = () => Math.sqrt(-2 * Math.log(this.unit())) * Math.cos(2 * Math.PI * this.unit());
    const normals = (count: number) => Array.from({ length: count }, normal);
    const steps = (effects: readonly number[]) => Int32Array.from(effects, (each) => Math.round(each / STEP));
    this.pairs = PAIRS.map(({ values: [lefts, rights], weight, pair }) => {
      const vectors = (count: number) => Array.from({ length: count }, () => normals(LATENT));
      const [leftWeights, rightWeights] = [normals(lefts), normals(rights)];
      const [leftVectors, rightVectors] = [vectors(lefts), vectors(rights)];
      const effect = (left: number, right: number) => {
        const dot = leftVectors[left]!.reduce((sum, each, i) => sum + each * rightVectors[right]![i]!, 0);
        return weight * (leftWeights[left]! + rightWeights[right]!) + (pair / Math.sqrt(LATENT)) * dot;
      };
      return steps(
        Array.from({ length: lefts * rights }, (_, at) => effect(Math.floor(at / rights), at % rights)),
      );
    });
    this.numbers = NUMBERS.map(({ effect }) => steps(LEVELS.map(effect)));
    const parts = [...this.pairs, ...this.numbers].map((effects) => equally([...effects]));
    this.bound = bestAuc(parts.reduce(convolve, equally([Math.round(BIAS / STEP)])));
  }

  /** The next samples. */
  samples(count: number): TaughtSample[] {
    return Array.from({ length: count }, () => this.sample());
  }

  private choose(count: number): number {
    return Math.floor(this.unit() * count);
  }

  /** Samples of so many queries, each with so many random items, one query after the other. */
  queries(count: number, items: number): TaughtSample[] {
    return Array.from({ length: count }, () => {
      const first = this.sample();
      return [first, ...Array.from({ length: items - 1 }, () => this.sample(first.fields))];
    }).flat();
  }

  /** `query`: fields of a sample whose query this one has, with another item. */
  private sample(query?: Record<string, number>): TaughtSample {
    const fields: Record<string, number> = {};
    let multiple = Math.round(BIAS / STEP);
    for (const [index, { columns, values }] of PAIRS.entries()) {
      const [left, right] = [query?.[columns[0]] ?? this.choose(values[0]), this.choose(values[1])];
      [fields[columns[0]], fields[columns[1]]] = [left, right];
      multiple += this.pairs[index]![left * values[1] + right]!;
    }
    for (const [index, { column }] of NUMBERS.entries()) {
      const value = query?.[column] ?? LEVELS[this.choose(LEVELS.length)]!;
      fields[column] = value;
      multiple += this.numbers[index]![LEVELS.indexOf(value)]!;
    }
    const probability = sigmoid(multiple * STEP);
    return { label: this.unit() < probability ? 1 : 0, probability, fields };
  }
}

/** Writes samples as JSON lines. */
export function writeSamples(path: string, samples: readonly TaughtSample[]): void {
  const lines = samples.map(({ label, fields }) => JSON.stringify({ label, ...fields }));
  writeFileSync(path, `${lines.join('\n')}\n`);
}
