/**
 * Data in the Criteo layout for demos, benchmarks and tests: no download, no licence, and the best reachable
 * AUC is known.
 *
 * Values of a column are drawn log-uniformly by rank (Zipf with exponent 1), so a few keys are hot and most
 * are rare. The label is a coin with the odds of a logistic model: weights of some columns' values and of
 * integers, which a logistic regression can learn, and products of latent factors of pairs of columns, for
 * which a model needs embeddings.
 *
 * Everything follows from the seed: training and test file share the truth and differ in the rows. Weights
 * are looked up by hash instead of stored, so memory does not grow with the number of keys.
 */
import { createWriteStream } from 'node:fs';
import { PassThrough } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { causedBy, KintsugiError } from '../../common/errors.js';
import { CATEGORY_FIELDS, DENSE_FIELDS } from '../../data/criteo.js';
import { packing } from '../../data/packing.js';
import { auc } from './metrics.js';

export interface DemoDataOptions {
  /** Files to write; those that end in .gz are compressed. `test` may be left out. */
  train: string;
  test?: string;
  rows: number;
  /** Default: a tenth of `rows` */
  testRows?: number;
  /** Distinct keys that can occur over all 26 columns; how many do depends on the rows */
  keys: number;
  seed: number;
}

export interface DemoDataResult {
  rows: number;
  testRows: number;
  /** Share of ones in the training file */
  positives: number;
  /**
   * AUC of the true probabilities on the test file: no model can do better but by luck. NaN without a test
   * file.
   */
  bestAuc: number;
}

const TAB = 9;
const NEWLINE = 10;
const WRITE_BYTES = 256 * 1024;
/** Longer than any row: 26 x 9 + 13 x 12 + 2 */
const ROW_BYTES = 512;
const INTEGER_CHOICES = 1024;
const LATENT = 4;
const BIAS = -1.1;
/** Columns whose values have a weight of their own, from the largest to a small one. */
const WEIGHTED = [0, 2, 5, 8, 10, 12, 15, 17, 19, 21] as const;
const WEIGHT_STD = 0.45;
/** Pairs of columns that interact. The smaller they are, the sooner it can be learned. */
const PAIRS = [
  [11, 13],
  [14, 18],
  [9, 20],
] as const;
const PAIR_STD = 0.7;
/** These columns are empty in one of 16 rows. */
const FIRST_OPTIONAL_COLUMN = 20;

/** A bijection of u32 that leaves no pattern (the finalizer of MurmurHash3). */
function mix(value: number): number {
  let x = value | 0;
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

/** Generator sfc32 (Doty-Humphrey): u32 numbers from a seed and a stream number. */
function randomSource(seed: number, stream: number): () => number {
  let a = mix(seed);
  let b = mix(Math.floor(seed / 2 ** 32) ^ 0x5bd1e995);
  let c = mix(stream + 0x9e3779b9);
  let counter = 1;
  const next = () => {
    const sum = (a + b + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = ((c << 21) | (c >>> 11)) + sum;
    return sum >>> 0;
  };
  for (let i = 0; i < 16; i++) next();
  return next;
}

interface IntegerColumn {
  /** Bytes of the value with its tab before it */
  texts: Uint8Array[];
  effects: Float32Array;
}

/** The model that labels come from: training and test file share it. */
class HiddenModel {
  readonly integers: IntegerColumn[];
  /** log(values + 1) of every column */
  readonly logSizes: number[];
  readonly salts: number[];
  private readonly normals: Float32Array;

  constructor(seed: number, keys: number) {
    const random = randomSource(seed, 0);
    const unit = () => (random() + 0.5) / 2 ** 32;
    const normal = () => Math.sqrt(-2 * Math.log(unit())) * Math.cos(2 * Math.PI * unit());
    this.normals = Float32Array.from({ length: 65536 }, normal);
    this.integers = Array.from({ length: DENSE_FIELDS }, (_, field) => integerColumn(field, normal, unit));
    // Every second column has half the values: from a third of all keys down to a handful.
    const shares = Array.from({ length: CATEGORY_FIELDS }, (_, column) => 2 ** (-column / 2));
    const total = shares.reduce((sum, share) => sum + share, 0);
    this.logSizes = shares.map((share) => Math.log(Math.max(3, Math.round((keys * share) / total)) + 1));
    this.salts = shares.map(() => random());
  }

  /** Standard normal number that belongs to a value of a column; `part` tells several of them apart. */
  normalOf(value: number, part: number): number {
    return this.normals[mix(value + Math.imul(part, 0x9e3779b1)) & 0xffff]!;
  }

  /** Log odds of label 1. `values[c]` is the u32 of column c, or -1 if it is empty. */
  logit(values: Float64Array, integerEffect: number): number {
    let logit = BIAS + integerEffect;
    for (const column of WEIGHTED) {
      const value = values[column]!;
      if (value >= 0) logit += WEIGHT_STD * this.normalOf(value, column + 1);
    }
    for (const [left, right] of PAIRS) {
      if (values[left]! < 0 || values[right]! < 0) continue;
      let dot = 0;
      for (let i = 0; i < LATENT; i++) {
        dot += this.normalOf(values[left]!, 100 + i) * this.normalOf(values[right]!, 200 + i);
      }
      logit += (PAIR_STD / Math.sqrt(LATENT)) * dot;
    }
    return logit;
  }
}

/** Heavy-tailed counts, some empty; field I2 also has negative values, as the real data has. */
function integerColumn(field: number, normal: () => number, unit: () => number): IntegerColumn {
  const slope = 0.12 * normal();
  const center = 1 + (field % 4);
  const texts: Uint8Array[] = [];
  const effects = new Float32Array(INTEGER_CHOICES);
  for (let choice = 0; choice < INTEGER_CHOICES; choice++) {
    const count = Math.floor(Math.exp(center + 1.2 * normal()));
    const value = field === 1 && unit() < 0.1 ? -1 - (count % 3) : count;
    const empty = unit() < 0.06;
    texts.push(Buffer.from(empty ? '\t' : `\t${value}`, 'latin1'));
    effects[choice] = slope * (Math.log1p(empty ? 0 : Math.max(0, value)) - center);
  }
  return { texts, effects };
}

const HEX_DIGITS = Buffer.from('0123456789abcdef', 'latin1');

/** Writes rows of one file into byte buffers. */
class RowWriter {
  /** Kept only if asked for: a large training file should not need memory per row. */
  readonly labels: Float32Array;
  readonly probabilities: Float32Array;
  positives = 0;
  private readonly values = new Float64Array(CATEGORY_FIELDS);
  private readonly choices = new Uint32Array(DENSE_FIELDS);
  private readonly random: () => number;
  private row = 0;

  constructor(
    private readonly truth: HiddenModel,
    private readonly rows: number,
    seed: number,
    stream: number,
    private readonly keep: boolean,
  ) {
    this.labels = new Float32Array(keep ? rows : 0);
    this.probabilities = new Float32Array(keep ? rows : 0);
    this.random = randomSource(seed, stream);
  }

  /** The rows as buffers of about WRITE_BYTES. */
  *buffers(): Generator<Buffer> {
    while (this.row < this.rows) {
      const buffer = Buffer.allocUnsafe(WRITE_BYTES);
      let at = 0;
      while (this.row < this.rows && at + ROW_BYTES <= WRITE_BYTES) at = this.write(buffer, at);
      yield buffer.subarray(0, at);
    }
  }

  private draw(): number {
    const { truth, random, values, choices } = this;
    let effect = 0;
    for (let field = 0; field < DENSE_FIELDS; field++) {
      const choice = random() % INTEGER_CHOICES;
      choices[field] = choice;
      effect += truth.integers[field]!.effects[choice]!;
    }
    for (let column = 0; column < CATEGORY_FIELDS; column++) {
      const bits = random();
      const rank = Math.floor(Math.exp((bits / 2 ** 32) * truth.logSizes[column]!)) - 1;
      const empty = column >= FIRST_OPTIONAL_COLUMN && random() % 16 === 0;
      values[column] = empty ? -1 : mix(rank + truth.salts[column]!);
    }
    return 1 / (1 + Math.exp(-truth.logit(values, effect)));
  }

  private write(buffer: Buffer, start: number): number {
    const probability = this.draw();
    const label = this.random() / 2 ** 32 < probability ? 1 : 0;
    if (this.keep) {
      this.probabilities[this.row] = probability;
      this.labels[this.row] = label;
    }
    this.positives += label;
    this.row += 1;
    let at = start;
    buffer[at++] = 48 + label;
    for (let field = 0; field < DENSE_FIELDS; field++) {
      const text = this.truth.integers[field]!.texts[this.choices[field]!]!;
      for (let i = 0; i < text.length; i++) buffer[at++] = text[i]!;
    }
    for (let column = 0; column < CATEGORY_FIELDS; column++) {
      buffer[at++] = TAB;
      const value = this.values[column]!;
      if (value < 0) continue;
      for (let shift = 28; shift >= 0; shift -= 4) buffer[at++] = HEX_DIGITS[(value >>> shift) & 15]!;
    }
    buffer[at++] = NEWLINE;
    return at;
  }
}

async function writeFile(path: string, writer: RowWriter): Promise<void> {
  const compress = packing(path).packing?.pack?.() ?? new PassThrough();
  try {
    await pipeline(writer.buffers(), compress, createWriteStream(path));
  } catch (error) {
    throw causedBy(error, 'BAD_DATA', `${path} cannot be written`);
  }
}

/**
 * Writes the files. The same options give the same bytes. Throws BAD_ARGUMENT, or BAD_DATA if a file cannot
 * be written.
 */
export async function writeDemoData(options: DemoDataOptions): Promise<DemoDataResult> {
  const { train, test, rows, keys, seed } = options;
  const testRows = test === undefined ? 0 : (options.testRows ?? Math.max(1, Math.floor(rows / 10)));
  for (const [name, value, least] of [
    ['rows', rows, 1],
    ['testRows', testRows, 0],
    ['keys', keys, CATEGORY_FIELDS],
    ['seed', seed, 0],
  ] as const) {
    if (!Number.isSafeInteger(value) || value < least) {
      throw new KintsugiError(
        'BAD_ARGUMENT',
        `${name} must be an integer of at least ${least}, not ${value}`,
      );
    }
  }
  const truth = new HiddenModel(seed, keys);
  const training = new RowWriter(truth, rows, seed, 1, false);
  await writeFile(train, training);
  const testing = new RowWriter(truth, testRows, seed, 2, true);
  if (test !== undefined) await writeFile(test, testing);
  return {
    rows,
    testRows,
    positives: training.positives / rows,
    bestAuc: auc(testing.labels, testing.probabilities),
  };
}
