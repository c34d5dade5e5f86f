/**
 * Ways to have a checkpoint every so often while training goes on: the rows that changed (ours), everything
 * while training stands still, and everything read by a client.
 */
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { Throughput } from '../../src/fleet/local/throughput.js';
import { monotonicMs } from '../../src/net/log.js';
import type { ClientReport } from '../common/training/child.js';
import { BenchClient } from '../common/training/client.js';
import type { CheckpointJob, Made } from './job.js';
import type { CheckpointBenchOptions } from './options.js';

export const WAYS = ['none', 'changed rows', 'stop and copy', 'full scan'] as const;
export type SavingWay = (typeof WAYS)[number];

/** Training during one watch, with its checkpoints. */
export interface Watched {
  way: SavingWay;
  /** Start of the watch, on the clock of the log. */
  from: number;
  samplesPerSecond: number;
  /** Processor seconds of all roles and the client, per million samples. */
  cpuSeconds: number;
  slowestMs: number;
  /** Samples per second of each window. */
  windows: number[];
  /** Seconds that each checkpoint took. */
  tookSeconds: number[];
  /** Checkpoints of the changed rows. */
  made: Made[];
}

export const WINDOW_MS = 100;

export class Ways {
  private copies = 0;
  private scanner: BenchClient | undefined;

  /** `directory`: for the checkpoints of all ways. */
  constructor(
    private readonly job: CheckpointJob,
    private readonly options: CheckpointBenchOptions,
    private readonly directory: string,
  ) {}

  get place(): string {
    return join(this.directory, 'changed');
  }

  /** Watches for `watchMs` while a checkpoint is made every `intervalMs`, the first one at once. */
  async watch(way: SavingWay): Promise<Watched> {
    const { job, options } = this;
    const { watchMs, intervalMs } = options;
    await this.prepare(way);
    const made: Made[] = [];
    const tookSeconds: number[] = [];
    const cpu = job.cpu();
    const from = monotonicMs();
    const until = from + watchMs;
    for (let due = from; way !== 'none' && due < until; due = Math.max(due + intervalMs, monotonicMs())) {
      await job.sleep(Math.max(0, due - monotonicMs()));
      const began = monotonicMs();
      await this.take(way, made);
      tookSeconds.push((monotonicMs() - began) / 1000);
    }
    await job.sleep(Math.max(0, until - monotonicMs()) + WINDOW_MS);
    // A checkpoint that took longer belongs to what it cost.
    const used = job.cpu() - cpu;
    const ended = monotonicMs();
    await this.end();
    const points = job.progress.map(({ mono, samples }) => ({ mono, worker: 'train', samples }));
    const throughput = new Throughput(points);
    const own = job.progress.filter(({ mono }) => mono >= from && mono <= until);
    return {
      ...{ way, from, made, tookSeconds },
      samplesPerSecond: throughput.rate(from, until),
      cpuSeconds: used / ((throughput.rate(from, ended) * (ended - from)) / 1e9),
      slowestMs: own.reduce((most, { slowestMs }) => Math.max(most, slowestMs), 0),
      windows: throughput.windows(from, until, WINDOW_MS),
    };
  }

  /** Makes a checkpoint one interval before the watch, from which the first changed rows count. */
  private async prepare(way: SavingWay): Promise<void> {
    if (way === 'changed rows') {
      await this.job.saveTo(this.place);
      await this.job.save();
      await this.job.sleep(this.options.intervalMs);
    }
    if (way !== 'full scan') return;
    const { address } = this.job;
    const directory = join(this.directory, 'scan');
    const nothing = { rows: 0, dim: 1, batch: 1, compute: 0 };
    this.scanner = new BenchClient({ job: 'save', scheduler: address, ...nothing, directory });
  }

  private async take(way: SavingWay, made: Made[]): Promise<void> {
    if (way === 'changed rows') made.push(await this.job.save());
    else if (way === 'stop and copy') await this.stopAndCopy();
    else if (this.scanner) {
      this.scanner.send('save');
      const isSaved = (each: ClientReport): each is ClientReport & { kind: 'saved' } => each.kind === 'saved';
      await this.job.race(this.scanner.report(isSaved));
    }
  }

  /** Writes all rows as fast as possible while training waits. */
  private async stopAndCopy(): Promise<void> {
    const directory = join(this.directory, `copy-${this.copies++}`);
    mkdirSync(directory);
    await this.job.pauseTraining();
    await this.job.saveTo(directory);
    await this.job.save();
    this.job.resumeTraining();
    rmSync(directory, { recursive: true });
  }

  private async end(): Promise<void> {
    this.scanner?.send('stop');
    if (this.scanner) await this.job.race(this.scanner.done);
    this.scanner = undefined;
  }
}
