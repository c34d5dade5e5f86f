/**
 * Every process of the job is killed at once, again and again, and the job is started again with its newest
 * checkpoint. What must be in it is checked each time (restored.ts).
 */

import { KintsugiError } from '../../src/common/errors.js';
import { numberOf, type RoleEvent } from '../../src/fleet/local/events.js';
import { seededRandom } from '../../src/fleet/local/kills.js';
import type { Client } from '../../src/library/client/client.js';
import { monotonicMs } from '../../src/net/log.js';
import { checkpointNumbers } from '../../src/stores/checkpoint/checkpoints.js';
import { withPlace } from '../../src/stores/checkpoint/open.js';
import type { LoadClient } from './clients.js';
import { between, pause } from './pause.js';
import { changedSince, damaged, type Held, RestoreChecker, type RestoredCounts } from './restored.js';

/** One kill of every process, and the restore after it. */
export interface Restart extends RestoredCounts {
  /** Number of the checkpoint. */
  checkpoint: number;
  /** Clients that were killed since the last time. */
  clients: number;
  /** Number of further kills while the job was restored. */
  again: number;
  /** From the kill to a job in which every shard serves. */
  seconds: number;
}

/** One restore out of so many is killed, too. */
const AGAIN_EVERY = 4;
/** After it began, or after its PS were ready; then they have something to load. */
const AGAIN_MS: [least: number, most: number] = [0, 2000];
const AGAIN_READY_MS: [least: number, most: number] = [0, 600];

export class Restarts {
  readonly all: Restart[] = [];
  /** Pushes of killed clients that are in the job. */
  readonly held: Held[] = [];
  /** When each checkpoint began. */
  private readonly begun = new Map<number, number>();
  private done: (number: number) => void = () => {};
  private readonly random: () => number;

  constructor(
    private readonly url: string,
    private readonly barrier: boolean,
    private readonly pauseMs: [least: number, most: number],
    seed: number,
  ) {
    this.random = seededRandom(seed);
  }

  onEvent(event: RoleEvent): void {
    if (event.event === 'checkpoint.begun') this.begun.set(numberOf(event, 'number'), event.mono);
    if (event.event === 'checkpoint.done') this.done(numberOf(event, 'number'));
  }

  /**
   * Resolves when everything is to be killed. Not before a checkpoint has been made, of a time when clients
   * were at work already.
   */
  async due(): Promise<void> {
    const from = monotonicMs();
    const made = new Promise<void>((resolve) => {
      this.done = (number) => {
        if ((this.begun.get(number) ?? 0) >= from) resolve();
      };
    });
    await pause(between(this.random, ...this.pauseMs));
    if (this.all.length === 0) await made;
  }

  /** When a restore that begins is killed; undefined: it is left alone. `ready`: its PS are. */
  killedAgain(ready: Promise<void>): Promise<void> | undefined {
    if (this.random() % AGAIN_EVERY > 0) return undefined;
    if (this.random() % 2 === 0) return pause(between(this.random, ...AGAIN_MS));
    const afterMs = between(this.random, ...AGAIN_READY_MS);
    return ready.then(() => pause(afterMs));
  }

  /** The newest checkpoint. @throws INTERNAL when one that is listed is damaged, or none is left */
  async newest(): Promise<number> {
    const numbers = await withPlace(this.url, checkpointNumbers);
    const wrong = await damaged(this.url, numbers);
    const newest = numbers.at(-1);
    if (newest === undefined) wrong.push(`${this.url} has no checkpoint`);
    if (wrong.length > 0) throw new KintsugiError('INTERNAL', wrong.join('; '));
    return newest!;
  }

  /** Compares the job with what the clients that were killed had told. @returns what is wrong */
  async check(
    client: Client,
    checkpoint: number,
    gone: readonly LoadClient[],
    again: number,
    killedAt: number,
  ): Promise<string[]> {
    const checker = new RestoreChecker(client, this.begun.get(checkpoint) ?? 0, this.barrier);
    const { counts, held, wrong } = await checker.check(this.url, checkpoint, gone);
    wrong.push(...(await changedSince(client, this.held)));
    this.held.push(...held);
    const seconds = (monotonicMs() - killedAt) / 1000;
    this.all.push({ checkpoint, clients: gone.length, again, seconds, ...counts });
    return wrong;
  }
}
