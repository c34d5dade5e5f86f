/**
 * The load of a job as TensorBoard shows it: one run for each PS and one for the job, from the snapshots of
 * an observer. The step is the number of samples that the workers have trained.
 */
import { join } from 'node:path';
import { sumOf } from '../../common/statistics.js';
import { goodputOf } from '../../protocol/goodput.js';
import type { JobSnapshot } from '../client/observe.js';
import { Aside } from './aside.js';
import { EventFile } from './event-file.js';
import { ratesBetween } from './rates.js';

export class LoadEvents {
  private readonly files = new Map<string, EventFile>();
  private before: JobSnapshot | undefined;
  private step = 0;
  private readonly aside: Aside;

  /**
   * `tell` is told once that something could not be written later, and why.
   * @throws BAD_ARGUMENT when nothing can be written there
   */
  constructor(
    private readonly directory: string,
    tell: (text: string) => void,
  ) {
    this.aside = new Aside(`--tensorboard ${directory}`, tell);
    this.file('job');
  }

  add(snapshot: JobSnapshot): void {
    const { before } = this;
    this.before = snapshot;
    this.step = sumOf(snapshot.scheduler.runs, ({ samples }) => samples);
    if (!before) return;
    const rates = ratesBetween(before, snapshot);
    this.write('job', {
      'throughput/samples_per_second': rates.job.samplesPerSecond,
      'throughput/pulled_rows_per_second': rates.job.pull.rowsPerSecond,
      'throughput/pushed_rows_per_second': rates.job.push.rowsPerSecond,
      'step/pull_p99_seconds': rates.job.pull.p99Seconds,
      'step/commit_p99_seconds': rates.job.commitP99Seconds,
      goodput: goodputOf(snapshot.scheduler.runs),
    });
    const telemetry = new Map(snapshot.nodes.map((node) => [node.id, node.telemetry]));
    for (const { id, name, cpus, pull, push, commitP99Seconds } of rates.nodes) {
      const told = telemetry.get(id);
      this.write(name, {
        'process/cpu_percent': 100 * cpus,
        'process/rss_bytes': told?.rssBytes,
        'memory/variable_bytes': told?.memory.partBytes.data,
        'memory/parity_bytes': told?.memory.partBytes.parity,
        'throughput/pulled_rows_per_second': pull.rowsPerSecond,
        'throughput/pushed_rows_per_second': push.rowsPerSecond,
        'step/pull_p99_seconds': pull.p99Seconds,
        'step/commit_p99_seconds': commitP99Seconds,
      });
    }
  }

  /** Writes the accuracy of the trained model. */
  tested(auc: number, logloss: number): void {
    this.write('job', { 'test/auc': auc, 'test/logloss': logloss });
  }

  private write(name: string, values: Readonly<Record<string, number | undefined>>): void {
    this.aside.write(() => this.file(name).scalars(this.step, values));
  }

  private file(name: string): EventFile {
    const known = this.files.get(name) ?? new EventFile(join(this.directory, name));
    this.files.set(name, known);
    return known;
  }
}
