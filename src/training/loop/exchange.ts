/**
 * The exchange of one batch with the parameter server: which rows it pulls, how they reach the model, and
 * which gradients go back. Only unique keys travel: a batch of 256 rows x 26 columns names popular rows
 * hundreds of times, and an optimizer must see the sum of a row's gradients once, not each of them.
 */
import { KintsugiError } from '../../common/errors.js';
import type { NativeAddon } from '../../engine/native.js';
import {
  type DenseLayout,
  denseLayout,
  densePull,
  densePush,
  denseTableSpec,
  denseValues,
} from '../models/dense.js';
import type {
  Batch,
  Model,
  ModelTable,
  ParameterStore,
  PushUpdate,
  RowsToPull,
  StepResult,
} from '../models/trainer.js';

/** The native helpers that handle rows; tests pass their own. */
export type RowHelpers = Pick<NativeAddon, 'unique' | 'expandRows' | 'sumRows'>;

/** One batch on its way: for every table the unique keys and, for each key of the batch, its index there. */
export interface Exchange {
  batch: Batch;
  uniques: { keys: BigUint64Array; inverse: Uint32Array }[];
}

export interface Pulled extends Exchange {
  /** Answers of the fused pull: the tables', then the tensors' */
  answers: Float32Array[];
}

function wrong(message: string): KintsugiError {
  return new KintsugiError('MODEL', `the model ${message}`);
}

function checkFloats(value: unknown, length: number, what: string): asserts value is Float32Array {
  if (!(value instanceof Float32Array)) throw wrong(`must return a Float32Array for ${what}`);
  if (value.length !== length)
    throw wrong(`returned ${value.length} values for ${what} instead of ${length}`);
}

/** How often a batch names each of its keys. */
function countsOf(keys: number, inverse: Uint32Array): Uint32Array {
  const counts = new Uint32Array(keys);
  for (const at of inverse) counts[at]!++;
  return counts;
}

/** Connects a model to a store. Expanded rows are written to the same memory for every batch. */
export class Exchanger {
  private readonly layouts: DenseLayout[];
  private readonly expanded: Float32Array[];

  constructor(
    private readonly model: Model,
    private readonly store: ParameterStore,
    private readonly helpers: RowHelpers,
    /** A key was seen as often as a batch names it, not once in each batch. */
    private readonly countDuplicates = false,
  ) {
    this.layouts = model.tensors.map((tensor) => denseLayout(tensor));
    this.expanded = model.tables.map(() => new Float32Array(0));
  }

  /** The tables that the model needs, embeddings first. */
  tableSpecs(seed: number): ModelTable[] {
    const { tables, tensors } = this.model;
    return [
      ...tables.map(({ name, dim, optimizer, initializer, policy }) => {
        const table = { name, dim, optimizer, initializer, seed };
        return policy ? { ...table, policy } : table;
      }),
      ...tensors.map((tensor, index) => denseTableSpec(tensor, this.layouts[index]!, seed)),
    ];
  }

  /** Sends one fused pull for the batch. */
  async pull(batch: Batch): Promise<Pulled> {
    const uniques = this.uniques(batch);
    return { batch, uniques, answers: await this.store.pull(this.requests(uniques)) };
  }

  /** The keys that a batch pulls, and pushes to, without duplicates. */
  touched(batch: Batch): RowsToPull[] {
    return this.requests(this.uniques(batch));
  }

  private uniques(batch: Batch): Exchange['uniques'] {
    const { tables } = this.model;
    const keys = this.model.keys(batch);
    if (!Array.isArray(keys) || keys.length !== tables.length) {
      throw wrong(`must return one array of keys for each of its ${tables.length} tables`);
    }
    return keys.map((array, index) => {
      if (array instanceof BigUint64Array) return this.helpers.unique(array);
      throw wrong(`must return a BigUint64Array of keys for table "${tables[index]!.name}"`);
    });
  }

  private requests(uniques: Exchange['uniques']): RowsToPull[] {
    const { tables } = this.model;
    return [
      ...uniques.map(({ keys }, index) => ({ table: tables[index]!.name, keys })),
      ...this.layouts.map(densePull),
    ];
  }

  /**
   * Rows for every key of the batch, duplicates included, and the dense tensors. Valid until the next call.
   */
  values({ uniques, answers }: Pulled): { rows: Float32Array[]; dense: Float32Array[] } {
    const { tables } = this.model;
    const rows = tables.map(({ dim }, index) => {
      const { inverse } = uniques[index]!;
      const length = inverse.length * dim;
      if (this.expanded[index]!.length < length) this.expanded[index] = new Float32Array(length);
      const target = this.expanded[index]!.subarray(0, length);
      this.helpers.expandRows(target, dim, answers[index]!, inverse);
      return target;
    });
    const dense = this.layouts.map((layout, index) => denseValues(layout, answers[tables.length + index]!));
    return { rows, dense };
  }

  /**
   * The fused update of a batch: gradients summed per unique key. Throws MODEL for a result that does not
   * fit.
   */
  updates({ uniques }: Exchange, result: StepResult): PushUpdate[] {
    const { tables, tensors } = this.model;
    if (typeof result?.loss !== 'number')
      throw wrong('must return { loss, rowGrads, denseGrads } from step()');
    if (!Number.isFinite(result.loss)) {
      throw wrong(
        `returned the loss ${result.loss}; nothing of this batch was pushed (try a lower learning rate)`,
      );
    }
    const sparse = tables.map(({ name, dim }, index): PushUpdate => {
      const { keys, inverse } = uniques[index]!;
      const rowGrads: unknown = result.rowGrads?.[index];
      checkFloats(rowGrads, inverse.length * dim, `the row gradients of table "${name}"`);
      const gradients = new Float32Array(keys.length * dim);
      this.helpers.sumRows(gradients, dim, rowGrads, inverse);
      const update = { table: name, keys, gradients };
      return this.countDuplicates ? { ...update, counts: countsOf(keys.length, inverse) } : update;
    });
    const dense = this.layouts.map((layout, index): PushUpdate => {
      const gradient: unknown = result.denseGrads?.[index];
      checkFloats(gradient, layout.size, `the gradient of tensor "${tensors[index]!.name}"`);
      return densePush(layout, gradient);
    });
    return [...sparse, ...dense];
  }
}
