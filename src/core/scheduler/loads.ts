/** The weight of each shard, from heartbeats: its bytes, and its requests per second. */
import type { Weight } from '../placement/balance.js';

/**
 * The moving average forgets a part 1 - 1/e of what was in this time, however often it hears of the shard. A
 * placement must not follow every short burst.
 */
const LEARN_MS = 1000;
/** Shorter intervals are too noisy to measure a rate. */
const LEAST_MS = 100;

interface KnownLoad extends Weight {
  /** Requests that its holder had counted at `at` (milliseconds). */
  count: number;
  at: number;
}

export class Loads {
  /** By group and seat. */
  private readonly known: (KnownLoad | undefined)[][] = [];

  /** `count`: requests or deltas that the holder of this seat has counted since it has it. */
  update(g: number, seat: number, bytes: number, count: number, now: number): void {
    this.known[g] ??= [];
    const before = this.known[g][seat];
    // A new holder counts from zero.
    if (!before || count < before.count) {
      this.known[g][seat] = { bytes, load: before?.load ?? 0, count, at: now };
      return;
    }
    before.bytes = bytes;
    if (now - before.at < LEAST_MS) return;
    const rate = ((count - before.count) * 1000) / (now - before.at);
    before.load += (1 - Math.exp((before.at - now) / LEARN_MS)) * (rate - before.load);
    before.count = count;
    before.at = now;
  }

  weight(g: number, seat: number): Weight {
    const { bytes, load } = this.known[g]?.[seat] ?? { bytes: 0, load: 0 };
    return { bytes, load };
  }
}
