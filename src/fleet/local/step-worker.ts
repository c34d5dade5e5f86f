/**
 * A worker without a model or data, as a process that its parent tells what to do: steps of distinct keys
 * that are pulled and pushed, with a pause for what a model computes elsewhere. One pause at a time; a few
 * steps are under way, as workers have them.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { describe } from '../../common/errors.js';
import { type Client, connect } from '../../library/client/client.js';
import { seededRandom } from './kills.js';

export interface StepJob {
  table: string;
  /** Rows of the table. */
  rows: number;
  dim: number;
  /** Distinct keys of a step. */
  batch: number;
  /** Milliseconds of a pause. */
  computeMs: number;
  seed: number;
}

/**
 * An order of the parent, answered with the number of steps that this process has made. `stop` is answered
 * when no step is under way any more.
 */
export type StepOrder = { begin: StepJob } | 'stop' | 'steps';

const IN_FLIGHT = 4;
const KEY_SETS = 64;
const CONNECT_MS = 60_000;

/**
 * Sets of keys, scattered over the table as those of samples are. They are made ahead, so that this is not
 * measured.
 */
function keySets({ rows, batch, seed }: StepJob): BigUint64Array[] {
  // A stride without a common factor with `rows` finds each key once in `rows` steps.
  let stride = Math.floor(rows * 0.618) | 1;
  while (divisor(stride, rows) !== 1) stride += 2;
  const random = seededRandom(seed);
  return Array.from({ length: KEY_SETS }, () => {
    const first = random() % rows;
    return BigUint64Array.from({ length: batch }, (_, i) => BigInt((first + i * stride) % rows));
  });
}

function divisor(a: number, b: number): number {
  return b === 0 ? a : divisor(b, a % b);
}

/** Makes steps. Resolves when `stopped` is true and no step is under way. */
async function work(client: Client, job: StepJob, state: { stopped: boolean; steps: number }): Promise<void> {
  const { table, batch, dim, computeMs } = job;
  // Not zeros, which might be faster.
  const gradients = Float32Array.from({ length: batch * dim }, (_, i) => Math.sin(i * 12.9898) * 0.1);
  const sets = keySets(job);
  let next = 0;
  let model = Promise.resolve();
  const one = async (): Promise<void> => {
    while (!state.stopped) {
      const keys = sets[next++ % KEY_SETS]!;
      await client.pull([{ table, keys }]);
      if (computeMs > 0) {
        model = model.then(() => sleep(computeMs));
        await model;
      }
      await client.push([{ table, keys, gradients }]);
      state.steps++;
    }
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, one));
}

async function main(): Promise<void> {
  const client = await connect(process.argv[2]!, { connectTimeoutMs: CONNECT_MS });
  const state = { stopped: true, steps: 0 };
  let working = Promise.resolve();
  process.on('message', async (order: StepOrder) => {
    if (order === 'stop') {
      state.stopped = true;
      await working;
    } else if (order !== 'steps') {
      state.stopped = false;
      working = work(client, order.begin, state);
      working.catch(fail);
    }
    process.send?.(state.steps);
  });
  process.send?.(0);
}

function fail(error: unknown): never {
  process.stderr.write(`${describe(error)}\n`);
  process.exit(1);
}

process.on('disconnect', () => process.exit(0));
main().catch(fail);
