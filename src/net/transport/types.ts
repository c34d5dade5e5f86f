/**
 * The interface of the transport: authenticated links that carry frames, a listener that accepts them, and
 * the limits of both. It does not depend on a WebSocket library.
 */
import type { ErrorCode } from '../../common/errors.js';
import { PIECE_BYTES, type ReceivedBytes } from '../../core/shared/received-bytes.js';
import { MAX_FRAME_BYTES, type Outgoing } from '../../protocol/frame.js';
import type { ProvedRole } from './auth.js';
import type { ClientTls, ServerTls } from './tls.js';

/** One authenticated connection. */
export interface Link {
  /** Unique in this process, never reused. */
  readonly id: number;
  /** Address of the other side, for logs. */
  readonly remote: string;
  /** True if this side dialed. */
  readonly outgoing: boolean;
  /**
   * Role that the token of a dialing side proves; undefined when one token serves all, and for the dialed.
   */
  readonly proved: ProvedRole;
  /**
   * Sends one frame. The parts are copied before this returns, so that the caller may reuse them at once;
   * parts in a `PartBuffer` are sent from there, and the buffer is used again when they have been. False when
   * the link is closed, or was closed by this call because the other side reads too slowly
   * (`maxBufferedBytes`). True means "will be sent while the link lives", not "arrived". Frames arrive whole
   * and in order.
   * @throws LIMIT when the frame breaks a limit of `protocol/frame.ts`; the link lives on.
   */
  send(header: object, parts?: readonly Uint8Array[]): boolean;
  /**
   * Sends several messages, at least one, in one frame: as `send` otherwise. Handlers get them one by one, in
   * order.
   */
  sendAll(messages: readonly Outgoing[]): boolean;
  /**
   * Sends a frame that `encodeFrame` made, as `send` otherwise. The same frame may go to any number of links.
   * Its bytes are never changed again.
   */
  sendEncoded(frame: Uint8Array): boolean;
  /** Bytes of all frames that were accepted by `send`. */
  readonly sentBytes: number;
  /** Bytes that were accepted by `send` and not yet by the kernel. */
  readonly bufferedBytes: number;
  /** `bufferedBytes`, and bytes that the other side's kernel has not acknowledged, as far as known. */
  readonly queuedBytes: number;
  /** All received bytes, also of a frame that is not complete; 0 where the library does not tell. */
  readonly receivedBytes: number;
  /**
   * Closes. No message is received after this. Buffered bytes are still sent, if the other side reads them in
   * time. The first reason counts, later calls do nothing. Handlers hear of it once, after the current
   * callback.
   */
  close(reason?: string): void;
  /**
   * Watches the link, so that `unacknowledgedMs` is known. A ping goes out when nothing was sent for
   * `pingMs`; Infinity: only when it is hurried. The link is abandoned when nothing was acknowledged for
   * `goneMs` (default: never).
   */
  watch(pingMs: number, goneMs?: number): void;
  /** Milliseconds, see `Beat` in pulse.ts; undefined also while nobody watches. */
  readonly unacknowledgedMs: number | undefined;
  /** Sends a ping soon, if no acknowledgement is waited for. */
  hurry(): void;
  /** Takes the limit off what the other side may send (`received` of the listener). */
  lift(): void;
  /** Says how many bytes of what came wait to be served. The other side is not granted them again. */
  keep(bytes: number): void;
  /** Closes at once: the other side is gone, so no buffered byte could arrive. */
  abandon(reason: string): void;
}

export interface LinkHandlers {
  /** The other side has proved itself. Called once per link, before its first message. */
  onOpen(link: Link): void;
  /**
   * Called for each message. The parts are views that are valid only during the call; the header may be kept.
   */
  onMessage(link: Link, header: Record<string, unknown>, parts: Uint8Array[]): void;
  /** The kernel has taken something that was buffered. Only links that were accepted tell. */
  onDrain?(link: Link): void;
  /**
   * Called once for every link that was opened, never from within `send` or `close`. `code`: FORBIDDEN when
   * either side refused a message that the other has no right to send, else BAD_FRAME, CLOSED, LIMIT,
   * UNREACHABLE or INTERNAL.
   */
  onClose(link: Link, reason: string, code: ErrorCode): void;
  /**
   * Called when a handler threw something other than BAD_FRAME and FORBIDDEN; the link is being closed.
   * Without this handler the error is thrown again outside the transport, as an uncaught exception, so that
   * it is never lost.
   */
  onError?(link: Link, error: unknown): void;
  /** Called for the log before an accepted link is closed because it says nothing, or too little. */
  onHungUp?(link: Link, reason: string): void;
}

export interface HttpAnswer {
  status: number;
  type: string;
  body: string | Uint8Array;
  /** Target of a redirect. */
  location?: string;
  /** Pieces after the body, until one of both sides ends the answer. `type` is `text/event-stream`. */
  stream?: HttpStream;
}

export interface HttpStream {
  /** Begins the stream: `wake` is called when there is a piece to send. Returns the function that ends it. */
  open(wake: () => void): () => void;
  /** The next piece to send; "": none now. */
  next(): string;
}

/** The details of a GET beside its path. Absent headers are empty. */
export interface HttpDetails {
  /** Text after the question mark. */
  query: string;
  accept: string;
  lastEventId: string;
}

/** The handler of POSTs of one path. */
export interface HttpPost {
  path: string;
  /** Largest body. A longer one is refused with 413. */
  maxBytes: number;
  /** Token that opens the path, as a bearer. Without one, or empty: open on loopback, refused elsewhere. */
  token: string | undefined;
  /** The flag that gives a role this token, for the text of a refusal. */
  tokenFlag: string;
  answer(body: Uint8Array, type: string): HttpAnswer;
}

/** The handler of GETs: answers a path (without its query), or undefined for 404. */
export type HttpHandler = (path: string, details: HttpDetails) => Promise<HttpAnswer> | undefined;

export type ServerKind = 'uws' | 'ws';

/** Options of both `listen` and `dial`. */
export interface LinkOptions {
  host: string;
  /** Port; 0: any free one (listen only). */
  port: number;
  /** Shared secret; both sides prove that they know it. Empty is the same as none. */
  token?: string | undefined;
  handlers: LinkHandlers;
  /** Largest frame in either direction. */
  maxFrameBytes?: number | undefined;
  /** Most bytes that wait to be sent. Beyond this a link is closed: its other side has stopped reading. */
  maxBufferedBytes?: number | undefined;
  /** Account of received frames. With it frames come in pieces (inbound.ts), and within credits. */
  received?: ReceivedBytes | undefined;
  /** @internal Other limits, for tests. */
  limits?: Partial<TransportLimits> | undefined;
}

export interface ListenOptions extends LinkOptions {
  http?: HttpHandler | undefined;
  post?: HttpPost | undefined;
  /** Second secret: a peer that dials with it is a node, and one with `token` is a client. Needs `token`. */
  nodeToken?: string | undefined;
  /** Token that opens HTTP paths about the job, as a bearer. Empty is the same as none. */
  metricsToken?: string | undefined;
  /** Overrides KINTSUGI_TRANSPORT. Default: uws where it loads, else ws. */
  server?: ServerKind | undefined;
  /** With TLS everything on the port is encrypted, HTTP too, and the server is `ws`; without, nothing is. */
  tls?: ServerTls | undefined;
}

export interface DialOptions extends LinkOptions {
  signal?: AbortSignal | undefined;
  /** Time limit of connecting and the handshake together. */
  timeoutMs?: number | undefined;
  /** Time limit of the TCP connection. Default: no limit of its own. */
  connectMs?: number | undefined;
  /** Called when the other side's kernel has taken the TCP connection. */
  onTaken?: (() => void) | undefined;
  /**
   * With TLS the server must show a certificate that holds; `{}` verifies against the public authorities.
   */
  tls?: ClientTls | undefined;
}

export interface Listener {
  readonly port: number;
  readonly kind: ServerKind;
  /** Connections that were refused because they did not show a token they needed. */
  readonly authFailures: number;
  /** Stops accepting, frees the port, closes every link; resolves when all of that is done. */
  close(): Promise<void>;
}

/** Every limit of the transport, and the behaviour at it. */
export interface TransportLimits {
  /** Largest frame. For a larger one the sender throws LIMIT, and the receiver closes the link. */
  maxFrameBytes: number;
  /** Most bytes that wait to be sent. Beyond this the link is closed at once, and they are dropped. */
  maxBufferedBytes: number;
  /** A connection that has not proved itself within this time is closed. */
  handshakeMs: number;
  /** An accepted link whose first message is not here so long after the proof is closed. */
  firstMessageMs: number;
  /** Largest frame before the proof. A longer one closes the connection. */
  handshakeFrameBytes: number;
  /** Most connections that have not proved themselves. Further ones are refused with HTTP 503. */
  maxUnauthenticated: number;
  /** Most links. Further connections are refused with HTTP 503. */
  maxLinks: number;
  /**
   * Most TCP connections that have neither become a WebSocket nor got their HTTP answer. The server `ws`
   * closes the oldest one for a new one: a real peer needs milliseconds here, so a flood of idle connections
   * evicts itself. uWebSockets.js does not tell of such connections, so its own rule bounds them there: they
   * are closed after 10 to 12 s, take 0.4 to 4 KB each (measured), and are at most as many as there are file
   * descriptors (`ulimit -n`).
   */
  maxWaiting: number;
  /** `dial` fails with UNREACHABLE after this time. */
  dialMs: number;
  /** Time that the other side has after a close to read the buffered bytes and to close as well. */
  closeMs: number;
  /**
   * Pings go out at this interval; a peer that is silent for two of them is gone. In whole seconds, at least
   * 8 s.
   */
  pingMs: number;
}

export const TRANSPORT_LIMITS: Readonly<TransportLimits> = {
  maxFrameBytes: MAX_FRAME_BYTES,
  maxBufferedBytes: 256 * 1024 * 1024,
  handshakeMs: 5_000,
  firstMessageMs: 10_000,
  handshakeFrameBytes: 4 * 1024,
  maxUnauthenticated: 256,
  maxLinks: 8192,
  maxWaiting: 1024,
  dialMs: 5_000,
  closeMs: 2_000,
  pingMs: 60_000,
};

/** Largest message that a WebSocket library may put together by itself. `size`: that of the window. */
export function maxMessageBytes(
  { received }: LinkOptions,
  { maxFrameBytes }: TransportLimits,
  size: WindowSize,
): number {
  if (!received) return maxFrameBytes;
  return Math.min(size === 'large' ? received.largePieceBytes : PIECE_BYTES, maxFrameBytes);
}

export function limitsOf(options: LinkOptions): TransportLimits {
  const limits = { ...TRANSPORT_LIMITS, ...options.limits };
  if (options.maxFrameBytes !== undefined) limits.maxFrameBytes = options.maxFrameBytes;
  if (options.maxBufferedBytes !== undefined) limits.maxBufferedBytes = options.maxBufferedBytes;
  return limits;
}

/** WebSocket close codes on this wire. */
export const CloseCode = {
  NORMAL: 1000,
  GOING_AWAY: 1001,
  BAD_FRAME: 1002,
  TOO_BIG: 1009,
  INTERNAL: 1011,
  UNAUTHORIZED: 4401,
  FORBIDDEN: 4403,
  HANDSHAKE_TIMEOUT: 4408,
  LIMIT: 4429,
} as const;

/**
 * The path of WebSockets. A server that has no large window left redirects to the other one, where messages
 * are shorter; everything else is HTTP.
 */
export const LINK_PATH = '/link';
export const SMALL_LINK_PATH = '/link/small';

/** How much a link may send before it waits (core/shared/received-bytes.ts). */
export type WindowSize = 'large' | 'small';

/** The windows that the paths have. */
export const LINK_SIZES: ReadonlyMap<string, WindowSize> = new Map([
  [LINK_PATH, 'large'],
  [SMALL_LINK_PATH, 'small'],
]);
