/**
 * A check of the parity equation on every block of one sink. It is a recovery in which nobody lacks anything: the
 * accumulator starts as a copy of the parity, every member's content is subtracted at its stream position, and what is left
 * must be zero. Because it rides on the streams it needs no pause, and runs against live traffic.
 */
import type { BlockList, CompletedBlocks, NativeSink } from '../native.js';
import type { PeerId } from '../protocol/map.js';

/** Blocks under check at once. */
const WINDOW = 256;

export class Check {
  private cursor = 0;
  private chunkStart = 0;
  private before: [number, number, number] = [0, 0, 0];
  private waiting = 0;
  private checkedBlocks = 0;
  private unprotected = 0;
  private mismatched = 0;
  done = false;

  constructor(
    private readonly id: number,
    readonly from: PeerId,
    private readonly native: NativeSink,
    private readonly want: (blocks: BlockList) => void,
  ) {}

  /** Accumulators were dropped: what was under way starts again. */
  restart(): void {
    if (this.waiting === 0) return;
    this.cursor = this.chunkStart;
    this.waiting = 0;
    [this.checkedBlocks, this.unprotected, this.mismatched] = this.before;
    this.pump();
  }

  /** Starts chunks until one has something to wait for, or there are no more. */
  pump(): void {
    while (!this.done && this.waiting === 0) {
      const blocks = this.native.allBlocks(this.cursor, WINDOW);
      if (blocks.length === 0) {
        this.done = true;
        return;
      }
      this.before = [this.checkedBlocks, this.unprotected, this.mismatched];
      this.chunkStart = this.cursor;
      this.cursor += blocks.length / 2;
      this.begin(blocks);
    }
  }

  completed(done: CompletedBlocks): void {
    const count = done.blocks.length / 2;
    if (this.waiting === 0) return;
    this.waiting -= count;
    if (done.lacking.length > 0) this.unprotected += count;
    else {
      this.checkedBlocks += count;
      this.mismatched += done.nonZero;
    }
    this.pump();
  }

  result(): { id: number; checked: number; unprotected: number; mismatched: number; unknown: boolean } {
    const { id, checkedBlocks: checked, unprotected, mismatched } = this;
    return { id, checked, unprotected, mismatched, unknown: false };
  }

  private begin(blocks: BlockList): void {
    const created = this.native.check(blocks);
    if (created.length > 0) this.want(created);
    this.waiting = created.length / 2;
    // Blocks with an accumulator already are being recovered right now: somebody lacks them.
    this.unprotected += (blocks.length - created.length) / 2;
  }
}
