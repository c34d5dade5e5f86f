/** A planned job as it really is: what its PS hold, and the steps that its workers make. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { sumOf } from '../../src/common/statistics.js';
import { optimizerOf } from '../../src/engine/optimizers.js';
import type { RoleEvent } from '../../src/fleet/local/events.js';
import { bareJob } from '../../src/fleet/local/measure.js';
import { Processes } from '../../src/fleet/local/processes.js';
import { cpuSeconds } from '../../src/fleet/local/processor-time.js';
import { StepWorkers } from '../../src/fleet/local/step-workers.js';
import { connect } from '../../src/library/client/client.js';
import { monotonicMs } from '../../src/net/log.js';
import type { PlanShape } from './options.js';

const TABLE = 'planned';
const FILL_ROWS = 4096;
const BEGIN_STEPS = 300;
const CONNECT_MS = 60_000;

export interface RealJob {
  /** Memory of the PS that holds most. */
  bytes: number;
  /** Memory of all PS. */
  allBytes: number;
  keysPerSecond: number;
  /** Keys for a second of a processor that the PS and the workers used. */
  keysPerProcessorSecond: number;
  /** Processor time of a step in milliseconds: of all PS, and of its worker. */
  psStepMs: number;
  workerStepMs: number;
}

/** One run from an empty job. @throws what a job or a worker that ends early throws */
export async function runShape(shape: PlanShape, seconds: number): Promise<RealJob> {
  const { ps, code, dim, optimizer, rows, batch, computeMs } = shape;
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-plan-'));
  const pids: number[] = [];
  const onEvent = ({ event, name, pid }: RoleEvent) => {
    if (event === 'process.started' && String(name).startsWith('ps-')) pids.push(Number(pid));
  };
  const processes = new Processes({ options: bareJob(ps, code), directory, onEvent, onBack() {} });
  const workers = new StepWorkers();
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
    await processes.race(workers.start(shape.workers, processes.address));
    await workers.begin({ table: TABLE, rows, dim, batch, computeMs });
    const used = await processes.race(
      Promise.race([
        workers.failed,
        (async () => {
          // Warm-up is counted in steps, because they take longer on a busy machine.
          while ((await workers.steps()) < BEGIN_STEPS * shape.workers) await sleep(50);
          const look = async () => {
            const steps = await workers.steps();
            return { steps, at: monotonicMs(), ps: sumOf(pids, cpuSeconds), worker: workers.cpu() };
          };
          const before = await look();
          await sleep(seconds * 1000);
          const after = await look();
          return {
            steps: after.steps - before.steps,
            seconds: (after.at - before.at) / 1000,
            ps: after.ps - before.ps,
            worker: after.worker - before.worker,
          };
        })(),
      ]),
    );
    const held = (await client.status()).nodes.map(({ bytes }) => bytes);
    await client.close();
    return {
      bytes: Math.max(...held),
      allBytes: held.reduce((sum, one) => sum + one, 0),
      keysPerSecond: (used.steps * batch) / used.seconds,
      keysPerProcessorSecond: (used.steps * batch) / (used.ps + used.worker),
      psStepMs: (used.ps / used.steps) * 1000,
      workerStepMs: (used.worker / used.steps) * 1000,
    };
  } finally {
    await workers.close();
    await processes.abandon();
    rmSync(directory, { recursive: true, force: true });
  }
}
