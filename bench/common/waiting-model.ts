/**
 * A model whose step waits, as one does whose processors are elsewhere: `--model-option waitMs=100`. It
 * learns a number per category and pushes the same gradient to all values of a row, so it costs this machine
 * nearly nothing, and more workers are faster in it.
 */
import type { Model, ModelOptions } from '../../src/training/models/trainer.js';

const CATEGORIES = 26;

export default function waiting({ dim, optimizer, waitMs }: ModelOptions): Model {
  const predict = (size: number, rows: Float32Array): Float32Array => {
    const result = new Float32Array(size);
    for (let b = 0; b < size; b++) {
      let logit = 0;
      for (let c = 0; c < CATEGORIES; c++) logit += rows[(b * CATEGORIES + c) * dim]!;
      result[b] = 1 / (1 + Math.exp(-logit));
    }
    return result;
  };
  return {
    tables: [{ name: 'weights', dim, optimizer, initializer: { kind: 'zeros' } }],
    tensors: [],
    keys: (batch) => [batch.keys],
    async step(batch, [rows]) {
      await new Promise((resolve) => setTimeout(resolve, Number(waitMs ?? 0)));
      const predicted = predict(batch.size, rows!);
      const gradients = new Float32Array(rows!.length);
      let loss = 0;
      for (let b = 0; b < batch.size; b++) {
        const label = batch.labels[b]!;
        loss -= Math.log(Math.max(label === 1 ? predicted[b]! : 1 - predicted[b]!, 1e-7)) / batch.size;
        const error = (predicted[b]! - label) / batch.size;
        gradients.fill(error, b * CATEGORIES * dim, (b + 1) * CATEGORIES * dim);
      }
      return { loss, rowGrads: [gradients], denseGrads: [] };
    },
    predict: async (batch, [rows]) => predict(batch.size, rows!),
  };
}
