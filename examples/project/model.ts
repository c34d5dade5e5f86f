/**
 * A model of your own: does this user click on this item? A user is a vector of its own plus the mean of the
 * items that it clicked on before. The score is that vector times the vector of the item, and something for
 * the price.
 *
 * The rows of both tables live on the parameter servers. A worker pulls those of a batch, and pushes their
 * gradients. So `keys` says which rows a batch needs, and `step` gives a gradient for each of them, in the
 * same order.
 */
import type { Batch, Model, ModelOptions, SparseValues } from 'kintsugi-ps';

/** The sparse columns, in the order of schema.json. */
const columnsOf = ({ columns = [] }: Batch) => {
  const [user, item, history] = columns as [SparseValues, SparseValues, SparseValues];
  return { user, item, history };
};

/** Adds row `from` of `source`, times a factor, to row `to` of `target`. */
function add(target: Float32Array, to: number, source: Float32Array, from: number, dim: number, times = 1) {
  for (let d = 0; d < dim; d++) target[to * dim + d]! += times * source[from * dim + d]!;
}

export default function model({ dim, optimizer, denseOptimizer }: ModelOptions): Model {
  const initializer = { kind: 'uniform', low: -0.1, high: 0.1 } as const;

  /** Per sample: the vector of the user, with its history, and the probability of a click. */
  function forward(batch: Batch, [users, items]: Float32Array[], [weights]: Float32Array[]) {
    const { offsets } = columnsOf(batch).history;
    const vectors = new Float32Array(batch.size * dim);
    const predicted = new Float32Array(batch.size);
    for (let b = 0; b < batch.size; b++) {
      const [begin, end] = [offsets[b]!, offsets[b + 1]!];
      add(vectors, b, users!, b, dim);
      // The rows of the histories are behind those of the items.
      for (let at = begin; at < end; at++) add(vectors, b, items!, batch.size + at, dim, 1 / (end - begin));
      let logit = weights![0]! + weights![1]! * batch.dense[b]!;
      for (let d = 0; d < dim; d++) logit += vectors[b * dim + d]! * items![b * dim + d]!;
      predicted[b] = 1 / (1 + Math.exp(-logit));
    }
    return { vectors, predicted };
  }

  return {
    tables: [
      { name: 'users', dim, optimizer, initializer },
      { name: 'items', dim, optimizer, initializer },
    ],
    tensors: [{ name: 'bias', shape: [2], optimizer: denseOptimizer, initializer: { kind: 'zeros' } }],

    keys(batch) {
      const { user, item, history } = columnsOf(batch);
      const items = new BigUint64Array(item.keys.length + history.keys.length);
      items.set(item.keys);
      items.set(history.keys, item.keys.length);
      return [user.keys, items];
    },

    async step(batch, rows, dense) {
      const { offsets } = columnsOf(batch).history;
      const { vectors, predicted } = forward(batch, rows, dense);
      const [users, items] = rows.map(({ length }) => new Float32Array(length)) as [
        Float32Array,
        Float32Array,
      ];
      const weights = new Float32Array(2);
      let loss = 0;
      for (let b = 0; b < batch.size; b++) {
        // The loss is the mean over the batch, so every gradient is divided by its size.
        const error = (predicted[b]! - batch.labels[b]!) / batch.size;
        const likelihood = batch.labels[b] === 1 ? predicted[b]! : 1 - predicted[b]!;
        loss -= Math.log(Math.max(likelihood, 1e-7)) / batch.size;
        weights[0]! += error;
        weights[1]! += error * batch.dense[b]!;
        const [begin, end] = [offsets[b]!, offsets[b + 1]!];
        add(users, b, rows[1]!, b, dim, error);
        add(items, b, vectors, b, dim, error);
        for (let at = begin; at < end; at++)
          add(items, batch.size + at, rows[1]!, b, dim, error / (end - begin));
      }
      return { loss, rowGrads: [users, items], denseGrads: [weights] };
    },

    async predict(batch, rows, dense) {
      return forward(batch, rows, dense).predicted;
    },
  };
}
