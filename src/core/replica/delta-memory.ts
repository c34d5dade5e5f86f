/**
 * Memory of deltas that a replica keeps until they are durable, used again for the next ones. Fresh memory
 * would be cleared before it is written, and a replica takes hundreds of megabytes of deltas a second.
 */

/** Memory that is kept for the next deltas. */
const MAX_FREE_BYTES = 8 << 20;
const STEP_BYTES = 16 << 10;

export class DeltaMemory {
  private readonly free: ArrayBuffer[] = [];
  private freeBytes = 0;

  /** A copy of a delta, whose own memory is that of a message. */
  copy(delta: Uint8Array): Uint8Array {
    const { byteLength } = delta;
    const at = this.free.findLastIndex((memory) => memory.byteLength >= byteLength);
    const [known] = at < 0 ? [] : this.free.splice(at, 1);
    if (known) this.freeBytes -= known.byteLength;
    const memory = known ?? new ArrayBuffer(Math.ceil(byteLength / STEP_BYTES) * STEP_BYTES);
    const copy = new Uint8Array(memory, 0, byteLength);
    copy.set(delta);
    return copy;
  }

  /** Nobody reads this copy any more. */
  giveBack(copy: Uint8Array): void {
    const memory = copy.buffer as ArrayBuffer;
    this.free.push(memory);
    this.freeBytes += memory.byteLength;
    while (this.freeBytes > MAX_FREE_BYTES) this.freeBytes -= this.free.shift()!.byteLength;
  }
}
