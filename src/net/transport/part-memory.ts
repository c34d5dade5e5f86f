/**
 * Memory for large parts of messages that are about to be sent. Before the first part there is room for the
 * header of a frame. When all parts of a frame lie in one such buffer where the frame needs them, the frame
 * is built around them and nothing is copied (`EncodeOptions.around`). Buffers are reused while they are
 * still in a cache.
 *
 * A buffer is reused when its user has closed it and no socket has a frame in it any more.
 */
import { invariant } from '../../common/errors.js';
import { loadNative } from '../../engine/native.js';
import { release } from './release.js';

/** Bytes of room for a header. With a longer one, of some hundred items, the frame is a copy. */
const HEADROOM = 4096;
const SMALLEST_BYTES = 4096;
/** Most bytes of free buffers, of all sizes: more than a round of a large push takes (sections.ts). */
const KEPT_BYTES = 32 << 20;
/** A buffer is not used for less than this share of it. */
const SMALLEST_SHARE = 8;

/**
 * The capacity of a new buffer, in steps of an eighth, so that it fits later parts of about the same size.
 */
function capacityFor(bytes: number): number {
  const step = Math.max(SMALLEST_BYTES, 2 ** Math.floor(Math.log2(Math.max(bytes, 1))) / 8);
  return Math.max(1, Math.ceil(bytes / step)) * step;
}

const align8 = (bytes: number): number => (bytes + 7) & ~7;

export class PartBuffer {
  readonly memory: Uint8Array;
  /** Offset of the next part in `memory`; a multiple of 8. */
  at = HEADROOM;
  /** True until `close`: the user may still read the parts or send them again. */
  private held = true;
  /** A socket has a frame in it. */
  private sending = false;

  /** @internal */
  constructor(
    private readonly owner: PartMemory,
    readonly capacity: number,
  ) {
    // A Buffer would give Buffers as parts, and slice() of those copies nothing.
    this.memory = new Uint8Array(Buffer.allocUnsafeSlow(HEADROOM + capacity).buffer);
    buffers.set(this.memory.buffer, this);
  }

  /** Notes that a part was written at `at`. The next part goes where a frame has it. */
  took(part: Uint8Array): void {
    if (part.buffer === this.memory.buffer) this.at = align8(part.byteOffset + part.byteLength);
  }

  /** Ends the use of the parts. A socket may still be sending them. */
  close(): void {
    if (!this.held) return;
    this.held = false;
    this.settle();
  }

  /**
   * The frame of `bytes` with `first` at `start`, for one sending at a time; undefined when there is no room
   * for it.
   * @throws INTERNAL after `close`: other parts may be in the memory by then
   */
  frame(first: Uint8Array, start: number, bytes: number): Uint8Array | undefined {
    invariant(this.held, 'parts are sent before their memory is given back', { bytes });
    const from = first.byteOffset - start;
    if (this.sending || first.byteOffset !== HEADROOM || from < 0) return undefined;
    this.sending = true;
    return new Uint8Array(this.memory.buffer, from, bytes);
  }

  /** Notes that the socket has sent the frame. */
  sent(): void {
    if (!this.sending) return;
    this.sending = false;
    this.settle();
  }

  /** @internal */
  reopen(): void {
    this.held = true;
    this.at = HEADROOM;
  }

  private settle(): void {
    if (!this.held && !this.sending) this.owner.giveBack(this);
  }
}

const buffers = new WeakMap<ArrayBufferLike, PartBuffer>();

/** The buffer in which a part was written, if it was written in one. */
export function bufferOf(part: Uint8Array): PartBuffer | undefined {
  return buffers.get(part.buffer);
}

/** V8 counts these bytes, or does not any more. */
const counted = (bytes: number): void => void loadNative().countExternalMemory(bytes);

/**
 * Memory for parts. With `forLife`, it lives as long as its process, and V8 does not count it: it is freed by
 * hand, and a burst of large answers would make V8 collect its whole heap after every 64 MB of them.
 */
export class PartMemory {
  /** Buffers that nobody uses, the one that was used last at the end. */
  private readonly free: PartBuffer[] = [];
  /** Bytes of `free`, at most `KEPT_BYTES`. */
  private freeBytes = 0;
  /** Bytes of buffers that are open, or that a socket has a frame in. */
  lentBytes = 0;

  constructor(private readonly forLife = false) {}

  /** A buffer for parts of `bytes` altogether, each padded to a multiple of 8. */
  open(bytes: number): PartBuffer {
    // The buffer that was used last is most likely still in a cache.
    for (let i = this.free.length - 1; i >= 0; i--) {
      const buffer = this.free[i]!;
      if (buffer.capacity < bytes || buffer.capacity > SMALLEST_SHARE * Math.max(bytes, SMALLEST_BYTES))
        continue;
      this.free.splice(i, 1);
      this.freeBytes -= buffer.memory.byteLength;
      buffer.reopen();
      return this.lend(buffer);
    }
    const buffer = new PartBuffer(this, capacityFor(bytes));
    if (this.forLife) counted(-buffer.memory.byteLength);
    return this.lend(buffer);
  }

  private lend(buffer: PartBuffer): PartBuffer {
    this.lentBytes += buffer.memory.byteLength;
    return buffer;
  }

  /** Gives the buffer up without reusing it, because its parts may still be read. */
  abandon(buffer: PartBuffer): void {
    this.lentBytes -= buffer.memory.byteLength;
    if (this.forLife) counted(buffer.memory.byteLength);
  }

  /** @internal */
  giveBack(buffer: PartBuffer): void {
    const { byteLength } = buffer.memory;
    this.lentBytes -= byteLength;
    this.free.push(buffer);
    this.freeBytes += byteLength;
    while (this.freeBytes > KEPT_BYTES) {
      const oldest = this.free.shift()!;
      this.freeBytes -= oldest.memory.byteLength;
      if (this.forLife) counted(oldest.memory.byteLength);
      release([oldest.memory]);
    }
  }
}
