/**
 * Measures what requests and the loss of a PS cost on this machine: two small jobs of real processes, one
 * without redundancy and one with 4+1, that workers keep busy. The second one loses a PS in the end.
 * Processor time is the kernel's, so other work on the machine slows this down and falsifies little.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { KintsugiError } from '../../common/errors.js';
import { sumOf } from '../../common/statistics.js';
import { optimizerOf } from '../../engine/optimizers.js';
import { type Client, connect } from '../../library/client/client.js';
import { monotonicMs } from '../../net/log.js';
import { DIM, type FittedLoad, MANY_ROWS, ratesFrom, SIZES } from '../planner/fit.js';
import { codedBytes } from '../planner/memory.js';
import type { PlannerRates } from '../planner/rates.js';
import type { RoleEvent } from './events.js';
import { type Loss, measureLoss } from './measure-loss.js';
import type { LocalOptions } from './options.js';
import { Processes, psName } from './processes.js';
import { cpuSeconds } from './processor-time.js';
import { StepWorkers } from './step-workers.js';

const PS = 5;
/** Data shards of both jobs, and of a group of the second one. */
const SHARDS = 20;
const DATA_SHARDS = 4;
/** Several workers, as in a job: a PS gets requests of all of them, and pulls beside pushes. */
const WORKERS = 2;
const CONNECT_MS = 60_000;

/** Size of the measurement; a test takes less. */
export interface MeasureSize {
  /** Rows of a table. */
  rows: number;
  /** Measurements of each load, which take turns; the median counts. */
  rounds: number;
  /** Milliseconds of one load, of its beginning, which is not counted, and of an idle job. */
  loadMs: number;
  beginMs: number;
  idleMs: number;
}

export const MINUTE: Readonly<MeasureSize> = {
  ...{ rows: 200_000, rounds: 5, loadMs: 1300, beginMs: 200, idleMs: 3000 },
};

type MeasuredKind = Pick<FittedLoad, 'rows' | 'dim'>;

/** Options of a job for nothing but requests of a client in this process. */
export function bareJob(ps: number, code: string, groups?: number): LocalOptions {
  return {
    ...{ ps, code, groups, recoveryRate: undefined, moveRate: undefined, memory: undefined },
    ...{ workers: 0, standby: 0, data: [], test: [], epochs: 0, workerArgs: [], seed: 1 },
    ...{ deterministic: false, audit: false, kills: [], scales: [], respawnMs: undefined },
    ...{ resume: undefined, save: undefined, log: undefined },
  };
}

class MeasuredRun {
  private readonly directory = mkdtempSync(join(tmpdir(), 'kintsugi-rates-'));
  private readonly pids = new Map<string, number>();
  private readonly events: RoleEvent[] = [];
  private readonly processes: Processes;
  private readonly workers = new StepWorkers();
  private client: Client | undefined;
  idle = 0;

  constructor(
    private readonly size: MeasureSize,
    private readonly r: number,
  ) {
    const options =
      r === 0 ? bareJob(PS, 'none', SHARDS) : bareJob(PS, `${DATA_SHARDS}+${r}`, SHARDS / DATA_SHARDS);
    this.processes = new Processes({
      // A PS that joins stays empty, so that it takes the place of the one that is lost.
      options: { ...options, balanceJoining: false },
      directory: this.directory,
      onEvent: (told) => {
        const { event, name, pid } = told;
        this.events.push(told);
        if (event === 'process.started' && String(name).startsWith('ps-'))
          this.pids.set(String(name), Number(pid));
      },
      onBack: () => {},
    });
  }

  /** Runs `story` beside a job that has formed, with its result. No process is left behind. */
  async with<T>(story: () => Promise<T>): Promise<T> {
    try {
      await this.processes.startScheduler();
      await Promise.all(Array.from({ length: PS }, (_, index) => this.processes.startPs(index)));
      this.client = await connect(this.processes.address, { connectTimeoutMs: CONNECT_MS });
      const before = this.cpu();
      await sleep(this.size.idleMs);
      this.idle = (this.cpu() - before) / PS / (this.size.idleMs / 1000);
      await this.processes.race(this.workers.start(WORKERS, this.processes.address));
      return await this.processes.race(story());
    } finally {
      await this.workers.close();
      await this.client?.close();
      await this.processes.abandon();
      rmSync(this.directory, { recursive: true, force: true });
    }
  }

  /** Processor seconds of all PS. */
  private cpu(): number {
    const sum = sumOf([...this.pids.values()], cpuSeconds);
    if (!Number.isNaN(sum)) return sum;
    throw new KintsugiError('BAD_ARGUMENT', '--measure reads processor times from /proc, which is not here');
  }

  private async table(dim: number): Promise<void> {
    const client = this.client!;
    const optimizer = optimizerOf('adagrad', 0.01);
    const table = await client.createTable({ name: `dim-${dim}`, dim, optimizer });
    const gradients = Float32Array.from({ length: MANY_ROWS * dim }, (_, i) => Math.sin(i * 12.9898) * 0.1);
    for (let at = 0; at < this.size.rows; at += MANY_ROWS)
      await table.push(
        BigUint64Array.from({ length: MANY_ROWS }, (_, i) => BigInt(at + i)),
        gradients,
      );
  }

  /**
   * The median of each load. V8 compiles what runs often: the first round would look dear, and is left out.
   */
  async loads(): Promise<FittedLoad[]> {
    for (const dim of new Set(SIZES.map((size) => size.dim))) await this.table(dim);
    const all: FittedLoad[][] = SIZES.map(() => []);
    for (let round = 0; round <= this.size.rounds; round++)
      for (const [i, kind] of SIZES.entries()) {
        const load = await this.load(kind);
        if (round > 0) all[i]!.push(load);
      }
    return all.map((same) => same.sort((a, b) => dearness(a) - dearness(b))[same.length >> 1]!);
  }

  /** Measures the loss of one PS, whose place one that held nothing takes. */
  async loss(): Promise<Loss> {
    const { client, pids, events, processes } = this;
    await processes.startAnotherPs();
    const rows = Math.ceil(this.size.rows / MANY_ROWS) * MANY_ROWS;
    // A PS has a shard of each group.
    const perShard = codedBytes(Math.ceil(rows / SHARDS), { dim: DIM, optimizer: 'adagrad' });
    const kill = (name: string) => {
      pids.delete(name);
      processes.kill('ps', name);
    };
    const name = psName(0);
    const cpu = () =>
      sumOf(
        [...pids].filter(([each]) => each !== name),
        ([, pid]) => cpuSeconds(pid),
      );
    const job = { client: client!, events, kill, cpu, idle: this.idle * PS };
    return measureLoss(job, name, perShard * (SHARDS / DATA_SHARDS));
  }

  /** Measures a load: keeps the job busy with steps of one size. */
  private async load({ rows, dim }: MeasuredKind): Promise<FittedLoad> {
    const { workers } = this;
    await workers.begin({ table: `dim-${dim}`, rows: this.size.rows, dim, batch: rows, computeMs: 0 });
    try {
      await sleep(this.size.beginMs);
      const before = {
        steps: await workers.steps(),
        ps: this.cpu(),
        workers: workers.cpu(),
        at: monotonicMs(),
      };
      await sleep(this.size.loadMs);
      const steps = (await workers.steps()) - before.steps;
      const seconds = (monotonicMs() - before.at) / 1000;
      return {
        ...{ rows, dim, r: this.r, steps: Math.max(1, steps) },
        sections: SHARDS * -Math.expm1(rows * Math.log1p(-1 / SHARDS)),
        psSeconds: Math.max(0, this.cpu() - before.ps - this.idle * PS * seconds),
        clientSeconds: workers.cpu() - before.workers,
      };
    } finally {
      await workers.stop();
    }
  }
}

const dearness = ({ psSeconds, steps }: FittedLoad): number => psSeconds / steps;

/** Measures what each load takes, and the processors that an idle PS takes. */
async function measureLoads(
  tell: (text: string) => void,
  size: MeasureSize,
): Promise<{ loads: FittedLoad[]; idle: number; loss: Loss }> {
  tell('measuring steps without redundancy');
  const plain = new MeasuredRun(size, 0);
  const loads = await plain.with(() => plain.loads());
  tell('measuring steps with 4+1');
  const coded = new MeasuredRun(size, 1);
  const loss = await coded.with(async () => {
    loads.push(...(await coded.loads()));
    tell('measuring the loss of a PS');
    return coded.loss();
  });
  return { loads, idle: Math.max(1e-4, plain.idle), loss };
}

/**
 * Rates of requests and of a lost PS on this machine; a minute by default. The other rates are those of
 * {@link PlannerRates}.
 * @throws BAD_ARGUMENT where there is no /proc, and what makes a local job fail
 */
export async function measureRates(
  tell: (text: string) => void,
  size: MeasureSize = MINUTE,
): Promise<Partial<PlannerRates>> {
  const { loads, idle, loss } = await measureLoads(tell, size);
  return { ...ratesFrom(loads), idle, ...loss };
}
