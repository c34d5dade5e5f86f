/** A job of real processes with a filled table, and one client that trains on it without a pause. */
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { RoleEvent } from '../../src/fleet/local/events.js';
import { Processes, type RestoredFrom } from '../../src/fleet/local/processes.js';
import { cpuSeconds } from '../../src/fleet/local/processor-time.js';
import { type Client, connect } from '../../src/library/client/client.js';
import { saveNow, setSavePlan } from '../../src/library/tools/checkpoints.js';
import { monotonicMs } from '../../src/net/log.js';
import type { ClientReport } from '../common/training/child.js';
import { BenchClient } from '../common/training/client.js';
import { localOptions } from '../common/training/cluster.js';
import { TABLE } from '../common/training/keys.js';
import type { CheckpointBenchOptions } from './options.js';

const CONNECT_MS = 120_000;
/** The save plan of the job. */
const PLAN = 'checkpoint';
const OPTIMIZER = { kind: 'adagrad', lr: 0.05, eps: 1e-10, initialAccumulator: 0 } as const;

/** Report of a training client: samples so far, and the slowest request since the last report. */
export interface CheckpointJobProgress {
  mono: number;
  samples: number;
  slowestMs: number;
}

/** One checkpoint, as the scheduler told of it. */
export interface Made {
  number: number;
  rows: number;
  bytes: number;
  seconds: number;
  /** Processor time of all PS meanwhile. */
  psCpuSeconds: number;
  beganAt: number;
}

export class CheckpointJob {
  readonly progress: CheckpointJobProgress[] = [];
  readonly events: RoleEvent[] = [];
  private readonly directory = mkdtempSync(join(tmpdir(), 'kintsugi-bench-checkpoint-'));
  private readonly processes: Processes;
  private readonly pids = new Map<string, number>();
  private training: BenchClient | undefined;
  private found: Client | undefined;

  constructor(
    private readonly options: CheckpointBenchOptions,
    restore?: RestoredFrom,
  ) {
    const { ps, mode } = options;
    this.processes = new Processes({
      options: localOptions({ ps }, mode),
      directory: this.directory,
      onEvent: (event, line) => this.onEvent(event, line),
      onBack: () => {},
    });
    this.processes.restore = restore;
  }

  get client(): Client {
    return this.found!;
  }

  /** Every role is up; what is restored may not be there yet. */
  async start(): Promise<void> {
    await this.processes.startScheduler();
    const { ps } = this.options;
    await Promise.all(Array.from({ length: ps }, (_, index) => this.processes.startPs(index)));
    this.found = await connect(this.processes.address, { connectTimeoutMs: CONNECT_MS });
  }

  async fill(): Promise<void> {
    await this.client.createTable({ name: TABLE, dim: this.options.dim, optimizer: OPTIMIZER });
    const client = this.newClient('fill');
    await this.processes.race(client.done);
  }

  private newClient(job: 'fill' | 'train'): BenchClient {
    const { rows, dim, batch, compute } = this.options;
    return new BenchClient({ job, scheduler: this.address, rows, dim, batch, compute }, (report) => {
      if (report.kind === 'progress') this.progress.push(report);
    });
  }

  get address(): string {
    return this.processes.address;
  }

  /** SIGKILL to everything. */
  async abandon(): Promise<void> {
    this.training?.kill();
    await this.processes.abandon();
    await this.found?.close();
    rmSync(this.directory, { recursive: true, force: true });
  }

  private onEvent(event: RoleEvent, line: string): void {
    if (this.options.log !== undefined) appendFileSync(this.options.log, `${line}\n`);
    this.events.push(event);
    const { name, pid } = event;
    if (event.event === 'process.started') this.pids.set(String(name), Number(pid));
  }

  /** Resolves as `work` does. @throws also when a process ends before */
  race<T>(work: Promise<T>): Promise<T> {
    return this.processes.race(work);
  }

  async sleep(ms: number): Promise<void> {
    await this.race(new Promise((resolve) => setTimeout(resolve, ms)));
  }

  // ---- training

  /** Resolves when it is at work. */
  async train(): Promise<void> {
    const client = this.newClient('train');
    this.training = client;
    await this.race(
      client.report(
        (each): each is ClientReport & { kind: 'progress' } => each.kind === 'progress' && each.samples > 0,
      ),
    );
  }

  /** Requests that are under way are answered first. */
  async stopTraining(): Promise<void> {
    this.training?.send('stop');
    await this.race(this.training!.done);
    this.training = undefined;
  }

  /** Resolves when all requests that were under way are answered, and no new ones come. */
  async pauseTraining(): Promise<void> {
    const client = this.training!;
    const paused = client.report((each): each is ClientReport & { kind: 'paused' } => each.kind === 'paused');
    client.send('pause');
    await this.race(paused);
  }

  resumeTraining(): void {
    this.training?.send('resume');
  }

  // ---- checkpoints

  /** From now on checkpoints go there; the next one has all rows if the place is another one. */
  async saveTo(url: string): Promise<void> {
    const plan = { url, everyMs: 0, keep: 1_000_000, rate: 0, kind: 'full job' as const };
    await setSavePlan(this.client, PLAN, plan);
  }

  async save(): Promise<Made> {
    const cpu = this.psCpu();
    const beganAt = monotonicMs();
    const { number, rows, bytes } = await this.race(saveNow(this.client, PLAN));
    const seconds = (monotonicMs() - beganAt) / 1000;
    return { number, rows, bytes, seconds, psCpuSeconds: this.psCpu() - cpu, beganAt };
  }

  /** Processor time of everything that takes part, in seconds. */
  cpu(): number {
    let seconds = cpuSeconds(this.training?.pid) || 0;
    for (const pid of this.pids.values()) seconds += cpuSeconds(pid) || 0;
    return seconds;
  }

  /** Processor time of all PS that run, in seconds. */
  psCpu(): number {
    let seconds = 0;
    for (const [name, pid] of this.pids) if (name.startsWith('ps-')) seconds += cpuSeconds(pid) || 0;
    return seconds;
  }

  /** On the clock of `progress`. @throws when it never comes */
  async event(name: string): Promise<RoleEvent> {
    for (;;) {
      const known = this.events.find(({ event }) => event === name);
      if (known) return known;
      await this.sleep(5);
    }
  }
}
