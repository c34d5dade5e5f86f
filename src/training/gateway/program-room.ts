/**
 * An answer takes bytes of its gateway that count until the program has read them, and memory for the rows
 * that follow it. That memory is freed by hand, and V8 does not count it: a program that asks for many rows
 * would make V8 collect its whole heap, with threads that trainers need.
 */
import type { InFlightRoom } from '../../library/client/room.js';
import { type PartBuffer, PartMemory } from '../../net/transport/index.js';
import { FLOAT_BYTES } from '../../protocol/section-header.js';

/** Rows of more bytes have an array of their own. */
const MOST_BYTES = 256 << 20;

const memory = new PartMemory(true);

export class ProgramRoom {
  private bytes = 0;
  private readonly buffers: PartBuffer[] = [];

  constructor(
    private readonly room: InFlightRoom,
    private readonly signal: AbortSignal,
  ) {}

  get isUsed(): boolean {
    return this.bytes > 0 || this.buffers.length > 0;
  }

  /** Waits until so many bytes may follow the answer. @throws ABORTED, CLOSED */
  async reserve(bytes: number): Promise<void> {
    await this.room.take(bytes, this.signal);
    this.bytes += bytes;
  }

  /** Memory for rows that follow the answer, with any numbers in it; undefined: they have an array. */
  rows(floats: number): Float32Array | undefined {
    if (floats * FLOAT_BYTES > MOST_BYTES) return undefined;
    const buffer = memory.open(floats * FLOAT_BYTES);
    this.buffers.push(buffer);
    return new Float32Array(buffer.memory.buffer, buffer.at, floats);
  }

  /** The rows may still be in use: by a request that has failed, or by a socket that is gone. */
  abandon(): void {
    for (const buffer of this.buffers.splice(0)) memory.abandon(buffer);
  }

  /** The program has the answer, or never will. */
  end(): void {
    for (const buffer of this.buffers.splice(0)) buffer.close();
    if (this.bytes > 0) this.room.free(this.bytes);
    this.bytes = 0;
  }
}
