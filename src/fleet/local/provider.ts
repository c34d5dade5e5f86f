/** The provider of this machine: it changes the job, and has a crew start and end the processes. */

import { KintsugiError } from '../../common/errors.js';
import type { Client } from '../../library/client/client.js';
import { rebalance, scale } from '../../library/tools/scaling.js';
import type { Provider } from '../autoscale/provider.js';

/** A change of PS without progress for so long is taken back. */
const CHANGE_MS = 60_000;

/** The processes of a run. */
export interface Crew {
  /** Starts one more PS; resolves when it has joined. */
  startPs(): Promise<void>;
  /** Names of the workers that train or are about to, in the order of their starts. */
  workers(): readonly string[];
  startWorker(): void;
  /** Ends a worker after its batch; it is killed where that takes long. */
  endWorker(name: string): void;
}

export class LocalProvider implements Provider {
  constructor(
    private readonly client: Client,
    private readonly crew: Crew,
  ) {}

  get workers(): number {
    return this.crew.workers().length;
  }

  async scalePs(count: number): Promise<void> {
    const { serving } = (await this.client.status()).scaling;
    const changing = scale(this.client, count, { timeoutMs: CHANGE_MS });
    changing.catch(() => {});
    await Promise.all(Array.from({ length: Math.max(0, count - serving) }, () => this.crew.startPs()));
    await changing;
  }

  async scaleWorkers(count: number): Promise<void> {
    const now = this.crew.workers();
    for (let missing = count - now.length; missing > 0; missing--) this.crew.startWorker();
    for (const name of now.slice(count)) this.crew.endWorker(name);
  }

  async replaceWorker(name: string): Promise<void> {
    if (!this.crew.workers().includes(name))
      throw new KintsugiError('BAD_ARGUMENT', `there is no worker "${name}"`);
    // The old worker is ended first: one that cannot be ended is not doubled.
    this.crew.endWorker(name);
    this.crew.startWorker();
  }

  async rebalance(): Promise<void> {
    await rebalance(this.client, { timeoutMs: CHANGE_MS });
  }
}
