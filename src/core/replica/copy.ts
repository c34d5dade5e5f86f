/**
 * The state of one shard as a replica has it: every block that is present is as its owner had it at one
 * position. A delta is applied as a whole between two pulls, so no pull sees a part of one.
 */
import { invariant, KintsugiError } from '../../common/errors.js';
import { type NativeShard, PushStatus } from '../../engine/native.js';
import type { DeltaMemory } from './delta-memory.js';

export class ShardCopy {
  /** Deltas after `trim`, contiguous: an owner may die before they are durable. */
  private log: { seq: number; delta: Uint8Array }[] = [];

  /** `gen`, `seq`: the ownership and the position whose state this is. Up to `trim` it is durable. */
  constructor(
    readonly native: NativeShard,
    private readonly memory: DeltaMemory,
    public gen: number,
    public seq: number,
    public trim: number = seq,
  ) {}

  get complete(): boolean {
    return this.native.absentKeyBlocks === 0 && this.native.absentRowBlocks === 0;
  }

  /** Bytes of the log. */
  get logged(): number {
    return this.log.reduce((sum, { delta }) => sum + delta.byteLength, 0);
  }

  /** False: the delta is of a table that is not known here yet. @throws MEMORY_LIMIT, BAD_FRAME */
  apply(seq: number, delta: Uint8Array, committed: number): boolean {
    invariant(seq === this.seq + 1, 'deltas are applied in order, without gaps', { seq, at: this.seq });
    const status = this.native.applyDelta(delta);
    if (status === PushStatus.UNKNOWN_TABLE) return false;
    this.check(status);
    this.log.push({ seq, delta: this.memory.copy(delta) });
    this.seq = seq;
    this.trimTo(committed);
    return true;
  }

  private check(status: number): void {
    if (status === PushStatus.APPLIED) return;
    if (status === PushStatus.MEMORY_LIMIT)
      throw new KintsugiError('MEMORY_LIMIT', 'the system refuses memory for a replica');
    throw new KintsugiError('BAD_FRAME', `a delta was refused with status ${status}`);
  }

  private trimTo(committed: number): void {
    let count = 0;
    for (const { seq } of this.log) {
      if (seq > committed) break;
      this.trim = seq;
      count++;
    }
    for (const { delta } of this.log.splice(0, count)) this.memory.giveBack(delta);
  }

  /**
   * Another ownership resumes at `base`. Deltas above the base were not durable and are rolled back: the part
   * of each that is of tables which are still here.
   */
  rollBack(gen: number, base: number, part: (delta: Uint8Array) => Uint8Array): void {
    if (base < this.trim || base > this.seq)
      throw new KintsugiError('BAD_FRAME', `a stream at ${base}, which is not in ${this.trim}..${this.seq}`);
    while (this.seq > base) {
      this.check(this.native.applyDelta(part(this.log.pop()!.delta)));
      this.seq--;
    }
    this.gen = gen;
  }

  close(): void {
    this.log = [];
    this.native.close();
  }
}
