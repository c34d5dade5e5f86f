/**
 * The configured limit of work in the background: a token bucket that ticks fill, because the core has no
 * clock. Without a configured limit the pace of the node decides (pace.ts).
 */

import { BLOCK_BYTES } from '../../protocol/blocks.js';
import { BURST_MS, burst, type Pace } from './pace.js';
import type { Policy } from './policy.js';

/** The most blocks under way (`window`), and in one message (`chunk`). */
export interface BlockReach {
  window: number;
  chunk: number;
}

/**
 * While requests are served, windows and messages are smaller by these factors, because requests wait behind
 * a large message.
 */
const NARROW_WINDOW = 4;
const NARROW_CHUNK = 2;

/** The reach without requests: few large messages cost the least. */
export function widest({ recoveryWindow, recoveryChunk }: Policy): BlockReach {
  return { window: recoveryWindow, chunk: recoveryChunk };
}

export class RateLimit {
  /** Bytes that may be asked for: at most a burst. `take` makes it negative by at most one message. */
  private allowance = 0;
  /** When `tick` last ran, in milliseconds; undefined: never, so that the first tick gives a burst. */
  private last: number | undefined;

  constructor(
    /** 0: no limit is configured, and the pace decides. */
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

  /** Limits of the next questions: narrow ones while requests may wait behind their answers. */
  reach(policy: Policy): BlockReach {
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
