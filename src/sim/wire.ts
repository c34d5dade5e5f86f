/**
 * Messages as they travel: a frame of the real codec, decoded and validated at its delivery. So a field that
 * the codec or the validators do not let through is missing in a schedule, too.
 */
import { KintsugiError } from '../common/errors.js';
import { decodeFrame, encodeFrame } from '../protocol/frame.js';
import type { Message } from '../protocol/messages.js';
import { toMessage } from '../protocol/validate.js';
import { Violation } from './violation.js';

/** Byte that a reader sees that kept a part beyond its call. */
const GARBAGE = 0xa5;
/** Sections start at multiples of this. The engine's own tests try other starts. */
const ALIGNMENT = 8;
const CHUNK_BYTES = 1 << 16;

export interface Arrived {
  message: Message;
  /** Views of the frame that end with the call: see `done`. */
  parts: readonly Uint8Array[];
}

/** Memory for frames; it is used again when all of them have been read. */
interface Chunk {
  bytes: Uint8Array;
  /** Bytes from the start that frames take. */
  used: number;
  /** Frames that were not read yet. */
  unread: number;
}

/** A message on its way. One map goes to many peers, some of them later: its frame is made and read once. */
export interface Letter {
  readonly frame: Uint8Array;
  readonly chunk: Chunk | undefined;
  arrived: Arrived | undefined;
}

export class Wire {
  private readonly options = { allocate: (bytes: number) => this.allocate(bytes) };
  private readonly pooled = { allocate: (bytes: number) => this.carve(bytes) };
  /** Memory of frames without parts, which nobody spoils: a new one is begun when it is full. */
  private pool = new Uint8Array(CHUNK_BYTES);
  private poolUsed = 0;
  /** The message without parts that was encoded last: a broadcast goes to many. */
  private lastSaid: Message | undefined;
  /** Letter of `lastSaid`. */
  private lastLetter: Letter | undefined;
  /** Chunk of the next frame with parts. */
  private chunk: Chunk | undefined;
  /** Chunks without unread frames. */
  private readonly free: Chunk[] = [];
  /** Letters of maps and changes of maps, which are replaced, never changed. */
  private readonly maps = new WeakMap<object, Letter>();

  /** Encodes a message. Its parts are copied. */
  encode(message: Message, parts: readonly Uint8Array[]): Letter {
    if (parts.length > 0) {
      const frame = encodeFrame(message, parts, this.options);
      const chunk = frame.byteLength > CHUNK_BYTES ? undefined : this.chunk;
      return { frame, chunk, arrived: undefined };
    }
    if (this.lastLetter && message === this.lastSaid) return this.lastLetter;
    const shared = message.t === 'map' ? message.map : message.t === 'mapDiff' ? message : undefined;
    const known = shared && this.maps.get(shared);
    if (known) return known;
    const frame = encodeFrame(message, [], shared ? {} : this.pooled);
    const letter = { frame, chunk: undefined, arrived: undefined };
    if (shared) this.maps.set(shared, letter);
    this.lastSaid = message;
    this.lastLetter = letter;
    return letter;
  }

  private carve(bytes: number): Uint8Array {
    if (bytes > CHUNK_BYTES / 8) return new Uint8Array(bytes);
    if (this.poolUsed + bytes > CHUNK_BYTES) {
      this.pool = new Uint8Array(CHUNK_BYTES);
      this.poolUsed = 0;
    }
    const start = this.poolUsed;
    this.poolUsed += bytes;
    return new Uint8Array(this.pool.buffer, start, bytes);
  }

  /** The letter once more, with parts of its own, because `done` spoils them. */
  copy(letter: Letter, parts: readonly Uint8Array[]): Letter {
    if (parts.length === 0) return letter;
    return { frame: letter.frame.slice(), chunk: undefined, arrived: undefined };
  }

  /** @throws Violation when the message is refused, because its sender is honest */
  decode(letter: Letter): Arrived {
    letter.arrived ??= this.read(letter.frame);
    return letter.arrived;
  }

  private read(frame: Uint8Array): Arrived {
    try {
      const { header, parts } = decodeFrame(frame);
      return { message: toMessage(header), parts };
    } catch (error) {
      if (!(error instanceof KintsugiError)) throw error;
      throw new Violation(`a message was refused: ${error.message}`);
    }
  }

  /** Encodes and decodes a message that does not go over the network. */
  passed(message: Message): Message {
    return this.decode(this.encode(message, [])).message;
  }

  /** Ends the use of a letter's parts: bytes that a machine kept without copying turn to garbage. */
  done({ arrived, chunk }: Letter): void {
    for (const part of arrived!.parts) part.fill(GARBAGE);
    if (chunk && --chunk.unread === 0 && chunk !== this.chunk) this.recycle(chunk);
  }

  private recycle(chunk: Chunk): void {
    chunk.used = 0;
    this.free.push(chunk);
  }

  private allocate(bytes: number): Uint8Array {
    if (bytes > CHUNK_BYTES) return new Uint8Array(bytes);
    let { chunk } = this;
    if (!chunk || chunk.used + bytes > CHUNK_BYTES) {
      if (chunk?.unread === 0) this.recycle(chunk);
      chunk = this.free.pop() ?? { bytes: new Uint8Array(CHUNK_BYTES), used: 0, unread: 0 };
      this.chunk = chunk;
    }
    const start = chunk.used;
    chunk.used = Math.ceil((start + bytes) / ALIGNMENT) * ALIGNMENT;
    chunk.unread++;
    return chunk.bytes.subarray(start, start + bytes);
  }
}
