/**
 * Sends frames to a side that wants them in pieces (inbound.ts), within the credit that it has granted. What
 * there is no credit for waits here, in order.
 */
import { Fifo } from '../../core/shared/fifo.js';
import { openingOf } from './inbound.js';

/** How the other side of a link wants frames. */
export interface SendTerms {
  /** Largest message. */
  readonly pieceBytes: number;
  /** Bytes that may be sent before more are granted; Infinity: all. */
  readonly creditBytes: number;
}

interface OutboundSocket {
  /** As `allocate` of a socket. */
  allocate(bytes: number): Uint8Array;
  send(message: Uint8Array, sent?: () => void): void;
  /** Takes back the memory of a frame of its own. Without it, that memory is used again by the next frame. */
  giveBack?(frame: Uint8Array): void;
}

interface WaitingFrame {
  readonly frame: Uint8Array;
  /** Bytes that were sent; -1: the other side does not know of the frame yet. */
  at: number;
  readonly sent: (() => void) | undefined;
}

export class Outbound {
  readonly #socket: OutboundSocket;
  readonly #pieceBytes: number;
  #credit: number;
  readonly #waiting = new Fifo<WaitingFrame>();
  /** Bytes that wait for credit. */
  waitingBytes = 0;

  constructor(socket: OutboundSocket, { pieceBytes, creditBytes }: SendTerms) {
    this.#socket = socket;
    this.#pieceBytes = pieceBytes;
    this.#credit = creditBytes;
  }

  /** Memory for the frame that is sent next. A frame in pieces needs it until the last one is sent. */
  allocate(bytes: number): Uint8Array {
    if (bytes <= this.#pieceBytes || this.#socket.giveBack) return this.#socket.allocate(bytes);
    return Buffer.allocUnsafeSlow(bytes);
  }

  /** As `send` of a socket. A frame without `sent` is in memory of `allocate`. */
  send(frame: Uint8Array, sent?: () => void): void {
    const bytes = frame.byteLength;
    if (this.#waiting.length === 0 && bytes <= this.#pieceBytes && bytes <= this.#credit) {
      this.#credit -= bytes;
      this.#socket.send(frame, sent);
      return;
    }
    const isCut = bytes > this.#pieceBytes;
    const isLent = !sent && !isCut && !this.#socket.giveBack;
    this.#waiting.push({ frame: isLent ? new Uint8Array(frame) : frame, at: isCut ? -1 : 0, sent });
    this.waitingBytes += bytes;
    this.#go();
  }

  /** The other side has room for so many bytes more. */
  grant(bytes: number): void {
    this.#credit += bytes;
    this.#go();
  }

  #go(): void {
    for (let next = this.#waiting.first; next; next = this.#waiting.first) {
      const { frame } = next;
      if (next.at < 0) {
        this.#socket.send(openingOf(frame.byteLength), () => {});
        next.at = 0;
      }
      while (next.at < frame.byteLength) {
        const bytes = Math.min(this.#pieceBytes, frame.byteLength - next.at);
        if (bytes > this.#credit) return;
        this.#credit -= bytes;
        this.waitingBytes -= bytes;
        const piece = frame.subarray(next.at, next.at + bytes);
        next.at += bytes;
        this.#socket.send(piece, next.at === frame.byteLength ? this.#end(next) : () => {});
      }
      this.#waiting.shift();
    }
  }

  #end({ frame, sent }: WaitingFrame): () => void {
    return sent ?? (() => this.#socket.giveBack?.(frame));
  }

  /** The link is closed: what waits is never sent. */
  close(): void {
    this.waitingBytes = 0;
    for (const frame of this.#waiting.takeAll()) this.#end(frame)();
  }
}
