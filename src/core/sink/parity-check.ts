/**
 * A check of the parity equation on every block of one sink. It is a recovery in which nobody lacks anything:
 * the accumulator starts as a copy of the parity, every member's content is subtracted at its stream
 * position, and what is left must be zero. Because it rides on the streams it needs no pause, and runs
 * against live traffic.
 */
import type { BlockList, CompletedBlocks, NativeSink } from '../../native.js';
import type { PeerId } from '../../protocol/map.js';
import { without } from '../shared/blocks.js';

/** Blocks under check at once. */
const WINDOW = 256;
/** How often blocks of a chunk are looked at again because a member said that it lacks them. */
const MAX_ATTEMPTS = 16;

export class Check {
  private cursor = 0;
  private chunkStart = 0;
  private before: [number, number, number] = [0, 0, 0];
  private waiting = 0;
  private attempts = 0;
  /** Blocks of the chunk that have an accumulator of a recovery; checked once that is gone. */
  private deferred: BlockList | undefined;
  private checkedBlocks = 0;
  private unprotected = 0;
  private mismatched = 0;
  done = false;

  /** Numbers of the messages that ask for it: a client repeats its question under a new one. */
  readonly ids: number[];

  constructor(
    id: number,
    readonly from: PeerId,
    private readonly native: NativeSink,
    private readonly want: (blocks: BlockList) => void,
  ) {
    this.ids = [id];
  }

  /** Accumulators were dropped: what was under way starts again. */
  restart(): void {
    if (this.waiting === 0 && !this.deferred) return;
    this.cursor = this.chunkStart;
    this.waiting = 0;
    this.deferred = undefined;
    [this.checkedBlocks, this.unprotected, this.mismatched] = this.before;
    this.pump();
  }

  /** Starts chunks until one has something to wait for, or there are no more. */
  pump(): void {
    while (!this.done && this.waiting === 0) {
      const blocks = this.deferred ?? this.native.allBlocks(this.cursor, WINDOW);
      if (blocks.length === 0) {
        this.done = true;
        return;
      }
      if (!this.deferred) {
        this.before = [this.checkedBlocks, this.unprotected, this.mismatched];
        this.chunkStart = this.cursor;
        this.cursor += blocks.length / 2;
        this.attempts = 0;
      }
      if (!this.begin(blocks)) return;
    }
  }

  completed(done: CompletedBlocks): void {
    const count = done.blocks.length / 2;
    if (this.waiting === 0) return;
    this.waiting -= count;
    if (done.lacking.length > 0 && this.attempts < MAX_ATTEMPTS) {
      // The Lacking may be an old one that came late, so the block is checked again before it is reported.
      this.attempts++;
      this.deferred = Uint32Array.from([...(this.deferred ?? []), ...done.blocks]);
    } else if (done.lacking.length > 0) this.unprotected += count;
    else {
      this.checkedBlocks += count;
      this.mismatched += done.nonZero;
    }
    if (!this.deferred) this.pump();
  }

  result(): { checked: number; unprotected: number; mismatched: number; unknown: boolean } {
    const { checkedBlocks: checked, unprotected, mismatched } = this;
    return { checked, unprotected, mismatched, unknown: false };
  }

  /** False when all of them are being recovered right now: they are tried again at the next tick. */
  private begin(blocks: BlockList): boolean {
    const created = this.native.check(blocks);
    const rest = created.length < blocks.length ? without(blocks, created) : blocks.subarray(0, 0);
    this.deferred = rest.length > 0 ? rest : undefined;
    this.waiting = created.length / 2;
    if (created.length > 0) this.want(created);
    return created.length > 0;
  }
}
