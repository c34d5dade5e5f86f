/**
 * One member's stream as a sink follows it. Rule 4: for each member a sink has its fence, the generation that
 * it follows, the applied and the trim position, the log between them, and de-duplication at the trim
 * position. The bytes and the included blocks are in the engine. A new owner may roll back the deltas of the
 * log, and asks for the state that is kept here.
 */
import { invariant, KintsugiError } from '../../common/errors.js';
import { BLOCK_BYTES } from '../../protocol/blocks.js';
import type { PeerId } from '../../protocol/map.js';
import type { StreamId } from '../../protocol/messages.js';
import { copied } from '../shared/bytes.js';
import { Dedup } from '../shared/dedup.js';
import type { CoreHost } from '../shared/host.js';
import { PATIENCE, Retry } from '../shared/retry.js';

interface LogEntry {
  /** Position of the delta in the stream. */
  seq: number;
  /** A copy of its own. */
  delta: Uint8Array;
  ids: StreamId[];
}

export class MemberStream {
  /** Highest generation that was promised: messages of older ones are ignored. Only rises (rule 12). */
  fence: number;
  /** Generation of the stream that is followed; 0: none yet. Never above `fence`; a Start sets it. */
  sgen: number;
  /** Position of the newest delta that the bytes include. A delta adds 1; only a Start takes it back. */
  applied = 0;
  /** Deltas up to this position are committed and can never be rolled back. Never above `applied`. */
  trim = 0;
  /** Blocks that are wanted for inclusion and have not come. */
  private underway = 0;
  /** Their bytes, as far as is known; the account of the node contains them. */
  private underwayBytes = 0;
  /** Bytes of a block in the newest content. */
  blockBytes = BLOCK_BYTES;
  /** The node of which they are wanted. */
  private giver: PeerId = 0;
  /** Wants of blocks for inclusion. Any answer of the owner to a Want counts. */
  readonly wanting: Retry;
  /** Wants of blocks that accumulators need. Any answer of the owner to a Want counts. */
  readonly pending: Retry;
  /** The deltas from `trim` + 1 to `applied`, without gaps. The account of the node contains their bytes. */
  private log: LogEntry[] = [];
  /** De-duplication state at `trim`: the ids of the log are not in it. */
  private dedup = new Dedup();

  constructor(
    generation: number,
    private readonly host: CoreHost,
  ) {
    this.fence = this.sgen = generation;
    const { retryMs: waitMs } = host.policy;
    this.wanting = new Retry({ waitMs });
    this.pending = new Retry({ waitMs, patience: PATIENCE });
  }

  /** Blocks that are wanted for inclusion and have not come. */
  get wanted(): number {
    return this.underway;
  }

  /** Blocks are wanted of `giver` for inclusion. */
  want(giver: PeerId, blocks: number): void {
    if (giver !== this.giver) this.giveUpWanted();
    this.giver = giver;
    this.underway += blocks;
    this.underwayBytes += blocks * this.blockBytes;
    this.host.contentBytes.addAsked(giver, blocks * this.blockBytes);
    this.wanting.asked(this.host.now);
  }

  /** Content of `blocks` blocks came in so many bytes, and `included` of them were missing. */
  cameIn(blocks: number, bytes: number, included: number): void {
    // One row can be larger than a block.
    if (blocks > 0) this.blockBytes = Math.max(BLOCK_BYTES, Math.ceil(bytes / blocks));
    this.countOff(Math.min(this.underway, included));
  }

  private countOff(blocks: number): void {
    const left = this.underway - blocks;
    const bytes = left === 0 ? this.underwayBytes : Math.floor((this.underwayBytes * blocks) / this.underway);
    this.underway = left;
    this.underwayBytes -= bytes;
    this.host.contentBytes.addAsked(this.giver, -bytes);
  }

  /** Blocks that are wanted are overdue, or will not come, and may be wanted again. */
  giveUpWanted(): void {
    this.countOff(this.underway);
  }

  /** The owner has answered a Want, with Content or Lacking. */
  answered(): void {
    this.wanting.answered(this.host.now);
    this.pending.answered(this.host.now);
  }

  /** Rule 12: promises to take nothing from a generation below `gen`. False: that was promised before. */
  raiseFence(gen: number): boolean {
    if (gen <= this.fence) return false;
    this.fence = gen;
    invariant(this.sgen <= this.fence, 'a stream that is followed was promised', { gen, sgen: this.sgen });
    return true;
  }

  /** Begins the stream of an empty sink at `base`. */
  begin(base: number, dedup: Dedup): void {
    this.applied = this.trim = base;
    this.dedup = dedup;
  }

  /** De-duplication state at the applied position. */
  dedupAtApplied(): Dedup {
    const dedup = this.dedup.copy();
    for (const entry of this.log) for (const id of entry.ids) dedup.record(id);
    return dedup;
  }

  /**
   * Rule 14: a delta is applied exactly at the next position. It is copied, because it may be rolled back.
   */
  append(seq: number, delta: Uint8Array, ids: StreamId[]): void {
    invariant(seq === this.applied + 1, 'deltas are applied in order, without gaps', {
      seq,
      applied: this.applied,
    });
    this.log.push({ seq, delta: copied(delta), ids });
    this.host.deltaBytes.addLogged(delta.byteLength);
    this.applied = seq;
  }

  /** @throws BAD_FRAME when this is not a position that the stream can go back to */
  checkBase(base: number): void {
    if (base < this.trim || base > this.applied)
      throw new KintsugiError(
        'BAD_FRAME',
        `a start at ${base}, which is not in ${this.trim}..${this.applied}`,
      );
  }

  /** Rule 13: a Start rolls a sink back to its base: deltas above it are taken back, newest first. */
  rollBack(base: number, takeBack: (delta: Uint8Array) => void): void {
    invariant(base >= this.trim, 'no roll-back below committed deltas', { base, trim: this.trim });
    invariant(base <= this.applied, 'a base that every sink has reached', { base, applied: this.applied });
    const kept = this.log.filter((entry) => entry.seq <= base);
    const undone = this.log.slice(kept.length);
    for (const entry of undone.toReversed()) takeBack(entry.delta);
    for (const entry of kept) for (const id of entry.ids) this.dedup.record(id);
    this.forget(this.log);
    this.applied = this.trim = base;
    this.log = [];
  }

  /** Drops the log up to `committed`, which is durable. */
  trimTo(committed: number): void {
    let count = 0;
    for (const entry of this.log) {
      if (entry.seq > committed) break;
      for (const id of entry.ids) this.dedup.record(id);
      this.trim = entry.seq;
      count++;
    }
    invariant(this.trim <= this.applied, 'only what is here is committed', {
      trim: this.trim,
      applied: this.applied,
    });
    if (count > 0) this.forget(this.log.splice(0, count));
  }

  close(): void {
    this.giveUpWanted();
    this.forget(this.log);
    this.log = [];
  }

  private forget(entries: readonly LogEntry[]): void {
    for (const { delta } of entries) {
      this.host.deltaBytes.addLogged(-delta.byteLength);
      this.host.discard(delta);
    }
  }
}
