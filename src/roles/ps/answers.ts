/**
 * Where a PS puts the answer to a pull: into memory with room for the header of a frame, which is then built
 * around the rows (net/transport/part-memory.ts). All sections of a request go into one buffer, one after the
 * other, as they do in its answer.
 */
import type { AnswerMemory } from '../../core/shard/host.js';
import { type PartBuffer, PartMemory } from '../../net/transport/index.js';

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

/** While sockets hold so many bytes of content, more of it has memory of its own. */
const MAX_LENT_CONTENT_BYTES = 16 << 20;

export class Answers {
  private readonly memory = new PartMemory(true);
  private readonly contents = new PartMemory(true);
  private waiting: PartBuffer[] = [];
  /** Buffers of large answers that have all of their rows, and wait for the end of the turn. */
  private gathered: PartBuffer[] = [];

  /**
   * Takes the step that handles a request of `bytes`, with a buffer for its answer; undefined: the answer has
   * memory of its own.
   */
  step<T>(bytes: number, take: (buffer: PartBuffer | undefined) => T): T {
    const { memory, waiting } = this;
    if (bytes < FROM_BYTES || waiting.length === MAX_WAITING || memory.lentBytes >= MAX_LENT_BYTES)
      return take(undefined);
    const buffer = memory.open(ANSWER_BYTES);
    try {
      const result = take(buffer);
      waiting.push(buffer);
      return result;
    } catch (error) {
      // Answers that were given before the error may still be sent.
      memory.abandon(buffer);
      throw error;
    }
  }

  /** Memory for an answer that is gathered in several turns. Its client is charged already. */
  open(bytes: number): AnswerMemory {
    return this.opened(this.memory.open(bytes));
  }

  /** Memory for content of blocks. */
  openContent(bytes: number): AnswerMemory | undefined {
    if (this.contents.lentBytes >= MAX_LENT_CONTENT_BYTES) return undefined;
    return this.opened(this.contents.open(bytes));
  }

  private opened(buffer: PartBuffer): AnswerMemory {
    return {
      memory: buffer.memory,
      at: buffer.at,
      took: (rows) => {
        buffer.took(rows);
        this.gathered.push(buffer);
      },
      drop: () => buffer.close(),
    };
  }

  /** All answers have been sent. */
  sent(): void {
    for (const buffer of [...this.waiting, ...this.gathered]) buffer.close();
    this.waiting = [];
    this.gathered = [];
  }
}
