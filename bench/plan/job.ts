/** A planned job as it really is: what its PS hold, and the steps that its workers make. */

import { type ChildProcess, fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { connect } from '../../src/client/client.js';
import { KintsugiError } from '../../src/errors.js';
import type { RoleEvent } from '../../src/local/events.js';
import { bareJob } from '../../src/local/measure.js';
import { Processes } from '../../src/local/processes.js';
import { cpuSeconds } from '../../src/local/processor-time.js';
import { optimizerOf } from '../../src/optimizers.js';
import { monotonicMs } from '../../src/runtime/log.js';
import type { Shape } from './options.js';
import type { Steps, WorkerOptions } from './worker.js';

const WORKER = fileURLToPath(new URL('./worker.js', import.meta.url));
const TABLE = 'planned';
const FILL_ROWS = 4096;
const BEGIN_STEPS = 300;
const CONNECT_MS = 60_000;

export interface Real {
  /** Of the PS that holds most. */
  bytes: number;
  /** Of all PS. */
  allBytes: number;
  keysPerSecond: number;
  /** Keys for a second of a processor that the PS and the workers used. */
  keysPerProcessorSecond: number;
}

class Workers {
  private readonly children: ChildProcess[] = [];
  private readonly newest = new Map<ChildProcess, Steps>();
  /** Rejects when one ends. */
  readonly failed: Promise<never>;
  private reject: (error: Error) => void = () => {};

  constructor() {
    this.failed = new Promise((_, reject) => {
      this.reject = reject;
    });
    this.failed.catch(() => {});
  }

  start(options: WorkerOptions): void {
    const child = fork(WORKER, [JSON.stringify(options)], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    child.on('message', (steps: Steps) => this.newest.set(child, steps));
    child.on('exit', () => this.reject(new KintsugiError('INTERNAL', 'a worker of the benchmark has ended')));
    this.children.push(child);
  }

  get pids(): number[] {
    return this.children.map(({ pid }) => pid ?? 0);
  }

  get steps(): number {
    return [...this.newest.values()].reduce((sum, { steps }) => sum + steps, 0);
  }

  async stop(): Promise<void> {
    for (const child of this.children) {
      child.kill('SIGKILL');
      await new Promise((resolve) => (child.exitCode === null ? child.once('exit', resolve) : resolve(0)));
    }
  }
}

/** One run from an empty job. @throws what a job or a worker that ends early throws */
export async function runShape(shape: Shape, seconds: number): Promise<Real> {
  const { ps, code, dim, optimizer, rows, batch, computeMs } = shape;
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-plan-'));
  const pids: number[] = [];
  const onEvent = ({ event, name, pid }: RoleEvent) => {
    if (event === 'process.started' && String(name).startsWith('ps-')) pids.push(Number(pid));
  };
  const processes = new Processes({ options: bareJob(ps, code), directory, onEvent, onBack() {} });
  const workers = new Workers();
  try {
    await processes.startScheduler();
    await Promise.all(Array.from({ length: ps }, (_, index) => processes.startPs(index)));
    const client = await connect(processes.address, { connectTimeoutMs: CONNECT_MS });
    const table = await client.createTable({ name: TABLE, dim, optimizer: optimizerOf(optimizer, 0.01) });
    const gradients = Float32Array.from({ length: FILL_ROWS * dim }, (_, i) => Math.sin(i) * 0.1);
    for (let at = 0; at < rows; at += FILL_ROWS) {
      const keys = BigUint64Array.from({ length: Math.min(FILL_ROWS, rows - at) }, (_, i) => BigInt(at + i));
      await table.push(keys, gradients.subarray(0, keys.length * dim));
    }
    for (let seed = 1; seed <= shape.workers; seed++)
      workers.start({ scheduler: processes.address, table: TABLE, rows, dim, batch, computeMs, seed });
    const { keys, wall, cpu } = await processes.race(
      Promise.race([
        workers.failed,
        (async () => {
          // What is compiled and warm counts in steps: on a busy machine they take longer.
          while (workers.steps < BEGIN_STEPS * shape.workers) await sleep(50);
          const used = () => [...pids, ...workers.pids].reduce((sum, pid) => sum + cpuSeconds(pid), 0);
          const [from, steps, before] = [monotonicMs(), workers.steps, used()];
          await sleep(seconds * 1000);
          const wall = (monotonicMs() - from) / 1000;
          return { keys: (workers.steps - steps) * batch, wall, cpu: used() - before };
        })(),
      ]),
    );
    const held = (await client.status()).nodes.map(({ bytes }) => bytes);
    await client.close();
    return {
      bytes: Math.max(...held),
      allBytes: held.reduce((sum, one) => sum + one, 0),
      keysPerSecond: keys / wall,
      keysPerProcessorSecond: keys / cpu,
    };
  } finally {
    await workers.stop();
    await processes.abandon();
    rmSync(directory, { recursive: true, force: true });
  }
}
