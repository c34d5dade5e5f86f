/**
 * The limit of background recovery that was asked for: a token bucket, filled by ticks, because the core has no clock of its
 * own. Where none was given, the pace of the node decides (pace.ts).
 */
import { BLOCK_BYTES, BURST_MS, burst, type Pace } from './pace.js';

export class RateLimit {
  private allowance = 0;
  private last: number | undefined;

  constructor(
    private readonly bytesPerSecond: number,
    private readonly pace: Pace,
  ) {}

  tick(now: number): void {
    if (this.bytesPerSecond <= 0) return;
    const elapsed = this.last === undefined ? BURST_MS : now - this.last;
    this.last = now;
    const grown = this.allowance + (this.bytesPerSecond * elapsed) / 1000;
    this.allowance = Math.min(burst(this.bytesPerSecond), grown);
  }

  get open(): boolean {
    return this.bytesPerSecond > 0 ? this.allowance > 0 : this.pace.open;
  }

  take(blocks: number): void {
    this.pace.take(blocks);
    if (this.bytesPerSecond > 0) this.allowance -= blocks * BLOCK_BYTES;
  }
}
