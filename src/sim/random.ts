/**
 * The simulator's only source of randomness: a schedule is a function of its seed. (mulberry32, public
 * domain)
 */
export class Random {
  /** The state of 32 bits, as a signed number because those are the cheapest. */
  private state: number;

  constructor(seed: number) {
    this.state = Math.imul(seed, 2654435761) ^ 0x5bd1e995;
    for (let i = 0; i < 4; i++) this.next();
  }

  /** Uniform in [0, 1). */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }

  /** Uniform integer in [0, n). */
  below(n: number): number {
    return Math.floor(this.next() * n);
  }

  chance(p: number): boolean {
    return this.next() < p;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)]!;
  }
}
