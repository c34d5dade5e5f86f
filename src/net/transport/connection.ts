/**
 * A connection of either end, over any WebSocket library: in its handshake, then open, then closed. It
 * decodes frames and keeps the limits. No error of a handler or a peer is thrown into a callback of the
 * library, because uWebSockets.js ends the process on that without a message. Handlers see the same order of
 * events with every library.
 */
import { describe, type ErrorCode, KintsugiError } from '../../common/errors.js';
import type { ReceiveLink } from '../../core/shared/received-bytes.js';
import { decodeFrame, decodeMessages, encodeMessages, type Outgoing } from '../../protocol/frame.js';
import { limitText } from '../../protocol/limits.js';
import type { Handshake, ProvedRole } from './auth.js';
import { Inbound, type InboundMemory } from './inbound.js';
import { Outbound } from './outbound.js';
import { bufferOf, type PartBuffer } from './part-memory.js';
import { type Beat, PULSE, type PulseSocket } from './pulse.js';
import { CloseCode, type Link, type LinkHandlers, type TransportLimits } from './types.js';

/** A WebSocket of some library. Callbacks of the library call `receive` and `closed` of the connection. */
export interface Socket extends PulseSocket {
  readonly remote: string;
  readonly bufferedBytes: number;
  /** All received bytes, also of a frame that is not complete. */
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
  /** Takes back the memory of a frame from `allocate` that was sent in pieces. */
  giveBack?(frame: Uint8Array): void;
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
  /** Account of received frames, and memory for them; undefined: frames come in one message each. */
  received?: { link: ReceiveLink; memory: InboundMemory } | undefined;
  /** Called when the handshake is over, just before `onOpen`. */
  onReady?: () => void;
  /** Called when the connection is closed before it was open. */
  onRefused?: (error: KintsugiError) => void;
}

/** The message that returns credit. It is no message of a role. */
const CREDIT = 'credit';

/**
 * A side that broke the rules is told so behind no more bytes than these. No account has the bytes of a link
 * that is closed, so such a side could make one link after the other and leave what it does not read.
 */
const MOST_AFTER_FAULT = 256 << 10;
const isAtFault = (code: number): boolean =>
  code === CloseCode.BAD_FRAME || code === CloseCode.FORBIDDEN || code === CloseCode.LIMIT;

let lastId = 0;

export class Connection implements Link {
  readonly id = ++lastId;
  readonly outgoing: boolean;
  readonly remote: string;
  proved: ProvedRole;
  sentBytes = 0;
  readonly #socket: Socket;
  readonly #options: ConnectionOptions;
  /** Only moves forward, to `closed` from either of the others. */
  #state: 'handshake' | 'open' | 'closed' = 'handshake';
  /** Timer of the handshake, and then of the first message. */
  #deadline: NodeJS.Timeout | undefined;
  /** Why the connection is closed when the timer ends; undefined: what it waited for has come. */
  #awaited: string | undefined;
  /** Set while the connection is watched. */
  #beat: Beat | undefined;
  /** Set where frames come in pieces. */
  readonly #inbound: Inbound | undefined;
  /** Set where the other side wants frames in pieces. */
  #outbound: Outbound | undefined;

  constructor(socket: Socket, options: ConnectionOptions) {
    this.#socket = socket;
    this.#options = options;
    this.outgoing = options.outgoing;
    this.remote = socket.remote;
    const { received, limits } = options;
    if (!received) return;
    const { link, memory } = received;
    this.#inbound = new Inbound(link, memory, limits.maxFrameBytes);
    link.handlers = {
      onRoom: () => this.#returnCredit(),
      onEvict: (reason) => {
        this.#hangUp('LIMIT', limitText(reason, 'maxReceivedBytes'), CloseCode.LIMIT);
      },
    };
  }

  /**
   * Begins the handshake. Apart from the constructor so that the library's callbacks can refer to the
   * connection.
   */
  start(): void {
    const { handshake, limits } = this.#options;
    this.#await(limits.handshakeMs, 'the handshake took too long');
    const first = handshake.start();
    if (first) this.#write([[first, []]]);
  }

  /**
   * Closes the connection for this reason, unless what is awaited comes in time. Bytes that arrived while
   * this process stood still are read first.
   */
  #await(ms: number, text: string): void {
    clearTimeout(this.#deadline);
    this.#awaited = text;
    const late = (): void => {
      if (this.#awaited === text) this.#hangUp('UNREACHABLE', text, CloseCode.HANDSHAKE_TIMEOUT);
    };
    this.#deadline = setTimeout(() => setImmediate(late), ms);
  }

  #arrived(): void {
    clearTimeout(this.#deadline);
    this.#awaited = undefined;
  }

  #hangUp(code: ErrorCode, text: string, closeCode: number): void {
    if (this.#state === 'closed') return;
    if (!this.outgoing) this.#options.handlers.onHungUp?.(this, text);
    this.#finish(new KintsugiError(code, text), closeCode);
  }

  /** The socket says that for so long the other side has sent no whole message and answered no ping. */
  silent(ms: number): void {
    const text = `no message and no answer to a ping within ${ms} ms`;
    this.#hangUp('UNREACHABLE', text, CloseCode.HANDSHAKE_TIMEOUT);
    this.#socket.destroy();
  }

  /** A getter, because a handler may have changed the field meanwhile. */
  get #closed(): boolean {
    return this.#state === 'closed';
  }

  get bufferedBytes(): number {
    return this.#state === 'closed' ? 0 : this.#socket.bufferedBytes + (this.#outbound?.waitingBytes ?? 0);
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
      throw new KintsugiError(
        'LIMIT',
        limitText(`a frame of ${frame.byteLength} bytes`, 'maxFrameBytes', maxFrameBytes),
      );
    // The frame's memory belongs to the caller, so it is not reused here.
    this.#transmit(frame, () => {});
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

  /** Takes the limit off what the other side may send. */
  lift(): void {
    const credit = this.#options.received?.link.lift() ?? 0;
    if (credit > 0) this.#write([[{ t: CREDIT, bytes: credit }, []]]);
  }

  keep(bytes: number): void {
    this.#options.received?.link.keep(bytes);
    this.#returnCredit();
  }

  #returnCredit(): void {
    const bytes = this.#closed ? 0 : (this.#options.received?.link.due() ?? 0);
    if (bytes > 0) this.#write([[{ t: CREDIT, bytes }, []]]);
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
      const frame = this.#inbound ? this.#inbound.take(bytes) : bytes;
      if (frame && this.#awaited !== undefined) this.#arrived();
      if (frame) this.#handle(frame, handlers, limits.maxFrameBytes);
      if (this.#inbound) this.#returnCredit();
    } catch (error) {
      this.#failed(error);
    }
  }

  #handle(frame: Uint8Array, handlers: LinkHandlers, maxFrameBytes: number): void {
    try {
      for (const { header, parts } of decodeMessages(frame, maxFrameBytes)) {
        if (this.#outbound && header.t === CREDIT) this.#granted(header.bytes);
        else handlers.onMessage(this, header, parts);
        // After a close no message is received, and none of the rest of a frame in which a handler closed.
        if (this.#closed) return;
      }
    } finally {
      this.#inbound?.handled();
    }
  }

  #granted(bytes: unknown): void {
    if (!Number.isSafeInteger(bytes) || (bytes as number) <= 0)
      throw new KintsugiError('BAD_FRAME', 'credit without a number of bytes');
    this.#outbound!.grant(bytes as number);
  }

  /** Closes after a text message, or anything else that has no place on this wire. */
  reject(what: string): void {
    this.#failed(new KintsugiError('BAD_FRAME', what));
  }

  /** The library says that the kernel has taken something that was buffered. */
  drained(): void {
    if (this.#state !== 'open') return;
    try {
      this.#options.handlers.onDrain?.(this);
    } catch (error) {
      this.#failed(error);
    }
  }

  /** The library says that the socket is closed. */
  closed(code: number, reason: string): void {
    const refused = code === CloseCode.UNAUTHORIZED ? 'the token is missing or wrong' : reason;
    const text = refused || CLOSE_TEXT[code] || `closed with code ${code}`;
    this.#finish(new KintsugiError(CODES[code] ?? 'UNREACHABLE', text));
  }

  #handshake(header: Record<string, unknown>): void {
    const { handshake, handlers, onReady } = this.#options;
    const { send, done, proved, wanted } = handshake.step(header);
    if (send) this.#write([[send, []]]);
    if (wanted) this.#outbound = new Outbound(this.#socket, wanted);
    if (!done) return;
    this.proved = proved;
    this.#state = 'open';
    const { firstMessageMs } = this.#options.limits;
    if (this.outgoing) this.#arrived();
    else this.#await(firstMessageMs, `no message within ${firstMessageMs} ms`);
    onReady?.();
    handlers.onOpen(this);
  }

  #write(messages: readonly Outgoing[]): boolean {
    const { maxFrameBytes } = this.#options.limits;
    let buffer: PartBuffer | undefined;
    const frame = encodeMessages(messages, {
      maxBytes: maxFrameBytes,
      allocate: (bytes) => (this.#outbound ?? this.#socket).allocate(bytes),
      around: (first, start, bytes) => {
        const its = bufferOf(first);
        const built = its?.frame(first, start, bytes);
        if (built) buffer = its;
        return built;
      },
    });
    const lent = buffer;
    if (lent) this.#transmit(frame, () => lent.sent());
    else this.#transmit(frame);
    return this.#mayGoOn();
  }

  #transmit(frame: Uint8Array, sent?: () => void): void {
    this.sentBytes += frame.byteLength;
    if (this.#outbound) this.#outbound.send(frame, sent);
    else this.#socket.send(frame, sent);
  }

  /** True if the other side reads fast enough after a frame was sent; else the link is closed. */
  #mayGoOn(): boolean {
    const { maxBufferedBytes } = this.#options.limits;
    if (this.#closed) return false;
    const { bufferedBytes } = this;
    if (bufferedBytes <= maxBufferedBytes) return true;
    // Destroy it: the message of a graceful close would wait behind everything that the other side does not
    // read.
    this.#finish(
      new KintsugiError(
        'LIMIT',
        limitText(`${bufferedBytes} bytes wait to be sent`, 'maxBufferedBytes', maxBufferedBytes),
      ),
    );
    this.#socket.destroy();
    return false;
  }

  #failed(error: unknown): void {
    if (error instanceof KintsugiError && error.code === 'BAD_FRAME') {
      this.#finish(error, CloseCode.BAD_FRAME, 'BAD_FRAME');
    } else if (error instanceof KintsugiError && error.code === 'FORBIDDEN') {
      this.#finish(error, CloseCode.FORBIDDEN);
    } else if (this.#inbound && error instanceof KintsugiError && error.code === 'LIMIT') {
      this.#finish(error, CloseCode.LIMIT);
    } else if (
      this.#state === 'handshake' &&
      error instanceof KintsugiError &&
      error.code === 'UNAUTHORIZED'
    ) {
      this.#finish(error, CloseCode.UNAUTHORIZED, 'UNAUTHORIZED');
    } else {
      const bug = new KintsugiError('INTERNAL', describe(error), { cause: error });
      this.#finish(bug, CloseCode.INTERNAL, 'INTERNAL');
      this.#report(error);
    }
  }

  /** Closes once. With `code`, this side closes and tells the other. */
  #finish(error: KintsugiError, code?: number, wireReason = error.message): void {
    if (this.#state === 'closed') return;
    const wasOpen = this.#state === 'open';
    this.#state = 'closed';
    this.#arrived();
    this.#beat?.stop();
    this.#inbound?.close();
    this.#outbound?.close();
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
    if (code === undefined) return;
    if (isAtFault(code) && this.#socket.bufferedBytes > MOST_AFTER_FAULT) this.#socket.destroy();
    else this.#socket.end(code, shorten(wireReason));
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

/** Close code -> error code, for closes with a meaning of their own. */
const CODES: Readonly<Record<number, ErrorCode>> = {
  [CloseCode.UNAUTHORIZED]: 'UNAUTHORIZED',
  [CloseCode.FORBIDDEN]: 'FORBIDDEN',
  [CloseCode.LIMIT]: 'LIMIT',
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
