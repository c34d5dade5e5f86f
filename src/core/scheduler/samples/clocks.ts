/**
 * Bounded staleness: no worker begins a batch when it has begun more than N beyond what the slowest has made
 * durable. Only workers that hold a lease count, so one that died holds nobody back; one that joins starts
 * where the slowest is.
 */
import type { PeerId } from '../../../protocol/map.js';
import { UNBOUNDED } from '../../../protocol/samples.js';

interface Clock {
  /** Added to a worker's own count. */
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

  /** It has a lease now. Having waited for one, it is not behind. */
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

  /** Who may go on now, and up to which count of its own. */
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
