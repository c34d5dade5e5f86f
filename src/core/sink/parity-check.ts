/**
 * A check of the parity equation on every block of one sink. It is a recovery in which no member lacks
 * anything: the accumulator starts as a copy of the parity, every member's content is subtracted at its
 * stream position, and the rest must be zero. It uses the streams, so it needs no pause of requests.
 */
import type { BlockList, CompletedBlocks, NativeSink } from '../../engine/native.js';
import type { PeerId } from '../../protocol/map.js';
import { without } from '../shared/blocks.js';

/** Blocks under check at once. */
const WINDOW = 256;
/** Rounds in which blocks of a chunk are checked again because a member said that it lacks them. */
const MAX_ATTEMPTS = 16;

export class ParityComparison {
  /** Number of the first block after the chunk, in the engine's order of all blocks. */
  private cursor = 0;
  /** Number of the first block of the chunk. */
  private chunkStart = 0;
  /** The three counts as they were before the chunk, for a restart of the chunk. */
  private before: [number, number, number] = [0, 0, 0];
  /** Blocks of the chunk with an accumulator that is not completed. */
  private waiting = 0;
  /** Rounds of this chunk in which blocks were deferred because a member lacked them. */
  private attempts = 0;
  /** Blocks of the chunk to check again: a recovery had their accumulator, or a member lacked them. */
  private deferred: BlockList | undefined;
  /** Blocks that were compared. A restart takes this and the next two counts back to `before`. */
  private checkedBlocks = 0;
  /** Blocks that were not compared, because a member lacks them. */
  private unprotected = 0;
  /** Compared blocks in which the parity is wrong. */
  private mismatched = 0;
  /** All blocks were checked: the result is final. */
  done = false;

  /** Numbers of the messages that ask for this check: a client repeats its question under a new one. */
  readonly ids: number[];

  constructor(
    id: number,
    readonly from: PeerId,
    private readonly native: NativeSink,
    private readonly want: (blocks: BlockList) => void,
  ) {
    this.ids = [id];
  }

  /** Begins the chunk again, because its accumulators were dropped. */
  restart(): void {
    if (this.waiting > 0 || this.deferred) this.again();
  }

  /** Begins again: a table is gone, so the blocks have other numbers. */
  restartAll(): void {
    if (this.done) return;
    this.before = [0, 0, 0];
    this.chunkStart = 0;
    this.again();
  }

  private again(): void {
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

  /** False when all of these blocks are being recovered: they are tried again at the next tick. */
  private begin(blocks: BlockList): boolean {
    const created = this.native.check(blocks);
    const rest = created.length < blocks.length ? without(blocks, created) : blocks.subarray(0, 0);
    this.deferred = rest.length > 0 ? rest : undefined;
    this.waiting = created.length / 2;
    if (created.length > 0) this.want(created);
    return created.length > 0;
  }
}
