/**
 * Stand-in for a model in the training of a benchmark: a fixed amount of arithmetic, on a thread of its own,
 * as a worker computes.
 */
import { isMainThread, parentPort, Worker } from 'node:worker_threads';

/** About a millisecond's: time alone would hide that others take the core away. */
function computeUnit(): number {
  let value = 0.5;
  for (let i = 0; i < 700_000; i++) value = value * 0.999 + 0.001;
  return value;
}

if (!isMainThread) {
  parentPort!.on('message', (units: number) => {
    let sum = 0;
    for (let unit = 0; unit < units; unit++) sum += computeUnit();
    // The sum keeps the work from being optimised away.
    parentPort!.postMessage(sum);
  });
}

export class Arithmetic {
  private readonly thread = new Worker(new URL(import.meta.url));

  /** Computes `units`. The caller waits for one call before the next. */
  compute(units: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.thread.once('error', reject);
      this.thread.once('message', () => {
        this.thread.off('error', reject);
        resolve();
      });
      this.thread.postMessage(units);
    });
  }

  async close(): Promise<void> {
    await this.thread.terminate();
  }
}
