/**
 * A parameter server in memory, for tests of the trainer: the rules of the real one (missing rows have an
 * initial value that depends on seed, table and key only; rows materialise at their first push), in the
 * plainest JavaScript. Also stand-ins for the native row helpers.
 */
import type { RowHelpers } from '../../../src/training/loop/exchange.js';
import type {
  ModelTable,
  ParameterStore,
  PushUpdate,
  RowsToPull,
} from '../../../src/training/models/trainer.js';

interface Table {
  spec: ModelTable;
  index: Map<bigint, number>;
  /** dim values, dim x 2 floats of state, one step count, per row */
  slab: Float32Array;
}

function mix(a: number, b: number): number {
  let x = Math.imul(a ^ (b + 0x9e3779b9 + (a << 6)), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

function hashName(text: string): number {
  return [...text].reduce((hash, char) => mix(hash, char.charCodeAt(0)), 17);
}

function initialRow(spec: ModelTable, key: bigint, target: Float32Array, at: number): void {
  const { initializer, dim } = spec;
  if (initializer.kind === 'zeros') {
    target.fill(0, at, at + dim);
    return;
  }
  if (initializer.kind === 'constant') {
    target.fill(initializer.value, at, at + dim);
    return;
  }
  let state = mix(mix(hashName(spec.name), spec.seed), mix(Number(key >> 32n), Number(key & 0xffffffffn)));
  for (let i = 0; i < dim; i++) {
    state = mix(state, i + 1);
    const unit = state / 2 ** 32;
    if (initializer.kind === 'uniform') {
      target[at + i] = initializer.low + (initializer.high - initializer.low) * unit;
    } else {
      const other = mix(state, 77) / 2 ** 32;
      const normal = Math.sqrt(-2 * Math.log(unit + 1e-12)) * Math.cos(2 * Math.PI * other);
      target[at + i] = initializer.mean + initializer.std * normal;
    }
  }
}

function optimize({ spec, slab }: Table, at: number, gradients: Float32Array, from: number): void {
  const { optimizer, dim } = spec;
  const step = at + 3 * dim;
  slab[step]! += 1;
  for (let i = 0; i < dim; i++) {
    const g = gradients[from + i]!;
    const [value, first, second] = [at + i, at + dim + i, at + 2 * dim + i];
    if (optimizer.kind === 'sgd') slab[value]! -= optimizer.lr * g;
    else if (optimizer.kind === 'adagrad') {
      slab[first]! += g * g;
      const sum = slab[first]! + optimizer.initialAccumulator;
      slab[value]! -= (optimizer.lr * g) / (Math.sqrt(sum) + optimizer.eps);
    } else if (optimizer.kind === 'adam') {
      const { beta1, beta2, lr, eps } = optimizer;
      slab[first] = beta1 * slab[first]! + (1 - beta1) * g;
      slab[second] = beta2 * slab[second]! + (1 - beta2) * g * g;
      const m = slab[first]! / (1 - beta1 ** slab[step]!);
      const v = slab[second]! / (1 - beta2 ** slab[step]!);
      slab[value]! -= (lr * m) / (Math.sqrt(v) + eps);
    } else throw new Error(`the fake store has no ${optimizer.kind}`);
  }
}

export class FakeStore implements ParameterStore {
  readonly tables = new Map<string, Table>();
  readonly log: string[] = [];
  /** Counts of the last push that brought some, by table. */
  readonly counts = new Map<string, Uint32Array>();
  private readonly late: PushUpdate[][] = [];

  /** A push takes effect when `delay` more have arrived, as if other workers were ahead. */
  constructor(private readonly delay = 0) {}

  async createTables(specs: ModelTable[]): Promise<void> {
    for (const spec of specs) {
      const known = this.tables.get(spec.name);
      if (known && JSON.stringify(known.spec) !== JSON.stringify(spec))
        throw new Error(`differs: ${spec.name}`);
      if (!known) this.tables.set(spec.name, { spec, index: new Map(), slab: new Float32Array(0) });
    }
  }

  table(name: string): Table {
    const table = this.tables.get(name);
    if (!table) throw new Error(`no table ${name}`);
    return table;
  }

  async pull(requests: RowsToPull[]): Promise<Float32Array[]> {
    this.log.push('pull');
    return requests.map(({ table: name, keys }) => {
      const { spec, index, slab } = this.table(name);
      const { dim } = spec;
      const values = new Float32Array(keys.length * dim);
      for (let i = 0; i < keys.length; i++) {
        const at = index.get(keys[i]!);
        if (at === undefined) initialRow(spec, keys[i]!, values, i * dim);
        else values.set(slab.subarray(at, at + dim), i * dim);
      }
      return values;
    });
  }

  async push(updates: PushUpdate[]): Promise<void> {
    this.log.push('push');
    for (const { table, counts } of updates) if (counts) this.counts.set(table, counts);
    this.late.push(updates);
    while (this.late.length > this.delay) for (const update of this.late.shift()!) this.apply(update);
  }

  /** Applies what is still late. */
  settle(): void {
    for (const updates of this.late.splice(0)) for (const update of updates) this.apply(update);
  }

  private apply({ table: name, keys, gradients }: PushUpdate): void {
    const table = this.table(name);
    const { dim } = table.spec;
    if (gradients.length !== keys.length * dim) throw new Error(`${name}: ${gradients.length} gradients`);
    if (new Set(keys).size !== keys.length) throw new Error(`${name}: duplicate keys`);
    const width = 3 * dim + 1;
    for (let i = 0; i < keys.length; i++) {
      let at = table.index.get(keys[i]!);
      if (at === undefined) {
        at = table.index.size * width;
        if (table.slab.length < at + width) {
          const larger = new Float32Array(Math.max(64 * width, table.slab.length * 2));
          larger.set(table.slab);
          table.slab = larger;
        }
        table.index.set(keys[i]!, at);
        initialRow(table.spec, keys[i]!, table.slab, at);
      }
      optimize(table, at, gradients, i * dim);
    }
  }
}

export const plainHelpers: RowHelpers = {
  unique(keys) {
    const places = new Map<bigint, number>();
    const inverse = new Uint32Array(keys.length);
    for (let i = 0; i < keys.length; i++) {
      let place = places.get(keys[i]!);
      if (place === undefined) {
        place = places.size;
        places.set(keys[i]!, place);
      }
      inverse[i] = place;
    }
    return { keys: BigUint64Array.from(places.keys()), inverse };
  },
  expandRows(target, width, rows, inverse) {
    for (let i = 0; i < inverse.length; i++) {
      for (let j = 0; j < width; j++) target[i * width + j] = rows[inverse[i]! * width + j]!;
    }
  },
  sumRows(target, width, rows, inverse) {
    for (let i = 0; i < inverse.length; i++) {
      for (let j = 0; j < width; j++) target[inverse[i]! * width + j]! += rows[i * width + j]!;
    }
  },
};
