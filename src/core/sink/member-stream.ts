/**
 * One member's stream as a sink follows it: positions, promises and the log (rule 4). The bytes are in the
 * engine. This file keeps the deltas that a new owner may roll back, and the state that a new owner asks for.
 */
import { invariant, KintsugiError } from '../../errors.js';
import type { StreamId } from '../../protocol/messages.js';
import { Dedup } from '../shared/dedup.js';
import type { CoreHost } from '../shared/host.js';
import { PATIENCE, Retry } from '../shared/retry.js';

interface LogEntry {
  seq: number;
  delta: Uint8Array;
  ids: StreamId[];
}

export class MemberStream {
  /** Highest generation that was promised: older ones are ignored. Only rises. */
  fence: number;
  /** Generation of the stream that is followed; 0: none yet. Never above `fence`. */
  sgen: number;
  /** Position of the newest delta that the bytes include. */
  applied = 0;
  /** Everything up to here is committed and can never be taken back. Never above `applied`. */
  trim = 0;
  /** Blocks wanted for inclusion and not received. */
  wanted = 0;
  readonly wanting: Retry;
  /** Wants of blocks that accumulators need. */
  readonly pending: Retry;
  /** Deltas after `trim`, contiguous. */
  private log: LogEntry[] = [];
  /** De-duplication state at `trim`. */
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

  /** The owner has answered a Want, with Content or Lacking. */
  answered(): void {
    this.wanting.answered(this.host.now);
    this.pending.answered(this.host.now);
  }

  /** Rule 12. False: it was promised before. */
  raiseFence(gen: number): boolean {
    if (gen <= this.fence) return false;
    this.fence = gen;
    invariant(this.sgen <= this.fence, 'a stream that is followed was promised', { gen, sgen: this.sgen });
    return true;
  }

  /** A stream that begins here. */
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

  /** Rule 14: the delta, which the bytes include now, may have to be taken back. It is copied. */
  append(seq: number, delta: Uint8Array, ids: StreamId[]): void {
    invariant(seq === this.applied + 1, 'deltas are applied in order, without gaps', {
      seq,
      applied: this.applied,
    });
    this.log.push({ seq, delta: delta.slice(), ids });
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

  /** Rule 13: takes back what was applied above `base`, newest first. */
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

  /** Everything up to `committed` is durable. */
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
