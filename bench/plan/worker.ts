/**
 * A worker of `bench plan`, as a process: steps of distinct keys that are pulled and pushed, with a pause for
 * what a model computes elsewhere. One pause at a time; a few steps are under way, as workers have them.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from '../../src/client/client.js';
import { describe } from '../../src/errors.js';
import { seededRandom } from '../../src/local/kills.js';
import { monotonicMs } from '../../src/runtime/log.js';

export interface WorkerOptions {
  scheduler: string;
  table: string;
  rows: number;
  dim: number;
  batch: number;
  computeMs: number;
  seed: number;
}

/** Steps that were done since the worker began. */
export interface Steps {
  mono: number;
  steps: number;
}

const IN_FLIGHT = 4;
const KEY_SETS = 64;
const TELL_MS = 50;
const CONNECT_MS = 60_000;

async function main(): Promise<void> {
  const { scheduler, table, rows, dim, batch, computeMs, seed } = JSON.parse(
    process.argv[2]!,
  ) as WorkerOptions;
  const client = await connect(scheduler, { connectTimeoutMs: CONNECT_MS });
  const gradients = Float32Array.from({ length: batch * dim }, (_, i) => Math.sin(i * 12.9898) * 0.1);
  const random = seededRandom(seed);
  // A step through all keys that has no factor with their number finds each once in `rows` of them.
  let stride = Math.floor(rows * 0.618) | 1;
  while (gcd(stride, rows) !== 1) stride += 2;
  // Made before: a worker reads its keys, and that is not planned.
  const sets = Array.from({ length: KEY_SETS }, () => {
    const first = random() % rows;
    return BigUint64Array.from({ length: batch }, (_, i) => BigInt((first + i * stride) % rows));
  });
  let steps = 0;
  let next = 0;
  let model = Promise.resolve();
  const one = async (): Promise<never> => {
    for (;;) {
      const keys = sets[next++ % KEY_SETS]!;
      await client.pull([{ table, keys }]);
      if (computeMs > 0) {
        model = model.then(() => sleep(computeMs));
        await model;
      }
      await client.push([{ table, keys, gradients }]);
      steps++;
    }
  };
  setInterval(() => process.send?.({ mono: monotonicMs(), steps } satisfies Steps), TELL_MS);
  await Promise.all(Array.from({ length: IN_FLIGHT }, one));
}

function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b);
}

process.on('disconnect', () => process.exit(0));
main().catch((error: unknown) => {
  process.stderr.write(`${describe(error)}\n`);
  process.exit(1);
});
