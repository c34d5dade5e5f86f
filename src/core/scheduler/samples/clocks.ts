/**
 * Bounded staleness: a worker does not begin a batch that is more than N ahead of what the slowest worker has
 * made durable. Only workers with a lease count, so a dead worker does not hold others back. A worker that
 * joins starts at the clock of the slowest.
 */
import type { PeerId } from '../../../protocol/map.js';
import { UNBOUNDED } from '../../../protocol/samples.js';

interface Clock {
  /** Offset between the worker's own count and the common clock. */
  base: number;
  /** Batches that it has made durable, by its own count. */
  durable: number;
  /** The worker holds a lease, so it may be the slowest. */
  works: boolean;
}

export class Clocks {
  private readonly clocks = new Map<PeerId, Clock>();
  /** Workers that wait, with their request and the batch that they want to begin. */
  private readonly asking = new Map<PeerId, { id: number; begun: number }>();
  /** The time of the slowest workers, and their number; undefined: they must be found anew. */
  private least: { time: number; count: number } | undefined;

  constructor(private readonly staleness: number) {}

  private slowest(): number | undefined {
    this.least ??= this.find();
    return this.least.count > 0 ? this.least.time : undefined;
  }

  private find(): { time: number; count: number } {
    const least = { time: Number.POSITIVE_INFINITY, count: 0 };
    for (const { base, durable, works } of this.clocks.values()) {
      const time = base + durable;
      if (!works || time > least.time) continue;
      least.count = time < least.time ? 1 : least.count + 1;
      least.time = time;
    }
    return least;
  }

  /**
   * Changes a clock. The clocks are searched for a new least only when the last of the slowest workers has
   * advanced, because thousands of workers report every batch.
   */
  private change(clock: Clock, change: (clock: Clock) => void): void {
    const before = clock.works ? clock.base + clock.durable : Number.POSITIVE_INFINITY;
    change(clock);
    const after = clock.works ? clock.base + clock.durable : Number.POSITIVE_INFINITY;
    if (!this.least || before === after) return;
    if (after < this.least.time) this.least = undefined;
    else if (after === this.least.time) this.least.count++;
    else if (before === this.least.time && --this.least.count === 0) this.least = undefined;
  }

  /** A worker has made so many batches durable. */
  saw(worker: PeerId, durable: number): void {
    const clock = this.clocks.get(worker);
    if (clock)
      this.change(clock, (each) => {
        each.durable = Math.max(each.durable, durable);
      });
    else this.clocks.set(worker, { base: (this.slowest() ?? 0) - durable, durable, works: false });
  }

  /** The worker has a lease now. The time that it waited for one does not make it the slowest. */
  start(worker: PeerId): void {
    const clock = this.clocks.get(worker);
    if (!clock || clock.works) return;
    const least = this.slowest() ?? 0;
    this.change(clock, (each) => {
      each.base = Math.max(each.base, least - each.durable);
      each.works = true;
    });
  }

  /** The session of the worker is over: it never comes back. */
  forget(worker: PeerId): void {
    this.stop(worker);
    this.clocks.delete(worker);
  }

  stop(worker: PeerId): void {
    const clock = this.clocks.get(worker);
    if (clock)
      this.change(clock, (each) => {
        each.works = false;
      });
    this.asking.delete(worker);
  }

  ask(worker: PeerId, id: number, begun: number): void {
    if (!this.clocks.has(worker)) this.saw(worker, begun);
    this.asking.set(worker, { id, begun });
  }

  /** Workers that may continue now, each with the limit in its own count. */
  granted(): { worker: PeerId; id: number; until: number }[] {
    const answers: { worker: PeerId; id: number; until: number }[] = [];
    for (const [worker, { id, begun }] of this.asking) {
      const until = this.until(worker);
      if (begun > until) continue;
      this.asking.delete(worker);
      answers.push({ worker, id, until });
    }
    return answers;
  }

  private until(worker: PeerId): number {
    if (this.staleness === UNBOUNDED) return UNBOUNDED;
    const least = this.slowest();
    const clock = this.clocks.get(worker);
    if (least === undefined || !clock) return UNBOUNDED;
    return least + this.staleness - clock.base;
  }
}
