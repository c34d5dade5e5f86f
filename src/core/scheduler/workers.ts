/**
 * Reports of workers about themselves: the newest of each, and sums of each run, which keep the reports of
 * workers that have ended. No decision depends on it. The sums are durable with the end of the session, and
 * the newest reports are soft state: workers report again to a scheduler that is new.
 */
import type { PeerId } from '../../protocol/map.js';
import {
  type RunTelemetry,
  type SchedulerTelemetry,
  WORKER_PHASES,
  type WorkerReport,
  type WorkerTelemetry,
} from '../../protocol/telemetry.js';
import { runKey } from './entries.js';
import type { Ledger } from './ledger.js';

/** Milliseconds after which a worker that has not reported is not listed; workers report every 5 s. */
const SILENT_MS = 16_000;
/** The most workers: no further one is taken. */
const MAX_WORKERS = 16_384;
/** The most runs of workers that are gone: beyond it the sums of the oldest run are forgotten. */
const MAX_RUNS = 256;
/** The longest name of a run of which sums are kept. */
const MAX_RUN_NAME = 256;

interface KnownWorker {
  /** Milliseconds of the report. */
  at: number;
  report: WorkerReport;
  /** Samples of its first report: the worker had trained them before, and told them to another scheduler. */
  inherited: number;
}

export class Workers {
  private readonly known = new Map<PeerId, KnownWorker>();
  /** Sums of the workers that are gone, by run; the run whose worker went last is last. */
  private readonly gone = new Map<string, RunTelemetry>();

  constructor(private readonly ledger: Pick<Ledger, 'isLeased' | 'state' | 'touch'>) {
    // Another scheduler has seen all of it, so it is not of this one's time.
    for (const [run, sums] of ledger.state.runs)
      this.gone.set(run, { ...sums, inheritedSamples: sums.samples });
  }

  onReport(from: PeerId, report: WorkerReport, now: number): void {
    if (!this.ledger.isLeased(from)) return;
    const known = this.known.get(from);
    if (!known && this.known.size >= MAX_WORKERS) return;
    this.known.set(from, { at: now, report, inherited: known?.inherited ?? report.samples });
  }

  /** The session of the worker has ended: it will not report any more. */
  ended(id: PeerId): void {
    const worker = this.known.get(id);
    if (!worker) return;
    this.known.delete(id);
    const { run } = worker.report;
    if (run.length > MAX_RUN_NAME) return;
    const sums = this.gone.get(run) ?? nothing(run);
    this.gone.delete(run);
    this.put(run, added(sums, worker));
    if (this.gone.size > MAX_RUNS) this.put(this.gone.keys().next().value!, undefined);
  }

  private put(run: string, sums: RunTelemetry | undefined): void {
    const { ledger, gone } = this;
    for (const runs of [gone, ledger.state.runs]) {
      if (sums) runs.set(run, sums);
      else runs.delete(run);
    }
    ledger.touch(runKey(run));
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

function added(sums: RunTelemetry, { report, inherited }: KnownWorker): RunTelemetry {
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
