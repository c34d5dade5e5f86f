/**
 * Where a PS puts the answer to a pull: into memory with room for the header of a frame, which is then built
 * around the rows (transport/part-memory.ts). All sections of a request go into one buffer, one after the
 * other, as they do in its answer.
 */
import type { NativeShard } from '../native.js';
import { type PartBuffer, PartMemory } from '../transport/index.js';

/** Rows that do not fit get memory of their own, and are copied into their frame. */
const ANSWER_BYTES = 4 << 20;
/** An answer to a request of fewer bytes, some hundred keys, is cheaper to copy. */
const FROM_BYTES = 1024;
/** Answers that wait for the end of a turn of the event loop, in buffers of that size, all together. */
const MAX_WAITING = 8;
/**
 * While sockets hold so many bytes, further answers have memory of their own. Otherwise every client that
 * reads slowly would keep a buffer.
 */
const MAX_LENT_BYTES = 64 << 20;

export class Answers {
  private readonly memory = new PartMemory();
  private current: PartBuffer | undefined;
  private waiting: PartBuffer[] = [];

  /**
   * Pulls a section, into the buffer of the request that is being served: rows, or a status of the engine.
   */
  pull(shard: NativeShard, section: Uint8Array): Uint8Array | number {
    const buffer = this.current;
    if (!buffer) return shard.pull(section);
    const rows = shard.pull(section, buffer.memory, buffer.at);
    if (typeof rows !== 'number') buffer.took(rows);
    return rows;
  }

  /** What is pulled within `step` goes into one buffer; `bytes`: of the request. */
  during<T>(bytes: number, step: () => T): T {
    const { memory, waiting } = this;
    if (bytes < FROM_BYTES || waiting.length === MAX_WAITING || memory.lentBytes >= MAX_LENT_BYTES)
      return step();
    const buffer = memory.open(ANSWER_BYTES);
    this.current = buffer;
    try {
      const result = step();
      waiting.push(buffer);
      return result;
    } catch (error) {
      // Answers that it had given before may still be sent.
      memory.abandon(buffer);
      throw error;
    } finally {
      this.current = undefined;
    }
  }

  /** All answers have been sent. */
  sent(): void {
    for (const buffer of this.waiting) buffer.close();
    this.waiting = [];
  }
}
