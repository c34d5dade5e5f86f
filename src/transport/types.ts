/**
 * What the rest of the project knows of the network: authenticated links that carry frames, a listener that
 * accepts them, and the limits of both. No WebSocket library shows through.
 */
import type { ErrorCode } from '../errors.js';
import { MAX_FRAME_BYTES, type Outgoing } from '../protocol/frame.js';
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
  /** What the token of a dialing side says it is; undefined when one token serves all, and for the dialed. */
  readonly proved: ProvedRole;
  /**
   * Sends one frame. The parts are copied before this returns, so that the caller may reuse them at once;
   * those that stand in a `PartBuffer` are sent from there, and it is used again when they have been. False
   * when the link is closed, or was closed by this call because the other side reads too slowly
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
  /** Bytes that were accepted by `send` and not yet by the kernel. */
  readonly bufferedBytes: number;
  /** As `bufferedBytes`, and what the other side's kernel has not acknowledged, as far as that is known. */
  readonly queuedBytes: number;
  /** All bytes that came, also of a frame that is not complete; 0 where the library does not tell. */
  readonly receivedBytes: number;
  /**
   * Closes. Nothing is received after this; what is buffered is still sent, if the other side reads it in
   * time. The first reason counts, later calls do nothing. Handlers hear of it once, after the current
   * callback.
   */
  close(reason?: string): void;
  /**
   * From now on `unacknowledgedMs` is known. A ping goes out when nothing was sent for `pingMs`; Infinity:
   * only when it is hurried. The link is abandoned when nothing was acknowledged for `goneMs` (default:
   * never).
   */
  watch(pingMs: number, goneMs?: number): void;
  /** See `Beat` in pulse.ts; undefined also while nobody watches. */
  readonly unacknowledgedMs: number | undefined;
  /** Sends a ping soon, if no acknowledgement is waited for. */
  hurry(): void;
  /** Closes at once: the other side is gone, so that nothing that is buffered could arrive. */
  abandon(reason: string): void;
}

export interface LinkHandlers {
  /** The other side has proved itself. Called once per link, before its first message. */
  onOpen(link: Link): void;
  /** One message. The parts are views that are valid only during the call; the header may be kept. */
  onMessage(link: Link, header: Record<string, unknown>, parts: Uint8Array[]): void;
  /**
   * Called once for every link that was opened, never from within `send` or `close`. `code`: FORBIDDEN when
   * either side refused what the other has no right to send, else BAD_FRAME, CLOSED, LIMIT, UNREACHABLE or
   * INTERNAL.
   */
  onClose(link: Link, reason: string, code: ErrorCode): void;
  /**
   * A handler threw something other than BAD_FRAME and FORBIDDEN; that link is being closed. Without this
   * handler the error is thrown again outside the transport, as an uncaught exception, so that it is never
   * lost.
   */
  onError?(link: Link, error: unknown): void;
}

export interface HttpAnswer {
  status: number;
  type: string;
  body: string | Uint8Array;
  /** Of a redirect: where it is. */
  location?: string;
  /** What comes after the body, until one of both sides ends it. */
  stream?: HttpStream;
}

export interface HttpStream {
  /** `wake` is called when there is something to send. Returns how to end that. */
  open(wake: () => void): () => void;
  /** What is to be sent next; "": nothing now. */
  next(): string;
}

/** What a GET says beside its path. Headers that are not there are empty. */
export interface HttpDetails {
  /** Behind the question mark. */
  query: string;
  accept: string;
  lastEventId: string;
}

/** What is answered to a POST of one path. */
export interface HttpPost {
  path: string;
  /** A longer body is refused with 413. */
  maxBytes: number;
  /** Opens it, as a bearer; without one it is open on loopback and refused beyond. Empty: as without. */
  token: string | undefined;
  /** The flag that gives a role this token, for the text of a refusal. */
  tokenFlag: string;
  answer(body: Uint8Array, type: string): HttpAnswer;
}

/** Answers a GET of a path (without its query), or undefined for 404. */
export type HttpHandler = (path: string, details: HttpDetails) => Promise<HttpAnswer> | undefined;

export type ServerKind = 'uws' | 'ws';

/** What `listen` and `dial` have in common. */
export interface LinkOptions {
  host: string;
  /** 0: any free port (listen only). */
  port: number;
  /** Shared secret; both sides prove that they know it. Empty is the same as none. */
  token?: string | undefined;
  handlers: LinkHandlers;
  /** Largest frame in either direction. */
  maxFrameBytes?: number | undefined;
  /** A link that has more than this to send is closed: its other side has stopped reading. */
  maxBufferedBytes?: number | undefined;
  /** @internal Other limits, for tests. */
  limits?: Partial<TransportLimits> | undefined;
}

export interface ListenOptions extends LinkOptions {
  http?: HttpHandler | undefined;
  post?: HttpPost | undefined;
  /** Second secret: who dials with it is a node, and who dials with `token` is none. Needs `token`. */
  nodeToken?: string | undefined;
  /** Opens what HTTP tells of the job, as a bearer. Empty is the same as none. */
  metricsToken?: string | undefined;
  /** Overrides KINTSUGI_TRANSPORT. Default: uws where it loads, else ws. */
  server?: ServerKind | undefined;
  /** With it everything on the port is encrypted, HTTP too, and the server is `ws`; without it nothing is. */
  tls?: ServerTls | undefined;
}

export interface DialOptions extends LinkOptions {
  signal?: AbortSignal | undefined;
  /** For connecting and the handshake together. */
  timeoutMs?: number | undefined;
  /** For the TCP connection alone. Default: no limit of its own. */
  connectMs?: number | undefined;
  /** The other side's kernel has taken the TCP connection. */
  onTaken?: (() => void) | undefined;
  /**
   * With it the server must speak TLS and show a certificate that holds; `{}` verifies against the public
   * authorities.
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

/** Every limit of the transport, and what happens at it. */
export interface TransportLimits {
  /** The sender throws LIMIT; the receiver closes the link. */
  maxFrameBytes: number;
  /** The link is closed at once, without waiting for what is buffered. */
  maxBufferedBytes: number;
  /** A connection that has not proved itself by then is closed. */
  handshakeMs: number;
  /** A longer frame before the proof closes the connection. */
  handshakeFrameBytes: number;
  /** Further connections are refused with HTTP 503 while so many have not proved themselves. */
  maxUnauthenticated: number;
  /** Further connections are refused with HTTP 503 while there are so many links. */
  maxLinks: number;
  /**
   * TCP connections that have neither become a WebSocket nor got their HTTP answer. The server `ws` closes
   * the oldest one for a new one: a real peer needs milliseconds here, so a flood of idle connections evicts
   * itself. uWebSockets.js tells nobody of such connections, so that there it is its own rule that bounds
   * them: closed after 10 to 12 s, 0.4 to 4 KB each (measured), and as many as there are file descriptors
   * (`ulimit -n`).
   */
  maxWaiting: number;
  /** `dial` gives up, UNREACHABLE. */
  dialMs: number;
  /** After a close: how long the other side has to read what is buffered and to close as well. */
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
  handshakeFrameBytes: 4 * 1024,
  maxUnauthenticated: 256,
  maxLinks: 8192,
  maxWaiting: 1024,
  dialMs: 5_000,
  closeMs: 2_000,
  pingMs: 60_000,
};

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
} as const;

/** The one path that accepts WebSockets; everything else is HTTP. */
export const LINK_PATH = '/link';
