/** This project's side: trains a built-in model on files, and gives its initial values to the other side. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Batch } from '../../src/data/batch.js';
import type { Schema } from '../../src/data/schema.js';
import { readAll } from '../../src/data/source.js';
import { loadNative } from '../../src/engine/native.js';
import { optimizerOf } from '../../src/engine/optimizers.js';
import { createTables, evaluate, type LoopProgress, train } from '../../src/training/loop/loop.js';
import { openSource } from '../../src/training/loop/source.js';
import { denseLayout, densePull, denseValues } from '../../src/training/models/dense.js';
import { createDlrm, type ModelName } from '../../src/training/models/dlrm.js';
import type { Model } from '../../src/training/models/trainer.js';
import { TWO_TOWERS } from '../../src/training/models/two-towers-graph.js';
import { ShardStore } from './shard-store.js';

export interface ContestShape {
  dim: number;
  batch: number;
  bottom: string;
  top: string;
  lr: number;
  denseLr: number;
}

export interface Contest {
  model: ModelName;
  schema: Schema;
  train: string;
  test: string;
  shape: ContestShape;
  /** Options that only some models have, as `--model-option` gives them */
  own: Readonly<Record<string, unknown>>;
  epochs: number;
  seed: number;
  /** So many samples of the test file in a row are one query, and the AUC is that within queries. */
  group?: number;
}

export interface ContestResult {
  /** On the test file */
  auc: number;
  /** Mean loss of each batch, before it was trained on */
  losses: number[];
}

async function batchesOf(file: string, { schema, shape }: Contest): Promise<AsyncIterable<Batch>> {
  return readAll(await openSource({ file: undefined, paths: [file], schema }), shape.batch);
}

/**
 * Writes the initial values into a folder, as reference.py reads them: `places.u32`, `values.f32` and
 * `tensors.json`.
 */
async function writeInitial(folder: string, contest: Contest, model: Model, store: ShardStore) {
  const { schema } = contest;
  const places = new Map<string, number>();
  const keys = new Map<string, bigint[]>();
  const order: { table: string; at: number }[] = [];
  const numbers: number[] = [];
  for (const file of [contest.train, contest.test]) {
    const columns = schema.sparse.map((): number[] => []);
    for await (const batch of await batchesOf(file, contest))
      for (const [index, { table }] of schema.sparse.entries())
        for (const key of batch.columns![index]!.keys) {
          const name = `${table}:${key}`;
          let place = places.get(name);
          if (place === undefined) {
            place = places.size;
            places.set(name, place);
            const known = keys.get(table) ?? [];
            order.push({ table, at: known.length });
            known.push(key);
            keys.set(table, known);
          }
          columns[index]!.push(place);
        }
    for (const column of columns) for (const place of column) numbers.push(place);
  }
  const pulled = new Map<string, Float32Array>();
  for (const [table, each] of keys)
    pulled.set(table, (await store.pull([{ table, keys: BigUint64Array.from(each) }]))[0]!);
  const { dim } = model.tables[0]!;
  const rows = order.map(({ table, at }) => pulled.get(table)!.subarray(at * dim, (at + 1) * dim));
  const layouts = model.tensors.map(denseLayout);
  const answers = await store.pull(layouts.map(densePull));
  const tensors = layouts.map((layout, index) => denseValues(layout, answers[index]!));
  writeFileSync(join(folder, 'places.u32'), Uint32Array.from(numbers));
  writeFileSync(join(folder, 'values.f32'), Buffer.concat([...rows, ...tensors].map(bytesOf)));
  writeFileSync(
    join(folder, 'tensors.json'),
    JSON.stringify(model.tensors.map(({ name, shape }) => [name, shape])),
  );
}

const bytesOf = (values: Float32Array) => Buffer.from(values.buffer, values.byteOffset, values.byteLength);

/**
 * AUC of pairs within groups of so many samples in a row: the part of all pairs of a positive and a negative
 * sample that are in order; a tie is half a pair.
 */
export function aucWithin(labels: Float32Array, predictions: Float32Array, group: number): number {
  let [pairs, above] = [0, 0];
  for (let begin = 0; begin < labels.length; begin += group)
    for (let one = begin; one < begin + group; one++)
      for (let zero = begin; zero < begin + group; zero++) {
        if (labels[one] !== 1 || labels[zero] !== 0) continue;
        pairs += 1;
        above += Math.sign(predictions[one]! - predictions[zero]!) / 2 + 0.5;
      }
  return above / pairs;
}

/** Keeps the labels and predictions of all that the model predicts. */
function recorded(model: Model) {
  const [labels, predictions]: [number[], number[]] = [[], []];
  const recording: Model = {
    tables: model.tables,
    tensors: model.tensors,
    keys: (batch) => model.keys(batch),
    step: (...given) => model.step(...given),
    predict: async (batch, rows, dense) => {
      const predicted = await model.predict(batch, rows, dense);
      labels.push(...batch.labels);
      predictions.push(...predicted);
      return predicted;
    },
  };
  return { recording, labels, predictions };
}

/** Trains in the order of the file, one batch after the other. */
export async function trainOurs(contest: Contest, initialFolder: string): Promise<ContestResult> {
  const { model: modelName, schema, shape, own, epochs, seed } = contest;
  const { dim, batch, lr, denseLr } = shape;
  const widths = modelName === TWO_TOWERS || modelName === 'dlrm' ? { bottom: shape.bottom } : {};
  const model = await createDlrm({
    ...{ modelName, schema, dim, batch, seed, threads: 1, ...widths, ...own },
    ...(modelName !== TWO_TOWERS && { top: shape.top }),
    optimizer: optimizerOf('adagrad', lr),
    denseOptimizer: optimizerOf('adam', denseLr),
  });
  const store = new ShardStore();
  const helpers = loadNative();
  const losses: number[] = [];
  try {
    await createTables(model, store, seed, helpers);
    await writeInitial(initialFolder, contest, model, store);
    for (let epoch = 0; epoch < epochs; epoch++) {
      const batches = await batchesOf(contest.train, contest);
      const onProgress = ({ loss }: LoopProgress) => void losses.push(loss);
      await train({ model, store, helpers, batches, deterministic: true, onProgress });
    }
    const batches = await batchesOf(contest.test, contest);
    const { recording, labels, predictions } = recorded(model);
    const { auc } = await evaluate({ model: recording, store, helpers, batches });
    const within = (group: number) =>
      aucWithin(Float32Array.from(labels), Float32Array.from(predictions), group);
    return { auc: contest.group === undefined ? auc : within(contest.group), losses };
  } finally {
    await model.close?.();
    store.close();
  }
}
