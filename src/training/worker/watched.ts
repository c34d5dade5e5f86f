/** Figures of a worker while it works: for its metrics, its reports and its TensorBoard events. */
import type { Client } from '../../library/client/client.js';
import type { WorkerReport } from '../../protocol/telemetry.js';
import type { Readings } from '../../roles/metrics/registry.js';
import { processTelemetry } from '../../roles/process-telemetry.js';
import type { Spool } from '../loop/spool.js';
import { StepClock } from '../loop/step-clock.js';
import type { WorkerProgress } from './progress.js';

export class WatchedWorker {
  readonly clock = new StepClock();
  feed = { unsettled: 0 };
  progress: WorkerProgress | undefined;
  client: Client | undefined;

  constructor(
    private readonly name: string,
    private readonly run: string,
    private readonly spool: Spool | undefined,
  ) {}

  get state(): { samples: number; loss: number } {
    return this.progress?.state ?? { samples: 0, loss: 0 };
  }

  metrics(): Readings<'worker'> {
    const { clock, state } = this;
    const { read, pull, push } = clock.seconds;
    const range = clock.idleSeconds;
    return {
      kintsugi_samples_total: state.samples,
      kintsugi_loss: state.loss,
      kintsugi_step_duration_seconds: clock.durations().map(([phase, told]) => [{ phase }, told]),
      kintsugi_productive_seconds_total: clock.productiveSeconds,
      kintsugi_wait_seconds_total: new Map(Object.entries({ read: read - range, pull, push, range })),
      kintsugi_staleness_batches: this.feed.unsettled,
      kintsugi_pushes_in_flight: this.client?.unacknowledged ?? 0,
      kintsugi_spool_lead_bytes: this.spool?.lead,
    };
  }

  report(): WorkerReport {
    const { name, run, clock, state } = this;
    return {
      name,
      run,
      ...processTelemetry(),
      samples: state.samples,
      batches: clock.batches,
      phaseSeconds: { ...clock.seconds },
      idleSeconds: clock.idleSeconds,
      productiveSeconds: clock.productiveSeconds,
      stalenessBatches: this.feed.unsettled,
      ...(state.samples > 0 && Number.isFinite(state.loss) && { loss: state.loss }),
    };
  }
}
