/**
 * Options of a table beside the rule of its optimizer: a largest norm of gradients, a schedule that counts
 * the steps of each row, and the learning rate that a push brings. All through the engine, against arithmetic
 * in double precision, and by their bits.
 */
import { createHash } from 'node:crypto';
import { afterAll, describe, expect, it } from 'vitest';
import { loadNative, PushStatus } from '../../src/engine/native.js';
import {
  OPTIMIZER_KINDS,
  type OptimizerKind,
  type OptimizerSpec,
  onlyKnownOptimizer,
  optimizerOf,
  optimizerProblem,
  pushRateProblem,
} from '../../src/engine/optimizers.js';
import {
  SCHEDULE_KINDS,
  type ScheduleKind,
  type ScheduleSpec,
  wholeSchedule,
} from '../../src/engine/schedules.js';
import type { Pool } from '../../src/protocol/map.js';
import { tableDifferences, tableProblem } from '../../src/protocol/table-rules.js';
import { initialState, rowParts } from '../../src/stores/checkpoint/layout.js';

const native = loadNative();
afterAll(() => void native.forceIsa('auto'));

const SETS = ['scalar', 'auto'];
const KEY = 5n;

/** One row of a shard of its own. */
class Row {
  private readonly shard = native.createShard(native.createMemory(0), 0, 1, 0);
  private readonly width: number;

  constructor(
    private readonly dim: number,
    optimizer: OptimizerSpec,
  ) {
    this.width = native.rowWidth(dim, optimizer);
    this.shard.addTable({ id: 1, dim, optimizer, initializer: { kind: 'zeros' }, seed: 1 });
  }

  private section(mode: 0 | 1, width: number, rows?: Float32Array, lr?: number): Uint8Array {
    const [keys, order] = [BigUint64Array.of(KEY), Uint32Array.of(0)];
    const part = {
      table: 1,
      width,
      keys,
      order,
      start: 0,
      end: 1,
      ...(rows && { rows }),
      ...(lr !== undefined && { lr }),
    };
    return native.encodeRequest(mode, [part]);
  }

  push(gradient: readonly number[], lr?: number): this {
    expect(this.status(gradient, lr)).toBe(PushStatus.APPLIED);
    return this;
  }

  status(gradient: readonly number[], lr?: number): number {
    return this.shard.push(this.section(0, this.dim, Float32Array.from(gradient), lr));
  }

  assign(row: Float32Array): this {
    expect(this.shard.push(this.section(1, this.width, row))).toBe(0);
    return this;
  }

  /** Values, then state. */
  pull(): Float32Array {
    const rows = this.shard.pull(this.section(1, this.width));
    return new Float32Array(Uint8Array.from(rows as Uint8Array).slice(0, this.width * 4).buffer);
  }
}

/** Factors of `steps` steps of a row, by the rate of SGD. */
function factors(schedule: ScheduleSpec, steps: number): number[] {
  const row = new Row(1, { kind: 'sgd', lr: 1, schedule: wholeSchedule(schedule) });
  return Array.from({ length: steps }, () => {
    const factor = -row.push([1]).pull()[0]!;
    row.assign(Float32Array.of(0, row.pull()[1]!));
    return factor;
  });
}

function near(found: readonly number[], expected: readonly number[]): void {
  expect(found.length).toBe(expected.length);
  for (const [i, x] of expected.entries())
    expect(Math.abs(found[i]! - x), `step ${i}: ${found[i]}, not ${x}`).toBeLessThanOrEqual(
      1e-7 * (1 + Math.abs(x)),
    );
}

const steps = Array.from({ length: 40 }, (_, i) => i);

type Case<Kind> = [Extract<ScheduleSpec, { kind: Kind }>, (n: number) => number];

/** Each as torch.optim.lr_scheduler and transformers have it; `n`: steps before, without the warm-up. */
const FACTORS: { [Kind in ScheduleKind]: Case<Kind>[] } = {
  constant: [[{ kind: 'constant' }, () => 1]],
  cosine: [
    [{ kind: 'cosine', steps: 30 }, (n) => (1 + Math.cos((Math.PI * Math.min(n, 30)) / 30)) / 2],
    [
      { kind: 'cosine', steps: 7, floor: 0.25 },
      (n) => 0.25 + (0.75 * (1 + Math.cos((Math.PI * Math.min(n, 7)) / 7))) / 2,
    ],
  ],
  step: [[{ kind: 'step', every: 4, factor: 0.7 }, (n) => 0.7 ** Math.floor(n / 4)]],
  inverse_sqrt: [[{ kind: 'inverse_sqrt', scale: 9 }, (n) => 1 / Math.sqrt((n + 9) / 9)]],
};

describe.each(SETS)('schedules (%s)', (isa) => {
  it.each(Object.values(FACTORS).flat())(
    '%o has the factors of its formula, with and without warm-up',
    (schedule, factor) => {
      native.forceIsa(isa);
      near(factors(schedule, 40), steps.map(factor));
      const warm = (t: number) => (t < 5 ? (t + 1) / 5 : factor(t - 5));
      near(factors({ ...schedule, warmup: 5 }, 40), steps.map(warm));
    },
  );

  it('a count that came in with a whole row goes on from there, whatever it is', () => {
    native.forceIsa(isa);
    const schedule = wholeSchedule({ kind: 'step', every: 10, factor: 0.5, warmup: 4 });
    const stepFrom = (count: number) => {
      const row = new Row(1, { kind: 'sgd', lr: 1, schedule }).assign(Float32Array.of(0, count));
      return [...row.push([-1]).pull()];
    };
    expect(stepFrom(1)).toEqual([0.5, 2]);
    expect(stepFrom(14)).toEqual([0.5, 15]);
    expect(stepFrom(2 ** 24)).toEqual([0, 2 ** 24]);
    expect(stepFrom(2 ** 40)[0]).toBe(0);
    expect(stepFrom(-7)[0]).toBe(0.25);
    expect(stepFrom(Number.NaN)[0]).toBe(0.25);
    expect(stepFrom(Number.POSITIVE_INFINITY)[0]).toBe(0);
  });

  it('adam has one count, others get one behind their state', () => {
    native.forceIsa(isa);
    const schedule = wholeSchedule({ kind: 'constant', warmup: 3 });
    for (const kind of OPTIMIZER_KINDS.filter((each) => each !== 'ftrl')) {
      const plain = optimizerOf(kind, 0.1);
      const spec = { ...plain, schedule };
      const names = rowParts(3, spec).map(({ name }) => name);
      expect(names.filter((name) => name === 'step')).toHaveLength(1);
      expect(names.at(-1)).toBe('step');
      const width = rowParts(3, spec).reduce((floats, part) => floats + part.floats, 0);
      expect(native.rowWidth(3, spec)).toBe(width);
      const row = new Row(3, spec);
      expect([...row.pull().subarray(3)]).toEqual([...initialState(3, spec)]);
      for (let i = 0; i < 4; i++) row.push([1, 2, 3]);
      expect(row.pull().at(-1)).toBe(4);
      // The row that had these rates one after the other.
      const by = [1 / 3, 2 / 3, 1, 1].reduce((before, factor) => {
        const one = new Row(3, { ...plain, lr: 0.1 * factor });
        return one
          .assign(before.subarray(0, native.rowWidth(3, plain)))
          .push([1, 2, 3])
          .pull();
      }, new Row(3, plain).pull());
      expect([...row.pull().subarray(0, by.length)]).toEqual([...by]);
    }
  });
});

describe.each(SETS)('clipping (%s)', (isa) => {
  it('scales a gradient with a larger norm, and no other', () => {
    native.forceIsa(isa);
    const clipped = (gradient: number[], clipNorm: number) => [
      ...new Row(gradient.length, { kind: 'sgd', lr: -1, clipNorm }).push(gradient).pull(),
    ];
    near(clipped([3, 4], 2), [1.2, 1.6]);
    expect(clipped([3, 4], 5)).toEqual([3, 4]);
    expect(clipped([3, 4], 6)).toEqual([3, 4]);
    expect(clipped([0, 0], 1)).toEqual([0, 0]);
    expect(clipped([1e30, -1], 1)).toEqual([0, 0]);
    expect(clipped([Number.NaN, 1], 1)).toEqual([Number.NaN, 1]);
    for (const dim of [1, 15, 16, 17, 100]) {
      const gradient = Array.from({ length: dim }, (_, i) => Math.fround(Math.sin(i + 1)));
      const norm = Math.sqrt(gradient.reduce((sum, x) => sum + x * x, 0));
      near(
        clipped(gradient, norm / 3),
        gradient.map((x) => x / 3),
      );
    }
  });

  it.each(OPTIMIZER_KINDS)('%s takes the gradient that is left of it', (kind) => {
    native.forceIsa(isa);
    const plain = optimizerOf(kind, 0.1);
    const [one, other] = [new Row(2, { ...plain, clipNorm: 2.5 }), new Row(2, plain)];
    for (let i = 0; i < 5; i++) {
      one.push([3, 4]);
      other.push([1.5, 2]);
    }
    expect([...one.pull()]).toEqual([...other.pull()]);
  });
});

describe.each(SETS)('the learning rate of a push (%s)', (isa) => {
  const kinds = OPTIMIZER_KINDS.filter((kind) => kind !== 'ftrl');

  it.each(kinds)('%s steps as in a table that has it, and the next push as ever', (kind) => {
    native.forceIsa(isa);
    const schedule = wholeSchedule({ kind: 'step', every: 2, factor: 0.5, warmup: 1 });
    for (const extras of [{}, { clipNorm: 1 }, { schedule }, { clipNorm: 1, schedule }]) {
      const optimizer = (lr: number) => ({ ...optimizerOf(kind, Math.fround(lr)), ...extras });
      for (const dim of [1, 7, 33]) {
        const row = new Row(dim, optimizer(0.1));
        let expected = row.pull();
        for (const [t, lr] of [0.03, undefined, 0, 0.7, undefined].entries()) {
          const gradient = Array.from({ length: dim }, (_, i) => ((t * 7 + i * 13) % 29) - 14);
          expected = new Row(dim, optimizer(lr ?? 0.1)).assign(expected).push(gradient).pull();
          expect([...row.push(gradient, lr).pull()], `step ${t}`).toEqual([...expected]);
        }
      }
    }
  });

  it('is nothing for FTRL, and no row changes', () => {
    native.forceIsa(isa);
    const row = new Row(2, optimizerOf('ftrl', 0.1)).push([1, 2]);
    const before = [...row.pull()];
    expect(row.status([1, 2], 0.1)).toBe(PushStatus.BAD_ARGUMENT);
    expect([...row.pull()]).toEqual(before);
  });
});

/**
 * SHA-256 of rows after 40 steps, for the last case of each kind. The order of operations is part of the
 * format.
 */
const BITS: Record<ScheduleKind, string> = {
  constant: '5e5d1e1fc7896020',
  cosine: '0079781ed193d44d',
  step: 'bbee2837560e4c03',
  inverse_sqrt: '5ede7d4df21f59d7',
};
/** Optimizers whose bits are hashed. The list stays: a new one would change every number above. */
const HASHED: readonly OptimizerKind[] = ['sgd', 'momentum', 'adagrad', 'rowwise_adagrad', 'adam', 'adamw'];

it.each(SETS)('schedules and clipping give the bits that they always gave (%s)', (isa) => {
  native.forceIsa(isa);
  const found = Object.fromEntries(
    Object.entries(FACTORS).map(([name, cases]) => {
      const [schedule] = cases.at(-1)!;
      const hash = createHash('sha256');
      for (const kind of HASHED) {
        for (const dim of [1, 7, 16, 33]) {
          const whole = wholeSchedule({ ...schedule, warmup: 3 });
          const row = new Row(dim, { ...optimizerOf(kind, 0.1), clipNorm: 1, schedule: whole });
          for (const t of steps)
            row.push(Array.from({ length: dim }, (_, i) => ((t * 7 + i * 13) % 29) - 14));
          hash.update(new Uint8Array(row.pull().buffer));
        }
      }
      return [name, hash.digest('hex').slice(0, 16)];
    }),
  );
  expect(found).toEqual(BITS);
});

describe('specifications', () => {
  const problem = (extras: object, kind: OptimizerSpec['kind'] = 'sgd') =>
    optimizerProblem({ ...optimizerOf(kind, 0.1), ...extras } as OptimizerSpec);

  it('says what is wrong with a norm or a schedule', () => {
    expect(problem({ clipNorm: 0.5, schedule: { kind: 'cosine', steps: 10 } })).toBeUndefined();
    expect(problem({ clipNorm: 0 })).toContain('clipNorm must be a number in [');
    expect(problem({ clipNorm: '1' })).toContain('clipNorm');
    expect(problem({ schedule: { kind: 'no_such' } })).toBe(
      `optimizer sgd: unknown schedule; one of ${SCHEDULE_KINDS.join(', ')}`,
    );
    expect(problem({ schedule: null })).toContain('schedule must be an object');
    expect(problem({ schedule: { kind: 'cosine' } })).toBe(
      'optimizer sgd: schedule cosine: steps must be an integer from 1 to 16777216',
    );
    expect(problem({ schedule: { kind: 'cosine', steps: 1.5 } })).toContain('steps');
    expect(problem({ schedule: { kind: 'cosine', steps: 5, floor: 2 } })).toContain('floor must be a number');
    expect(problem({ schedule: { kind: 'step', every: 5, factor: 0.5, gamma: 1 } })).toContain('"gamma"');
    expect(problem({ schedule: { kind: 'constant', warmup: -1 } })).toContain('warmup');
    expect(problem({ schedule: { kind: 'constant' } }, 'ftrl')).toContain('ftrl takes no schedule');
    expect(problem({ clipNorm: 1 }, 'ftrl')).toBeUndefined();
  });

  it('says what is wrong with the learning rate of a push', () => {
    const adam = optimizerOf('adam', 0.1);
    for (const lr of [0, 1e-45, 0.1, 3e38]) expect(pushRateProblem(adam, lr)).toBeUndefined();
    expect(pushRateProblem(adam, 1e-50)).toContain('that single precision does not round to it');
    for (const lr of [-1, Number.NaN, Number.POSITIVE_INFINITY, 3.5e38, '1', null])
      expect(pushRateProblem(adam, lr)).toContain('the lr of a push must be a number in [0, ');
    expect(pushRateProblem(optimizerOf('ftrl', 0.1), 0.1)).toContain('ftrl takes no lr');
  });

  it('tables are the same when they mean the same, and have nothing that was not asked for', () => {
    const table = (extras: object) => ({
      ...{ name: 't', pool: 'embedding', dim: 1, seed: 0, initializer: { kind: 'zeros' as const } },
      optimizer: onlyKnownOptimizer({ ...optimizerOf('adam', 0.1), ...extras } as OptimizerSpec),
    });
    const pools = [{ name: 'embedding' }] as Pool[];
    const schedule = { steps: 5, kind: 'cosine' };
    expect(tableProblem(table({ schedule }), pools)).toBeUndefined();
    const whole = { kind: 'cosine', floor: 0, warmup: 0, steps: 5 };
    const differences = (a: object, b: object) => tableDifferences(table(a), table(b));
    expect(differences({ schedule }, { schedule: whole })).toEqual([]);
    expect(differences({ schedule }, { schedule: { ...schedule, warmup: 1 } })).toHaveLength(1);
    expect(differences({}, { clipNorm: 1 })).toEqual(['optimizer.clipNorm none, not 1']);
    expect(table({ clipNorm: undefined, schedule: undefined }).optimizer).toStrictEqual(
      optimizerOf('adam', 0.1),
    );
  });
});
