/** Rows in the Criteo layout, batches and options for tests. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { ComputeThread } from '../../../src/training/models/compute.js';
import { createDlrm } from '../../../src/training/models/dlrm.js';
import type { Batch, Model, ModelOptions } from '../../../src/training/models/trainer.js';

/** A thread runs compiled code. */
const SCRIPT = new URL('../../../dist/src/training/models/compute-thread.js', import.meta.url);

export function dlrm(own: Partial<ModelOptions> = {}, runtime?: string): Promise<Model> {
  return createDlrm({ ...options, ...own }, (graphs) => ComputeThread.start({ ...graphs, runtime }, SCRIPT));
}

/** A directory that goes away with the test. */
export function temporaryDirectory(): string {
  const path = mkdtempSync(join(tmpdir(), 'kintsugi-train-'));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** One line without its newline: `integers` and `categories` from the first field on, the rest empty. */
export function row(label: string, integers: string[] = [], categories: string[] = []): string {
  const fill = (fields: string[], count: number) => [...fields, ...Array(count - fields.length).fill('')];
  return [label, ...fill(integers, 13), ...fill(categories, 26)].join('\t');
}

export const options: ModelOptions = {
  dim: 16,
  batch: 256,
  seed: 1,
  threads: 1,
  optimizer: { kind: 'adagrad', lr: 0.05, eps: 1e-10, initialAccumulator: 0 },
  denseOptimizer: { kind: 'adam', lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8 },
};

/** Repeatable numbers in [-1, 1). */
export function numbers(count: number, seed: number): Float32Array {
  let state = seed >>> 0;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  });
}

/** A batch whose column c has the keys c * 8 .. c * 8 + 7. */
export function randomBatch(size: number, seed: number): Batch {
  return {
    size,
    labels: numbers(size, seed).map((value) => (value > 0 ? 1 : 0)),
    dense: numbers(size * 13, seed + 1).map(Math.abs),
    keys: BigUint64Array.from(numbers(size * 26, seed + 2), (value, place) =>
      BigInt((place % 26) * 8 + Math.floor((value + 1) * 4)),
    ),
  };
}

export async function* batchesOf(count: number, size: number): AsyncGenerator<Batch> {
  for (let i = 0; i < count; i++) yield randomBatch(size, 100 + 10 * i);
}
