/** What a worker tells the scheduler of itself: nobody can call it, and so it can be observed. */
import { internalsOf } from '../client/internals.js';
import type { WorkerReport } from '../protocol/telemetry.js';
import { processTelemetry } from '../runtime/process-telemetry.js';
import type { StepClock } from '../train/step-clock.js';

const REPORT_MS = 5000;

/** What is known of the training. */
export interface Trained {
  name: string;
  run: string;
  samples(): number;
  /** Undefined before the first batch. */
  loss(): number | undefined;
  stalenessBatches(): number;
  clock: StepClock;
}

export function reportOf(trained: Trained): WorkerReport {
  const { name, run, clock } = trained;
  const loss = trained.loss();
  return {
    name,
    run,
    ...processTelemetry(),
    samples: trained.samples(),
    batches: clock.batches,
    phaseSeconds: { ...clock.seconds },
    idleSeconds: clock.idleSeconds,
    productiveSeconds: clock.productiveSeconds,
    stalenessBatches: trained.stalenessBatches(),
    ...(loss !== undefined && Number.isFinite(loss) && { loss }),
  };
}

/** Reports every few seconds, and a last time when it is ended. */
export function startReporting(client: object, trained: Trained): { end(): void } {
  const { session } = internalsOf(client);
  const report = () => session.tell({ t: 'workerReport', report: reportOf(trained) });
  const timer = setInterval(report, REPORT_MS).unref();
  report();
  return {
    end: () => {
      clearInterval(timer);
      report();
    },
  };
}
