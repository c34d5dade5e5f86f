/** A WebSocket of uWebSockets.js, as a connection sees it. */
import { Fifo } from '../../core/shared/fifo.js';
import type { Socket } from './connection.js';

/** The library's object, as far as it is used. */
export interface Ws {
  send(message: Uint8Array, isBinary: boolean): number;
  sendFirstFragment(message: Uint8Array, isBinary: boolean): number;
  sendFragment(message: Uint8Array): number;
  sendLastFragment(message: Uint8Array): number;
  ping(message: string): number;
  getBufferedAmount(): number;
  end(code: number, reason: string): void;
  close(): void;
  subscribe(topic: string): boolean;
  getRemoteAddressAsText(): ArrayBuffer;
}

/**
 * Frames up to this size are built in one reused buffer: the library copies the bytes that the kernel does
 * not take at once.
 */
const SCRATCH_BYTES = 4 * 1024 * 1024;
let scratch = Buffer.allocUnsafeSlow(64 * 1024);

/**
 * The library keeps memory for the most bytes that ever waited in a socket, until that is closed. So it has
 * no more than this at once, enough for an answer to 4,096 keys of 64 values. The rest of a frame waits here,
 * and follows as a fragment of its message.
 */
const FRAGMENT_BYTES = (1 << 20) + (64 << 10);

/** A frame that waits for its socket. */
interface QueuedFrame {
  frame: Uint8Array;
  /** Bytes of `frame` that the library has. */
  at: number;
  /** The library has the beginning of the message. */
  begun: boolean;
  readonly sent: (() => void) | undefined;
}

export class UwsSocket implements Socket {
  readonly remote: string;
  fd = -1;
  readonly #ws: Ws;
  readonly #closeMs: number;
  #gone = false;
  #ending: { code: number; reason: string; timer: NodeJS.Timeout } | undefined;
  readonly #queue = new Fifo<QueuedFrame>();
  /** Bytes of the queue that the library does not have. */
  #queuedBytes = 0;

  constructor(
    ws: Ws,
    closeMs: number,
    readonly hiddenAt: number,
  ) {
    this.#ws = ws;
    this.#closeMs = closeMs;
    this.remote = Buffer.from(ws.getRemoteAddressAsText()).toString();
  }

  get bufferedBytes(): number {
    return this.#gone ? 0 : this.#ws.getBufferedAmount() + this.#queuedBytes;
  }

  found(fd: number): void {
    this.fd = fd;
  }

  ping(bytes: number): boolean {
    if (this.#gone || this.#ending || this.bufferedBytes > 0) return false;
    this.#ws.ping(' '.repeat(bytes));
    return true;
  }

  allocate(bytes: number): Uint8Array {
    if (bytes > SCRATCH_BYTES) return Buffer.allocUnsafeSlow(bytes);
    if (bytes > scratch.length) scratch = Buffer.allocUnsafeSlow(2 ** Math.ceil(Math.log2(bytes)));
    return scratch.subarray(0, bytes);
  }

  send(frame: Uint8Array, sent?: () => void): void {
    if (this.#gone) return sent?.();
    const { byteLength } = frame;
    if (this.#queue.length === 0 && this.#mayHave(byteLength)) {
      this.#ws.send(frame, true);
      return sent?.();
    }
    const next: QueuedFrame = { frame, at: 0, begun: false, sent };
    this.#queuedBytes += byteLength;
    this.#queue.push(next);
    if (this.#queue.first === next) this.#go();
    // Without a callback the memory is that of `allocate`, which the next frame uses.
    if (!sent && next.at < byteLength) keep(next);
  }

  #mayHave(bytes: number): boolean {
    return this.#ws.getBufferedAmount() + bytes <= FRAGMENT_BYTES;
  }

  /** Gives the library what it may have. */
  #go(): void {
    for (let next = this.#queue.first; next; next = this.#queue.first) {
      const { frame } = next;
      while (next.at < frame.byteLength) {
        const end = Math.min(frame.byteLength, next.at + FRAGMENT_BYTES);
        if (this.#gone || !this.#mayHave(end - next.at)) return;
        const fragment = frame.subarray(next.at, end);
        const [isFirst, isLast] = [!next.begun, end === frame.byteLength];
        next.begun = true;
        next.at = end;
        this.#queuedBytes -= fragment.byteLength;
        if (isFirst && isLast) this.#ws.send(fragment, true);
        else if (isFirst) this.#ws.sendFirstFragment(fragment, true);
        else if (isLast) this.#ws.sendLastFragment(fragment);
        else this.#ws.sendFragment(fragment);
      }
      // The library may have closed the socket, and then the queue is over.
      if (this.#queue.first !== next) return;
      this.#queue.shift();
      next.sent?.();
    }
  }

  /**
   * Waits for the buffered bytes before it calls the library's `end`: after that the socket cannot be touched
   * any more.
   */
  end(code: number, reason: string): void {
    if (this.#gone || this.#ending) return;
    if (this.bufferedBytes === 0) {
      this.#ws.end(code, reason);
      return;
    }
    this.#ending = { code, reason, timer: setTimeout(() => this.destroy(), this.#closeMs) };
  }

  destroy(): void {
    if (!this.#gone) this.#ws.close();
  }

  onDrain(): void {
    this.#go();
    if (this.#gone || !this.#ending || this.bufferedBytes > 0) return;
    this.#ws.end(this.#ending.code, this.#ending.reason);
  }

  onClose(): void {
    this.#gone = true;
    this.fd = -1;
    clearTimeout(this.#ending?.timer);
    this.#queuedBytes = 0;
    for (const { sent } of this.#queue.takeAll()) sent?.();
  }
}

/** The rest of the frame gets memory of its own. */
function keep(queued: QueuedFrame): void {
  queued.frame = new Uint8Array(queued.frame.subarray(queued.at));
  queued.at = 0;
}
