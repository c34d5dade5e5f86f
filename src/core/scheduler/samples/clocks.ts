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
  /** It holds a lease. */
  works: boolean;
}

export class Clocks {
  private readonly clocks = new Map<PeerId, Clock>();
  private readonly asking = new Map<PeerId, { id: number; begun: number }>();

  constructor(private readonly staleness: number) {}

  private slowest(): number | undefined {
    let least: number | undefined;
    for (const { base, durable, works } of this.clocks.values())
      if (works) least = Math.min(least ?? Number.POSITIVE_INFINITY, base + durable);
    return least;
  }

  /** A worker has made so many batches durable. */
  saw(worker: PeerId, durable: number): void {
    const clock = this.clocks.get(worker);
    if (clock) clock.durable = Math.max(clock.durable, durable);
    else this.clocks.set(worker, { base: (this.slowest() ?? 0) - durable, durable, works: false });
  }

  /** The worker has a lease now. The time that it waited for one does not make it the slowest. */
  start(worker: PeerId): void {
    const clock = this.clocks.get(worker);
    if (!clock || clock.works) return;
    const least = this.slowest() ?? 0;
    clock.base = Math.max(clock.base, least - clock.durable);
    clock.works = true;
  }

  /** Its session is over: it never comes back. */
  forget(worker: PeerId): void {
    this.clocks.delete(worker);
    this.asking.delete(worker);
  }

  stop(worker: PeerId): void {
    const clock = this.clocks.get(worker);
    if (clock) clock.works = false;
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
