/**
 * Frames that come in pieces are put together here, in memory that is accounted for (ReceivedBytes). A server
 * library puts a WebSocket message together before it tells of it, in memory that nobody counts, so messages
 * are short where frames are long. A frame of more than a piece comes as
 *
 *   [u32 0xffffffff][u32 bytes of the frame], little-endian: no frame begins like that
 *   [piece] [piece] ... of which each is a message, until all bytes are here
 */
import { KintsugiError } from '../../common/errors.js';
import type { ReceiveLink } from '../../core/shared/received-bytes.js';
import { limitText } from '../../protocol/limits.js';

const OPENING_BYTES = 8;
const MARK = 0xffff_ffff;
const NOTHING = new Uint8Array(0);

/** Largest frame of a client: more than any section of a push or a round of pulls. */
const MAX_REQUEST_BYTES = 24 << 20;

/** The message that says how long the frame of the next pieces is. */
export function openingOf(bytes: number): Uint8Array {
  const opening = new Uint8Array(OPENING_BYTES);
  const view = new DataView(opening.buffer);
  view.setUint32(0, MARK, true);
  view.setUint32(4, bytes, true);
  return opening;
}

/** The frame bytes of an opening; undefined: the message is none. */
function openedBy(message: Uint8Array): number | undefined {
  if (message.byteLength !== OPENING_BYTES) return undefined;
  const view = new DataView(message.buffer, message.byteOffset, OPENING_BYTES);
  return view.getUint32(0, true) === MARK ? view.getUint32(4, true) : undefined;
}

/** Memory for frames. */
export interface InboundMemory {
  take(bytes: number): Uint8Array;
  giveBack(frame: Uint8Array): void;
}

export class Inbound {
  readonly #link: ReceiveLink;
  readonly #memory: InboundMemory;
  readonly #maxBytes: number;
  /** The frame that is coming; undefined while it has no room, or none is coming. */
  #frame: Uint8Array | undefined;
  /** The frame is complete, and its messages are being handled. */
  #isWhole = false;
  /** Memory with the bytes that came before the frame had room; at most a window. */
  #early = NOTHING;

  constructor(link: ReceiveLink, memory: InboundMemory, maxBytes: number) {
    this.#link = link;
    this.#memory = memory;
    this.#maxBytes = maxBytes;
  }

  /**
   * Takes a message. Returns a frame that is complete, which is valid until `handled`, or undefined.
   * @throws BAD_FRAME, and LIMIT for more than the other side may send
   */
  take(message: Uint8Array): Uint8Array | undefined {
    const link = this.#link;
    if (link.frame) return this.#piece(message, link.frame.total);
    const total = openedBy(message);
    if (total === undefined) {
      if (!link.takeWhole(message.byteLength)) throw this.#beyond();
      return message;
    }
    if (link.isLimited && total > MAX_REQUEST_BYTES)
      throw limit(limitText(`a request of ${total} bytes`, 'maxRequestBytes', MAX_REQUEST_BYTES));
    if (total > this.#maxBytes || total === 0) throw bad(`a frame of ${total} bytes`);
    link.begin(total);
    return undefined;
  }

  #piece(message: Uint8Array, total: number): Uint8Array | undefined {
    const link = this.#link;
    const at = link.frame!.arrived;
    if (!link.takePiece(message.byteLength)) throw this.#beyond();
    if (at + message.byteLength > total || message.byteLength === 0)
      throw bad(`a piece of ${message.byteLength} bytes, ${total - at} are missing`);
    if (link.frame!.place === 'waits') {
      this.#keepEarly(message, at);
      return undefined;
    }
    this.#frame ??= this.#begun(total, at);
    this.#frame.set(message, at);
    this.#isWhole = at + message.byteLength === total;
    return this.#isWhole ? this.#frame : undefined;
  }

  /** One memory for all of them: pieces may be short, and each array takes some hundred bytes. */
  #keepEarly(message: Uint8Array, at: number): void {
    const end = at + message.byteLength;
    if (end > this.#early.byteLength) {
      const larger = new Uint8Array(Math.max(end, Math.min(2 * end, this.#link.window)));
      larger.set(this.#early.subarray(0, at));
      this.#early = larger;
    }
    this.#early.set(message, at);
  }

  /** The memory of the frame, with the `arrived` bytes that are kept. */
  #begun(total: number, arrived: number): Uint8Array {
    const frame = this.#memory.take(total);
    frame.set(this.#early.subarray(0, arrived));
    this.#early = NOTHING;
    return frame;
  }

  /** The frame that `take` returned last has been handled. */
  handled(): void {
    if (!this.#isWhole) return;
    this.#isWhole = false;
    this.#link.end();
    this.#letGo();
  }

  #letGo(): void {
    if (this.#frame) this.#memory.giveBack(this.#frame);
    this.#frame = undefined;
  }

  /** The link is closed. A frame that is being handled stays valid until `handled`. */
  close(): void {
    this.#early = NOTHING;
    if (!this.#isWhole) this.#letGo();
    this.#link.close();
  }

  #beyond(): KintsugiError {
    const { window } = this.#link;
    return limit(limitText('more bytes than were granted', 'receiveWindowBytes', window));
  }
}

const bad = (text: string): KintsugiError => new KintsugiError('BAD_FRAME', text);
const limit = (text: string): KintsugiError => new KintsugiError('LIMIT', text);
