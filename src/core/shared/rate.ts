/**
 * The configured limit of work in the background: a token bucket that ticks fill, because the core has no
 * clock. Without a configured limit the pace of the node decides (pace.ts).
 */

import { BLOCK_BYTES, BURST_MS, burst, type Pace } from './pace.js';
import type { Policy } from './policy.js';

/** Blocks under way, and in one message. */
export interface Reach {
  window: number;
  chunk: number;
}

/**
 * While requests are served, windows and messages are smaller by these factors, because requests wait behind
 * a large message.
 */
const NARROW_WINDOW = 4;
const NARROW_CHUNK = 2;

/** Without requests: few large messages cost the least. */
export function widest({ recoveryWindow, recoveryChunk }: Policy): Reach {
  return { window: recoveryWindow, chunk: recoveryChunk };
}

export class RateLimit {
  private allowance = 0;
  private last: number | undefined;

  constructor(
    private readonly bytesPerSecond: number,
    private readonly pace: Pace,
    private readonly what: 'rows' | 'parity' | 'move' | 'save',
  ) {}

  tick(now: number): void {
    if (this.bytesPerSecond <= 0) return;
    const elapsed = this.last === undefined ? BURST_MS : now - this.last;
    this.last = now;
    const grown = this.allowance + (this.bytesPerSecond * elapsed) / 1000;
    this.allowance = Math.min(burst(this.bytesPerSecond), grown);
  }

  get open(): boolean {
    if (this.bytesPerSecond > 0) return this.within;
    const { open, openForParities, openForMoves, openForSaves } = this.pace;
    return { rows: open, parity: openForParities, move: openForMoves, save: openForSaves }[this.what];
  }

  /** The configured limit, if there is one, allows more. */
  get within(): boolean {
    return this.bytesPerSecond <= 0 || this.allowance > 0;
  }

  /** How much to ask for at once. */
  reach(policy: Policy): Reach {
    const { window, chunk } = widest(policy);
    const wide = this.what === 'move' ? this.pace.wideForMoves : this.pace.wide;
    if (this.bytesPerSecond <= 0 && wide) return { window, chunk };
    return { window: Math.ceil(window / NARROW_WINDOW), chunk: Math.ceil(chunk / NARROW_CHUNK) };
  }

  take(blocks: number): void {
    if (this.what === 'move') this.pace.takeForMove(blocks);
    else if (this.what === 'save') this.pace.takeForSave(blocks);
    else this.pace.take(blocks);
    if (this.bytesPerSecond > 0) this.allowance -= blocks * BLOCK_BYTES;
  }
}
