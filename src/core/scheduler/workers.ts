/**
 * What workers report of themselves: the newest report of each, and sums of each run, which keep the reports
 * of workers that have ended. It is soft state: no decision depends on it, and a restart of the scheduler
 * forgets workers that had ended before.
 */
import type { PeerId } from '../../protocol/map.js';
import {
  type RunTelemetry,
  type SchedulerTelemetry,
  WORKER_PHASES,
  type WorkerReport,
  type WorkerTelemetry,
} from '../../protocol/telemetry.js';

/** Who has not reported for so long is not listed; workers report every 5 s. */
const SILENT_MS = 16_000;
/** Beyond these the scheduler takes no further worker, and forgets the sums of the oldest run. */
const MAX_WORKERS = 16_384;
const MAX_RUNS = 256;

interface Known {
  at: number;
  report: WorkerReport;
  /** Samples of its first report: another scheduler was told of those. */
  inherited: number;
}

export class Workers {
  private readonly known = new Map<PeerId, Known>();
  /** Sums of those that are gone, by run. */
  private readonly gone = new Map<string, RunTelemetry>();

  /** `isOpen`: the session of a worker. */
  constructor(private readonly isOpen: (id: PeerId) => boolean) {}

  onReport(from: PeerId, report: WorkerReport, now: number): void {
    if (!this.isOpen(from)) return;
    const known = this.known.get(from);
    if (!known && this.known.size >= MAX_WORKERS) return;
    this.known.set(from, { at: now, report, inherited: known?.inherited ?? report.samples });
  }

  /** Its session has ended: it will not report any more. */
  ended(id: PeerId): void {
    const worker = this.known.get(id);
    if (!worker) return;
    this.known.delete(id);
    const { run } = worker.report;
    const sums = this.gone.get(run) ?? nothing(run);
    this.gone.delete(run);
    this.gone.set(run, added(sums, worker));
    if (this.gone.size > MAX_RUNS) this.gone.delete(this.gone.keys().next().value!);
  }

  telemetry(now: number): Required<Pick<SchedulerTelemetry, 'workers' | 'runs' | 'silent'>> {
    const runs = new Map(this.gone);
    const workers: WorkerTelemetry[] = [];
    const silent: NonNullable<SchedulerTelemetry['silent']> = [];
    for (const [id, worker] of this.known) {
      const { report } = worker;
      const { name, run, over } = report;
      const agoMs = now - worker.at;
      const sums = added(runs.get(run) ?? nothing(run), worker);
      runs.set(run, sums);
      if (agoMs > SILENT_MS) {
        if (!over) silent.push({ id, name, run, agoMs });
        continue;
      }
      sums.workers++;
      workers.push({ ...report, id, agoMs });
    }
    return { workers, runs: [...runs.values()], silent };
  }
}

function nothing(run: string): RunTelemetry {
  const phaseSeconds = { read: 0, pull: 0, compute: 0, push: 0 };
  const seconds = { phaseSeconds, idleSeconds: 0, productiveSeconds: 0, allocatedSeconds: 0 };
  return { run, workers: 0, samples: 0, inheritedSamples: 0, batches: 0, ...seconds };
}

function added(sums: RunTelemetry, { report, inherited }: Known): RunTelemetry {
  const phaseSeconds = { ...sums.phaseSeconds };
  for (const phase of WORKER_PHASES) phaseSeconds[phase] += report.phaseSeconds[phase];
  return {
    ...sums,
    samples: sums.samples + report.samples,
    inheritedSamples: (sums.inheritedSamples ?? 0) + inherited,
    batches: sums.batches + report.batches,
    phaseSeconds,
    idleSeconds: sums.idleSeconds + report.idleSeconds,
    productiveSeconds: sums.productiveSeconds + report.productiveSeconds,
    allocatedSeconds: sums.allocatedSeconds + report.upSeconds,
  };
}
