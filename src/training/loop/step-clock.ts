/**
 * Where the seconds of a training loop go: waiting for samples, waiting for rows, the model, waiting for room
 * for another push. Work that overlaps with the model's is not waited for and does not count.
 */
import { Durations } from '../../core/shared/meter.js';
import { type Histogram, WORKER_PHASES, type WorkerPhase } from '../../protocol/telemetry.js';

export class StepClock {
  readonly seconds: Record<WorkerPhase, number> = { read: 0, pull: 0, compute: 0, push: 0 };
  /** The part of `read` in which there was no range to lease. */
  idleSeconds = 0;
  /** The part of `compute` for batches that nobody had begun before. */
  productiveSeconds = 0;
  batches = 0;
  /** Milliseconds of each batch in each phase. */
  private readonly steps = {
    read: new Durations(),
    pull: new Durations(),
    compute: new Durations(),
    push: new Durations(),
  };
  private before = { ...this.seconds };
  private readingSince: number | undefined;
  private starvingSince: number | undefined;

  constructor(private readonly now: () => number = () => performance.now()) {}

  /** Waits for `promise` in this phase. */
  async during<T>(phase: WorkerPhase, promise: Promise<T>): Promise<T> {
    const since = this.now();
    if (phase === 'read') this.readingSince = since;
    try {
      return await promise;
    } finally {
      const now = this.now();
      this.seconds[phase] += (now - since) / 1000;
      if (phase === 'read') this.readingSince = undefined;
      if (phase === 'read' && this.starvingSince !== undefined) {
        this.idleSeconds += (now - Math.max(since, this.starvingSince)) / 1000;
        this.starvingSince = now;
      }
    }
  }

  /** Waits for a range of samples, while the loop may still have batches. */
  async starving<T>(promise: Promise<T>): Promise<T> {
    this.starvingSince = this.now();
    try {
      return await promise;
    } finally {
      const since = this.starvingSince;
      this.starvingSince = undefined;
      if (this.readingSince !== undefined)
        this.idleSeconds += (this.now() - Math.max(since, this.readingSince)) / 1000;
    }
  }

  /** The model took so long for a batch. */
  computed(since: number, again: boolean): void {
    const seconds = (this.now() - since) / 1000;
    this.seconds.compute += seconds;
    if (!again) this.productiveSeconds += seconds;
    this.batches++;
    // Room for the push of a batch is waited for after its compute, so it counts with the next batch.
    for (const phase of WORKER_PHASES)
      this.steps[phase].add(1000 * (this.seconds[phase] - this.before[phase]));
    this.before = { ...this.seconds };
  }

  durations(): [WorkerPhase, Histogram][] {
    return WORKER_PHASES.map((phase) => [phase, this.steps[phase].read()]);
  }

  get time(): number {
    return this.now();
  }
}
