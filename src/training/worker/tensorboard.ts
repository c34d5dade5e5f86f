/**
 * Events for TensorBoard: a worker writes them into a directory of its name, by the number of its samples.
 */
import { join } from 'node:path';
import { Aside } from '../../library/observe/aside.js';
import { EventFile } from '../../library/observe/event-file.js';
import type { Logger } from '../../net/log.js';
import { WORKER_PHASES, type WorkerReport } from '../../protocol/telemetry.js';

const WRITE_MS = 2000;

export class TensorBoard {
  private readonly file: EventFile;
  private before: WorkerReport;
  private readonly timer: NodeJS.Timeout;
  private readonly aside: Aside;

  /** @throws BAD_ARGUMENT when nothing can be written there. Later a failure is logged once. */
  constructor(
    directory: string,
    name: string,
    private readonly report: () => WorkerReport,
    log: Logger,
  ) {
    this.aside = new Aside(`--tensorboard ${directory}`, (message) =>
      log.warn('worker.tensorboard', { message }),
    );
    this.file = new EventFile(join(directory, name));
    this.before = report();
    this.timer = setInterval(() => this.write(), WRITE_MS).unref();
  }

  private write(): void {
    const { before } = this;
    const now = this.report();
    const seconds = now.upSeconds - before.upSeconds;
    const batches = now.batches - before.batches;
    if (seconds <= 0 || batches === 0) return;
    this.before = now;
    const steps = WORKER_PHASES.map((phase): [string, number] => [
      `step/${phase}_seconds`,
      (now.phaseSeconds[phase] - before.phaseSeconds[phase]) / batches,
    ]);
    this.scalars(now.samples, {
      loss: now.loss,
      'throughput/samples_per_second': (now.samples - before.samples) / seconds,
      'process/cpu_percent': (100 * (now.cpuSeconds - before.cpuSeconds)) / seconds,
      'process/rss_bytes': now.rssBytes,
      ...Object.fromEntries(steps),
    });
  }

  private scalars(step: number, values: Parameters<EventFile['scalars']>[1]): void {
    this.aside.write(() => this.file.scalars(step, values));
  }

  tested({ auc, logloss }: { auc: number; logloss: number }): void {
    this.write();
    this.scalars(this.before.samples, { 'test/auc': auc, 'test/logloss': logloss });
  }

  /** Writes what came since the last time. */
  end(): void {
    clearInterval(this.timer);
    this.write();
  }
}
