/**
 * Every optimizer: its table here and the engine's agree, its arithmetic is the formula of the literature,
 * and its bits do not change. A kind that has no entry below is a type error.
 */
import { createHash } from 'node:crypto';
import { afterAll, describe, expect, it } from 'vitest';
import { loadNative } from '../../src/engine/native.js';
import {
  OPTIMIZER_KINDS,
  OPTIMIZERS,
  type OptimizerKind,
  type OptimizerSpec,
  optimizerOf,
  optimizerParameters,
  optimizerProblem,
} from '../../src/engine/optimizers.js';
import {
  MOST_STEPS,
  SCHEDULE_KINDS,
  SCHEDULES,
  type ScheduleKind,
  type ScheduleParameter,
  scheduleParameters,
} from '../../src/engine/schedules.js';
import { rowParts } from '../../src/stores/checkpoint/layout.js';

const native = loadNative();
afterAll(() => void native.forceIsa('auto'));

/** A row as numbers in double precision: its values, and its state by the names of the table. */
type Row = { values: number[] } & Record<string, number[]>;
type SpecOf<Kind> = Extract<OptimizerSpec, { kind: Kind }>;

interface Reference<Kind extends OptimizerKind> {
  spec: SpecOf<Kind>;
  /** One step as the literature has it. */
  step(optimizer: SpecOf<Kind>, row: Row, gradient: number[]): void;
  /** Parts of the state of a row of 4 values, and their floats. */
  state: string[];
  /** SHA-256 of the rows after `steps()`, the first digits: the order of operations is part of the format. */
  bits: string;
}

const EXPECTED: { [Kind in OptimizerKind]: Reference<Kind> } = {
  sgd: {
    spec: { kind: 'sgd', lr: 0.1 },
    step: ({ lr }, { values }, g) => {
      for (const i of g.keys()) values[i]! -= lr * g[i]!;
    },
    state: [],
    bits: '5f70083064cda7a0',
  },
  momentum: {
    spec: { kind: 'momentum', lr: 0.1, momentum: 0.9 },
    step: ({ lr, momentum }, { values, momentum: v }, g) => {
      for (const i of g.keys()) {
        v![i] = momentum * v![i]! + g[i]!;
        values[i]! -= lr * v![i]!;
      }
    },
    state: ['momentum 4'],
    bits: '491ce4be10e8a6fb',
  },
  adagrad: {
    spec: { kind: 'adagrad', lr: 0.1, eps: 1e-6, initialAccumulator: 0.5 },
    step: ({ lr, eps }, { values, sum }, g) => {
      for (const i of g.keys()) {
        sum![i]! += g[i]! ** 2;
        values[i]! -= (lr * g[i]!) / (Math.sqrt(sum![i]!) + eps);
      }
    },
    state: ['sum 4'],
    bits: '0899a839841e6aab',
  },
  rowwise_adagrad: {
    spec: { kind: 'rowwise_adagrad', lr: 0.1, eps: 1e-6, initialAccumulator: 0.5 },
    step: ({ lr, eps }, { values, sum }, g) => {
      sum![0]! += g.reduce((total, x) => total + x * x, 0) / g.length;
      for (const i of g.keys()) values[i]! -= (lr * g[i]!) / (Math.sqrt(sum![0]!) + eps);
    },
    state: ['sum 1'],
    bits: '377cc6004d80c74f',
  },
  adam: {
    spec: { kind: 'adam', lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8 },
    step: ({ lr, beta1, beta2, eps }, { values, exp_avg: m, exp_avg_sq: v, step }, g) => {
      const t = ++step![0]!;
      for (const i of g.keys()) {
        m![i] = beta1 * m![i]! + (1 - beta1) * g[i]!;
        v![i] = beta2 * v![i]! + (1 - beta2) * g[i]! ** 2;
        const [first, second] = [m![i]! / (1 - beta1 ** t), v![i]! / (1 - beta2 ** t)];
        values[i]! -= (lr * first) / (Math.sqrt(second) + eps);
      }
    },
    state: ['exp_avg 4', 'exp_avg_sq 4', 'step 1'],
    bits: 'b0a36f261ecce5a9',
  },
  // Loshchilov and Hutter, Decoupled Weight Decay Regularization, as torch.optim.AdamW has it.
  adamw: {
    spec: { kind: 'adamw', lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8, weightDecay: 0.3 },
    step: ({ lr, beta1, beta2, eps, weightDecay }, { values, exp_avg: m, exp_avg_sq: v, step }, g) => {
      const t = ++step![0]!;
      for (const i of g.keys()) {
        values[i]! *= 1 - lr * weightDecay;
        m![i] = beta1 * m![i]! + (1 - beta1) * g[i]!;
        v![i] = beta2 * v![i]! + (1 - beta2) * g[i]! ** 2;
        const [first, second] = [m![i]! / (1 - beta1 ** t), v![i]! / (1 - beta2 ** t)];
        values[i]! -= (lr * first) / (Math.sqrt(second) + eps);
      }
    },
    state: ['exp_avg 4', 'exp_avg_sq 4', 'step 1'],
    bits: 'fad659b53b3cb95e',
  },
  // McMahan et al., Ad Click Prediction: a View from the Trenches, algorithm 1. TensorFlow's Ftrl has this
  // form for learning_rate_power -0.5, with half of l2 as its l2_regularization_strength.
  ftrl: {
    spec: { kind: 'ftrl', lr: 0.1, beta: 1, l1: 0.4, l2: 0.2, initialAccumulator: 0.5 },
    step: ({ lr, beta, l1, l2 }, { values, linear: z, accumulator: n }, g) => {
      for (const i of g.keys()) {
        const sigma = (Math.sqrt(n![i]! + g[i]! ** 2) - Math.sqrt(n![i]!)) / lr;
        z![i]! += g[i]! - sigma * values[i]!;
        n![i]! += g[i]! ** 2;
        const rest = Math.sign(z![i]!) * l1 - z![i]!;
        values[i] = Math.abs(z![i]!) <= l1 ? 0 : rest / ((beta + Math.sqrt(n![i]!)) / lr + l2);
      }
    },
    state: ['linear 4', 'accumulator 4'],
    bits: '018af1fe00d3d4fe',
  },
};

const STEPS = 20;
const DIMS = [1, 3, 15, 16, 17, 64, 100];
const SETS = ['scalar', 'auto'];
const KEY = 5n;
const START = 0.25;

/** The gradients of one row, the same in every run and exact in single precision. */
function gradients(dim: number): number[][] {
  let state = dim;
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return ((state >>> 8) - 2 ** 23) / 2 ** 22;
  };
  return Array.from({ length: STEPS }, () => Array.from({ length: dim }, next));
}

function section(width: number, rows?: Float32Array): Uint8Array {
  const [keys, order] = [BigUint64Array.of(KEY), Uint32Array.of(0)];
  const part = { table: 1, width, keys, order, start: 0, end: 1, ...(rows && { rows }) };
  return native.encodeRequest(rows ? 0 : 1, [part]);
}

/** The whole row after all steps, by the engine. */
function steps(optimizer: OptimizerSpec, dim: number): Float32Array {
  const shard = native.createShard(native.createMemory(0), 0, 1, 0);
  shard.addTable({ id: 1, dim, optimizer, initializer: { kind: 'constant', value: START }, seed: 1 });
  for (const gradient of gradients(dim))
    expect(shard.push(section(dim, Float32Array.from(gradient)))).toBe(0);
  const rows = shard.pull(section(native.rowWidth(dim, optimizer)));
  shard.close();
  const bytes = Uint8Array.from(rows as Uint8Array);
  return new Float32Array(bytes.buffer);
}

const PAGE = [
  '# Optimizers',
  '',
  'This page is written from the table: `npx vitest run test/engine/optimizers.test.ts -u` writes it again.',
  '',
  'A table has one optimizer. `w` are the values of a row and `g` is its gradient, summed over a push. State',
  'is part of the row: it is coded, recovered and saved together with the values. Saved files name it as',
  '`torch.optim` does, those of `ftrl` as TensorFlow does. `lr` has no usual value; `optimizerOf(kind, lr)`',
  'fills in the others.',
  '',
  '| kind | step | parameters | state, floats per row |',
  '| --- | --- | --- | --- |',
  ...OPTIMIZER_KINDS.map(documented),
  '',
  'Parameters are used in single precision; the factors of Adam and of schedules are computed in double',
  'precision first. A parameter that single precision rounds to 0, such as `lr` 1e-60, is refused: 0 is',
  'written 0. The order of operations is the same on every machine, so the same pushes give the same bits.',
  '',
  '- `adamw` is `torch.optim.AdamW`. A row decays when it is pushed, by its own steps, as the moving',
  '  averages of both kinds do (`torch.optim.SparseAdam`): rows that no batch names stay as they are.',
  '- `ftrl` is algorithm 1 of McMahan et al., Ad Click Prediction: a View from the Trenches (2013),',
  "  with `lr` as its alpha. It is TensorFlow's Ftrl with `learning_rate_power` -0.5, where `l2` is",
  '  twice `l2_regularization_strength`, and where `beta` and `initialAccumulator` are usually 0 and',
  '  0.1. Its values are a function of its state, so tables for it begin with `zeros`: others count',
  '  until the first gradients only.',
  '',
  '## The learning rate of a push',
  '',
  'A push may bring its own learning rate for each table: `lr` of its request. It takes the place of that',
  'of the table in this push, for programs with a schedule of their own.',
  '',
  '```ts',
  "await client.push([{ table: 'items', keys, gradients, lr: 0.01 }]);",
  '```',
  '',
  '- It is a number of 0 or more, rounded to single precision. With 0 the values stay, and the state of',
  '  the optimizer goes on.',
  '- The schedule of the table multiplies it, and `adamw` decays by it.',
  '- `ftrl` takes none: its values are a function of z, n and lr, so another lr would scale what was',
  '  learnt before.',
  '',
  '## Clipping',
  '',
  'Every optimizer takes `clipNorm`. Where the Euclidean norm of the gradient of a row, summed over a',
  'push, is larger, the gradient is multiplied by `clipNorm / norm` (`tf.clip_by_norm`, row by row).',
  'The norm is that of single precision: a gradient whose squares have no sum there counts as zero.',
  '',
  '```ts',
  "const optimizer = { ...optimizerOf('adamw', 1e-3), clipNorm: 1 };",
  '```',
  '',
  'It may change while a job trains, and so may a schedule: [another learning',
  'rate](training.md#another-learning-rate).',
  '',
  '## Schedules',
  '',
  'Every optimizer but `ftrl` takes a `schedule`. It multiplies `lr` by a factor. `n` are the steps',
  'that the row has had after the warm-up; in the warm-up, of `warmup` steps (usually none), the',
  'factors are `1 / warmup`, `2 / warmup`, ..., `1`.',
  '',
  '| kind | factor | parameters |',
  '| --- | --- | --- |',
  ...SCHEDULE_KINDS.map(documentedSchedule),
  '',
  '```ts',
  "const schedule = { kind: 'cosine', warmup: 10, steps: 1000, floor: 0.1 } as const;",
  "const optimizer = { ...optimizerOf('adam', 1e-3), schedule };",
  '```',
  '',
  '`worker`, `local` and `import` take `--lr-schedule cosine,warmup=10,steps=1000,floor=0.1` and',
  '`--clip-norm 1` for the embedding.',
  '',
  '**A schedule counts the steps of each row, and not those of the job.** The count is one float of the',
  'state of the row: that of `adam` and `adamw`, and one more, `step`, of the others. So it is coded,',
  'recovered, moved and saved with the values, without a rule of its own, and what a row learns depends',
  'on its own pushes alone. A count of the whole table could not: every shard sees other pushes, and',
  'their number changes with the number of shards. It is also what sparse tables need. Most rows are',
  'seldom pushed. By a count of the job, the first gradient of a row that is new late would get the',
  'rate of the end. A warm-up of 10 is for the first 10 steps of every row, and `inverse_sqrt` slows',
  'frequent rows down and leaves rare ones alone. Lengths are therefore those of rows: what a row gets',
  'in training, not the number of batches. The count stays at 2^24 when it is there.',
  '',
  '`ftrl` takes none: its values are a function of its state and `lr`, so another `lr` would scale what',
  'was learnt before.',
  '',
];

function documentedSchedule(kind: ScheduleKind): string {
  const parameters = Object.entries<ScheduleParameter>(SCHEDULES[kind].parameters);
  const list = parameters.map(([name, { low, high, integer, usual }]) => {
    const what = `${integer ? 'integer ' : ''}${low} to ${high === MOST_STEPS ? '2^24' : high}`;
    return `\`${name}\` (${what}${usual === undefined ? '' : `, usually ${usual}`})`;
  });
  return `| \`${kind}\` | \`${SCHEDULES[kind].help}\` | ${list.join(', ')} |`;
}

function documented(kind: OptimizerKind): string {
  const ranges = (range: { low: number; high: number }) =>
    range.low > 0 ? 'x > 0' : range.low < 0 ? 'any' : range.high === 1 ? '0 <= x < 1' : 'x >= 0';
  const { help, lr, parameters, state } = OPTIMIZERS[kind];
  const others = Object.entries<{ low: number; high: number; usual: number }>(parameters);
  const names = others.map(([name, it]) => `\`${name}\` (${ranges(it)}, usually ${it.usual})`);
  const parts = state.map(({ name, shape }) => `\`${name}\`, ${shape === 'vector' ? 'dim' : 1}`);
  const cells = [`\`${kind}\``, `\`${help}\``, [`\`lr\` (${ranges(lr)})`, ...names].join(', ')];
  return `| ${[...cells, parts.join('; ') || 'none'].join(' | ')} |`;
}

it('docs/optimizers.md has this table', async () => {
  await expect(PAGE.join('\n')).toMatchFileSnapshot('../../docs/optimizers.md');
});

it('the engine has the same optimizers with the same parameters', () => {
  const here = OPTIMIZER_KINDS.map((kind) => ({
    kind,
    parameters: optimizerParameters(kind).sort(),
    fixedRate: 'fixedRate' in OPTIMIZERS[kind],
  }));
  const there = native.optimizers().map((it) => ({ ...it, parameters: it.parameters.sort() }));
  expect(there).toEqual(here);
});

it('the engine has the same schedules with the same parameters', () => {
  const here = SCHEDULE_KINDS.map((kind) => ({ kind, parameters: scheduleParameters(kind).sort() }));
  const there = native.schedules().map((it) => ({ kind: it.kind, parameters: it.parameters.sort() }));
  expect(there).toEqual(here);
});

describe.each(Object.keys(EXPECTED) as OptimizerKind[])('%s', (kind) => {
  const { spec, step, state, bits } = EXPECTED[kind] as Reference<OptimizerKind>;

  it('has rows as wide as the engine says, of parts with the names of torch', () => {
    for (const dim of DIMS) {
      const width = rowParts(dim, spec).reduce((floats, part) => floats + part.floats, 0);
      expect(native.rowWidth(dim, spec)).toBe(width);
    }
    const parts = rowParts(4, spec).map((part) => `${part.name} ${part.floats}`);
    expect(parts).toEqual(['values 4', ...state]);
  });

  it('needs every parameter, and takes the usual ones', () => {
    expect(native.rowWidth(1, optimizerOf(kind, 0.1))).toBeGreaterThan(0);
    for (const name of optimizerParameters(kind)) {
      const without = { ...spec, [name]: undefined } as unknown as OptimizerSpec;
      expect(() => native.rowWidth(1, without), name).toThrow(
        expect.objectContaining({ code: 'BAD_ARGUMENT' }),
      );
    }
  });

  it('takes every parameter that is valid, up to the limits, and no table has others', () => {
    const { lr, parameters } = OPTIMIZERS[kind];
    for (const [name, { low, high }] of Object.entries<{ low: number; high: number }>({
      lr,
      ...parameters,
    })) {
      for (const value of [low, high, -1e39, 1e38, 1e39, Number.MAX_VALUE, -Number.MIN_VALUE, Number.NaN]) {
        const given = { ...spec, [name]: value };
        if (optimizerProblem(given) === undefined)
          expect(native.rowWidth(1, given), `${name} ${value}`).toBeGreaterThan(0);
        else expect(low <= value && value < high, `${name} ${value}`).toBe(false);
      }
      expect(optimizerProblem({ ...spec, [name]: 1e39 })).toContain(name);
    }
  });

  it.each(SETS)('follows its formula, values and state (%s)', (isa) => {
    native.forceIsa(isa);
    for (const dim of DIMS) {
      const start = (name: string) =>
        name === 'values' ? START : 'initialAccumulator' in spec && name !== 'linear' ? 0.5 : 0;
      const parts = rowParts(dim, spec);
      const row = Object.fromEntries(
        parts.map(({ name, floats }) => [name, new Array<number>(floats).fill(start(name))]),
      ) as Row;
      for (const gradient of gradients(dim)) step(spec, row, gradient);
      const got = steps(spec, dim);
      for (const { name, offset, floats } of parts) {
        const values = got.subarray(offset, offset + floats);
        for (const [i, x] of row[name]!.entries())
          expect(Math.abs(values[i]! - x), `${name}[${i}], dim ${dim}`).toBeLessThan(
            1e-4 * (1 + Math.abs(x)),
          );
      }
    }
  });

  it.each(SETS)('gives the bits that it always gave (%s)', (isa) => {
    native.forceIsa(isa);
    const hash = createHash('sha256');
    for (const dim of DIMS) hash.update(new Uint8Array(steps(spec, dim).buffer));
    expect(hash.digest('hex').slice(0, 16)).toBe(bits);
  });
});
