/**
 * A connection of either end, over any WebSocket library: in its handshake, then open, then closed. It
 * decodes what arrives and keeps the limits. Nothing that a handler or a peer does throws into a library's
 * callback, because uWebSockets.js ends the process on that without a message. Handlers see the same order of
 * events with every library.
 */
import { describe, type ErrorCode, KintsugiError } from '../errors.js';
import { decodeFrame, decodeMessages, encodeMessages, type Outgoing } from '../protocol/frame.js';
import type { Handshake, ProvedRole } from './auth.js';
import { bufferOf, type PartBuffer } from './part-memory.js';
import { type Beat, PULSE, type PulseSocket } from './pulse.js';
import { CloseCode, type Link, type LinkHandlers, type TransportLimits } from './types.js';

/** A WebSocket of some library. Callbacks of the library call `receive` and `closed` of the connection. */
export interface Socket extends PulseSocket {
  readonly remote: string;
  readonly bufferedBytes: number;
  /** All bytes that came, also of a frame that is not complete. */
  readonly receivedBytes?: number;
  /**
   * Memory for the frame that is sent next. It belongs to the socket until `send` returns, or until the frame
   * has been sent, as the socket chooses.
   */
  allocate(bytes: number): Uint8Array;
  /**
   * Sends or buffers, never drops. For a frame whose memory is not from `allocate`, `sent` is called when
   * that memory is free again.
   */
  send(frame: Uint8Array, sent?: () => void): void;
  /** Sends what is buffered and a close message, within `closeMs`. Must call back `closed` sometime. */
  end(code: number, reason: string): void;
  /** Closes at once. Must call back `closed` sometime. */
  destroy(): void;
}

export interface ConnectionOptions {
  outgoing: boolean;
  handshake: Handshake;
  handlers: LinkHandlers;
  limits: TransportLimits;
  /** The handshake is over, just before `onOpen`. */
  onReady?: () => void;
  /** Closed before it was ever open. */
  onRefused?: (error: KintsugiError) => void;
}

let lastId = 0;

export class Connection implements Link {
  readonly id = ++lastId;
  readonly outgoing: boolean;
  readonly remote: string;
  proved: ProvedRole;
  readonly #socket: Socket;
  readonly #options: ConnectionOptions;
  #state: 'handshake' | 'open' | 'closed' = 'handshake';
  #deadline: NodeJS.Timeout | undefined;
  #beat: Beat | undefined;

  constructor(socket: Socket, options: ConnectionOptions) {
    this.#socket = socket;
    this.#options = options;
    this.outgoing = options.outgoing;
    this.remote = socket.remote;
  }

  /**
   * Begins the handshake. Apart from the constructor so that the library's callbacks can refer to the
   * connection.
   */
  start(): void {
    const { handshake, limits } = this.#options;
    this.#deadline = setTimeout(() => {
      this.#finish(
        new KintsugiError('UNREACHABLE', 'the handshake took too long'),
        CloseCode.HANDSHAKE_TIMEOUT,
      );
    }, limits.handshakeMs);
    const first = handshake.start();
    if (first) this.#write([[first, []]]);
  }

  /** A getter, because a handler may have changed the field meanwhile. */
  get #closed(): boolean {
    return this.#state === 'closed';
  }

  get bufferedBytes(): number {
    return this.#state === 'closed' ? 0 : this.#socket.bufferedBytes;
  }

  get queuedBytes(): number {
    return this.bufferedBytes + (this.#beat?.unacknowledgedBytes ?? 0);
  }

  get receivedBytes(): number {
    return this.#socket.receivedBytes ?? 0;
  }

  send(header: object, parts: readonly Uint8Array[] = []): boolean {
    return this.sendAll([[header, parts]]);
  }

  sendAll(messages: readonly Outgoing[]): boolean {
    if (this.#state !== 'open') return false;
    return this.#write(messages);
  }

  sendEncoded(frame: Uint8Array): boolean {
    if (this.#state !== 'open') return false;
    const { maxFrameBytes } = this.#options.limits;
    if (frame.byteLength > maxFrameBytes)
      throw new KintsugiError('LIMIT', `a frame of ${frame.byteLength} bytes, the limit is ${maxFrameBytes}`);
    // Its memory belongs to the caller: nobody may use it again.
    this.#socket.send(frame, () => {});
    return this.#mayGoOn();
  }

  close(reason = 'closed by this side', code: number = CloseCode.NORMAL): void {
    this.#finish(new KintsugiError('CLOSED', reason), code);
  }

  watch(pingMs: number, goneMs = Number.POSITIVE_INFINITY): void {
    if (this.#state === 'closed') return;
    const gone = (): void => this.abandon(`nothing was acknowledged for ${goneMs} ms`);
    this.#beat ??= PULSE.watch(this.#socket, pingMs, goneMs, gone);
  }

  get unacknowledgedMs(): number | undefined {
    return this.#beat?.unacknowledgedMs;
  }

  hurry(): void {
    this.#beat?.hurry();
  }

  abandon(reason: string): void {
    this.#finish(new KintsugiError('UNREACHABLE', reason));
    this.#socket.destroy();
  }

  /** A message of the library. `bytes` need to be valid only during the call. */
  receive(bytes: Uint8Array): void {
    if (this.#state === 'closed') return;
    const { handlers, limits } = this.#options;
    try {
      if (this.#state === 'handshake') {
        this.#handshake(decodeFrame(bytes, limits.handshakeFrameBytes).header);
        return;
      }
      for (const { header, parts } of decodeMessages(bytes, limits.maxFrameBytes)) {
        handlers.onMessage(this, header, parts);
        // Nothing is received after a close. That includes the rest of the frame whose message made a handler
        // close.
        if (this.#closed) return;
      }
    } catch (error) {
      this.#failed(error);
    }
  }

  /** A text message, or anything else that has no place on this wire. */
  reject(what: string): void {
    this.#failed(new KintsugiError('BAD_FRAME', what));
  }

  /** The library says that the socket is closed. */
  closed(code: number, reason: string): void {
    const refused = code === CloseCode.UNAUTHORIZED ? 'the token is missing or wrong' : reason;
    const text = refused || CLOSE_TEXT[code] || `closed with code ${code}`;
    this.#finish(new KintsugiError(CODES[code] ?? 'UNREACHABLE', text));
  }

  #handshake(header: Record<string, unknown>): void {
    const { handshake, handlers, onReady } = this.#options;
    const { send, done, proved } = handshake.step(header);
    if (send) this.#write([[send, []]]);
    if (!done) return;
    this.proved = proved;
    clearTimeout(this.#deadline);
    this.#state = 'open';
    onReady?.();
    handlers.onOpen(this);
  }

  #write(messages: readonly Outgoing[]): boolean {
    const { maxFrameBytes } = this.#options.limits;
    let buffer: PartBuffer | undefined;
    const frame = encodeMessages(messages, {
      maxBytes: maxFrameBytes,
      allocate: (bytes) => this.#socket.allocate(bytes),
      around: (first, start, bytes) => {
        const its = bufferOf(first);
        const built = its?.frame(first, start, bytes);
        if (built) buffer = its;
        return built;
      },
    });
    const lent = buffer;
    if (lent) this.#socket.send(frame, () => lent.sent());
    else this.#socket.send(frame);
    return this.#mayGoOn();
  }

  /** After a frame was sent: the other side reads fast enough, or the link is closed. */
  #mayGoOn(): boolean {
    const { maxBufferedBytes } = this.#options.limits;
    if (this.#closed) return false;
    const { bufferedBytes } = this.#socket;
    if (bufferedBytes <= maxBufferedBytes) return true;
    // Destroy it: the message of a graceful close would wait behind everything that the other side does not
    // read.
    this.#finish(
      new KintsugiError('LIMIT', `${bufferedBytes} bytes buffered, the limit is ${maxBufferedBytes}`),
    );
    this.#socket.destroy();
    return false;
  }

  #failed(error: unknown): void {
    if (error instanceof KintsugiError && error.code === 'BAD_FRAME') {
      this.#finish(error, CloseCode.BAD_FRAME, 'BAD_FRAME');
    } else if (error instanceof KintsugiError && error.code === 'FORBIDDEN') {
      this.#finish(error, CloseCode.FORBIDDEN);
    } else if (
      this.#state === 'handshake' &&
      error instanceof KintsugiError &&
      error.code === 'UNAUTHORIZED'
    ) {
      this.#finish(error, CloseCode.UNAUTHORIZED, 'UNAUTHORIZED');
    } else {
      this.#finish(new KintsugiError('INTERNAL', describe(error)), CloseCode.INTERNAL, 'INTERNAL');
      this.#report(error);
    }
  }

  /** Closes once: `code` given means that this side does, and tells the other. */
  #finish(error: KintsugiError, code?: number, wireReason = error.message): void {
    if (this.#state === 'closed') return;
    const wasOpen = this.#state === 'open';
    this.#state = 'closed';
    clearTimeout(this.#deadline);
    this.#beat?.stop();
    const { handlers, onRefused } = this.#options;
    // Handlers are told in a microtask, because the caller of `send` or `close` has not returned yet.
    queueMicrotask(() => {
      if (!wasOpen) {
        onRefused?.(error);
        return;
      }
      try {
        const named = error.code === 'BAD_FRAME' || error.code === 'FORBIDDEN';
        handlers.onClose(this, named ? `${error.code}: ${error.message}` : error.message, error.code);
      } catch (thrown) {
        this.#report(thrown);
      }
    });
    if (code !== undefined) this.#socket.end(code, shorten(wireReason));
  }

  #report(error: unknown): void {
    const { onError } = this.#options.handlers;
    if (onError) onError.call(this.#options.handlers, this, error);
    else
      process.nextTick(() => {
        throw error;
      });
  }
}

/** Of the closes that mean something to the other side. */
const CODES: Readonly<Record<number, ErrorCode>> = {
  [CloseCode.UNAUTHORIZED]: 'UNAUTHORIZED',
  [CloseCode.FORBIDDEN]: 'FORBIDDEN',
};

const CLOSE_TEXT: Readonly<Record<number, string>> = {
  1000: 'closed by the other side',
  1001: 'the other side is going away',
  1005: 'closed by the other side',
  1006: 'connection lost',
  1009: 'a frame was too large',
};

/** A close message holds 123 bytes of UTF-8; ASCII keeps characters and bytes the same. */
function shorten(reason: string): string {
  return reason.replace(/[^\x20-\x7e]/g, '?').slice(0, 123);
}
