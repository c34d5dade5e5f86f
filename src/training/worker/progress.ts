/** How far a worker is, told at a limited rate: as events for a launcher, or as a bar on a terminal. */
import cliProgress from 'cli-progress';
import { type Logger, monotonicMs } from '../../net/log.js';
import type { StepClock } from '../loop/step-clock.js';

/** Least time between two progress events: short enough to place a failure on the time axis. */
const PROGRESS_MS = 50;

export class WorkerProgress {
  private readonly bar: cliProgress.SingleBar | undefined;
  private told = Number.NEGATIVE_INFINITY;
  private samples = 0;
  private loss = 0;

  /** @param rows samples of the whole training, for a bar; undefined: events */
  constructor(
    private readonly log: Logger,
    private readonly clock: StepClock,
    rows: number | undefined,
  ) {
    if (rows === undefined) return;
    this.bar = new cliProgress.SingleBar({
      format: '[{bar}] {percentage} % | {value}/{total} samples | loss {loss} | {eta_formatted} left',
      hideCursor: true,
    });
    this.bar.start(rows, 0, { loss: '-' });
  }

  get state(): { samples: number; loss: number } {
    return { samples: this.samples, loss: this.loss };
  }

  update(samples: number, loss: number): void {
    this.samples = samples;
    this.loss = loss;
    if (monotonicMs() - this.told >= PROGRESS_MS) this.tell();
  }

  private tell(): void {
    this.told = monotonicMs();
    if (this.bar) this.bar.update(this.samples, { loss: this.loss.toFixed(4) });
    else {
      const { samples, loss } = this;
      this.log.info('worker.progress', { samples, loss, productiveSeconds: this.clock.productiveSeconds });
    }
  }

  end(): void {
    this.tell();
    this.bar?.stop();
  }
}
