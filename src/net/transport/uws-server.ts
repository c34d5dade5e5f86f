/**
 * The server on uWebSockets.js. The package is optional and loaded at run time under the name
 * `uWebSockets.js`, which may be the repackaged build from npm or the official one. Only parts that both have
 * are used; they are typed here.
 *
 * Settings that matter:
 * - maxBackpressure 0: the library never drops a message of its own accord; `Connection` bounds the buffered
 *   bytes.
 * - idleTimeout with automatic pings: the library's only detection of dead peers. It also frees a socket
 *   whose other side never answers a close.
 * - maxLifetime 0: links live as long as their nodes.
 * - the listening port is exclusive: by default two processes could bind the same port and share its
 *   connections.
 *
 * TCP_NODELAY is always on in this library. It assembles a message before handing it over, so a frame that is
 * too large for the handshake is refused only when it is here. With a token the gate (auth.ts) comes before
 * that, and the number of such connections and their time are limited. A connection that has not sent the
 * headers of a request is closed after 10 s.
 *
 * A socket object throws when it is used after its close callback, and an exception in a callback ends the
 * process: `UwsSocket` keeps track, `Connection` catches.
 */
import { STATUS_CODES } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { importOptional } from '../../common/optional.js';
import { Acceptor, listenError } from './accept.js';
import { GATE_HEADER } from './auth.js';
import type { Connection } from './connection.js';
import { answerHttp, Body, type HttpRequest, postOf, refusalOfPost } from './http.js';
import { type OpenStream, Streams } from './streams.js';
import {
  type HttpAnswer,
  type HttpStream,
  LINK_SIZES,
  type Listener,
  type ListenOptions,
  maxMessageBytes,
  SMALL_LINK_PATH,
  type TransportLimits,
  type WindowSize,
} from './types.js';
import { UwsSocket, type Ws } from './uws-socket.js';

interface Response {
  writeStatus(status: string): Response;
  writeHeader(key: string, value: string): Response;
  end(body: string | Uint8Array, closeConnection: boolean): void;
  /** False: the kernel has not taken all of it. */
  write(chunk: string | Uint8Array): boolean;
  onWritable(callback: (offset: number) => boolean): void;
  /** The chunk is memory of the library: valid only during the call. */
  onData(callback: (chunk: ArrayBuffer, isLast: boolean) => void): void;
  cork(callback: () => void): void;
  onAborted(callback: () => void): void;
  upgrade(data: object, key: string, protocol: string, extensions: string, context: unknown): void;
}
interface UwsRequest {
  getHeader(name: string): string;
  getUrl(): string;
  getQuery(): string | undefined;
  getMethod(): string;
}
interface Behavior {
  maxPayloadLength: number;
  maxBackpressure: number;
  idleTimeout: number;
  maxLifetime: number;
  sendPingsAutomatically: boolean;
  compression: number;
  upgrade(response: Response, request: UwsRequest, context: unknown): void;
  open(ws: Ws): void;
  message(ws: Ws, message: ArrayBuffer, isBinary: boolean): void;
  drain(ws: Ws): void;
  ping(ws: Ws): void;
  pong(ws: Ws): void;
  close(ws: Ws, code: number, message: ArrayBuffer): void;
}
interface App {
  ws(pattern: string, behavior: Behavior): App;
  any(pattern: string, handler: (response: Response, request: UwsRequest) => void): App;
  listen(host: string, port: number, options: number, callback: (token: unknown) => void): App;
  /** Closes every connection; not in all builds. */
  close?(): App;
}
export interface Uws {
  App(): App;
  DISABLED: number;
  LIBUS_LISTEN_EXCLUSIVE_PORT: number;
  /** The official names, and those of the repackaged build. */
  us_listen_socket_close?(token: unknown): void;
  us_socket_local_port?(token: unknown): number;
  closeSocket?(token: unknown): void;
  getSocketPort?(token: unknown): number;
}

/** @throws DEPENDENCY_MISSING when it is not installed or has no binary for this Node and platform. */
export async function loadUws(): Promise<Uws> {
  const module = await importOptional<{ default?: Uws } & Uws>('uWebSockets.js');
  return module.default ?? module;
}

/**
 * @param payloadLossWorkaround only tests switch it off. Builds before uWebSockets PR #1662 have a shortcut
 * for messages of 16 KiB and more: header and payload go to the kernel in one call, and when not even the
 * whole header fits into a full socket buffer, only the rest of the header is kept for later. The payload is
 * lost and the next message is read in its place. The shortcut is not taken for sockets that are subscribed
 * to a topic, so every socket is, to one that nobody publishes to. There is no other effect.
 */
export async function listenUws(
  options: ListenOptions,
  limits: TransportLimits,
  payloadLossWorkaround = true,
): Promise<Listener> {
  const { host, port } = options;
  const uws = await loadUws();
  const acceptor = new Acceptor(options, limits);
  const app = uws.App();
  const open: OpenSockets = new Map();
  // A ping is judged after reading: its answer may have come while this process stood still.
  const pinging = setInterval(() => setImmediate(pingAll, open, limits.pingMs), limits.pingMs).unref();
  for (const [path, size] of LINK_SIZES) {
    const messageBytes = maxMessageBytes(options, limits, size);
    const terms = { size, messageBytes, workaround: payloadLossWorkaround };
    app.ws(
      path,
      behavior(uws, acceptor, limits, terms, open, () => bound),
    );
  }
  const bodies = { bytes: 0 };
  const streams = new Streams();
  app.any('/*', (response, request) => answer(response, request, options, bodies, streams));
  let token: unknown;
  let bound = port;
  for (let attempt = 0; !token && attempt < (port === 0 ? FREE_PORT_ATTEMPTS : 1); attempt++) {
    const wanted = port === 0 ? await freePort(host) : port;
    token = await new Promise((resolve) =>
      app.listen(host, wanted, uws.LIBUS_LISTEN_EXCLUSIVE_PORT, resolve),
    );
  }
  if (!token) throw listenError(await bindError(host, port), host, port);
  bound = (uws.us_socket_local_port ?? uws.getSocketPort)!(token);
  let closed: Promise<void> | undefined;
  return {
    port: bound,
    kind: 'uws',
    get authFailures() {
      return acceptor.authFailures;
    },
    close() {
      if (!closed) {
        (uws.us_listen_socket_close ?? uws.closeSocket)!(token);
        clearInterval(pinging);
        streams.close();
        // Then also HTTP connections that were kept open for further requests.
        closed = acceptor.close().then(() => void (options.post && app.close?.()));
      }
      return closed;
    },
  };
}

/** A WebSocket that is open. */
interface OpenSocket {
  readonly socket: UwsSocket;
  readonly connection: Connection;
  /** A whole message or the answer to a ping came since the last ping. */
  heard: boolean;
  pinged: boolean;
}
type OpenSockets = Map<Ws, OpenSocket>;

/**
 * Pings all, and closes those that did not answer the last ping. The library itself takes every byte for a
 * sign of life, also those of a message that never ends.
 */
function pingAll(open: OpenSockets, pingMs: number): void {
  for (const entry of [...open.values()]) {
    if (entry.pinged && !entry.heard) {
      entry.connection.silent(pingMs);
      continue;
    }
    entry.heard = false;
    entry.pinged = entry.socket.ping(0);
  }
}

function behavior(
  uws: Uws,
  acceptor: Acceptor,
  limits: TransportLimits,
  { size, messageBytes, workaround }: { size: WindowSize; messageBytes: number; workaround: boolean },
  open: OpenSockets,
  portNow: () => number,
): Behavior {
  const hear = (ws: Ws): void => {
    const entry = open.get(ws);
    if (entry) entry.heard = true;
  };
  return {
    maxPayloadLength: messageBytes,
    maxBackpressure: 0,
    idleTimeout: Math.min(960, Math.max(8, Math.ceil((2 * limits.pingMs) / 1000))),
    maxLifetime: 0,
    sendPingsAutomatically: true,
    compression: uws.DISABLED,
    upgrade(response, request, context) {
      const status = acceptor.refusal(request.getHeader('origin'), request.getHeader(GATE_HEADER), size);
      if (status !== undefined) {
        response.writeStatus(statusLine(status));
        if (status === 307) response.writeHeader('Location', SMALL_LINK_PATH);
        response.end('', true);
        return;
      }
      const header = (name: string): string => request.getHeader(`sec-websocket-${name}`);
      response.upgrade({}, header('key'), header('protocol'), header('extensions'), context);
    },
    open(ws) {
      if (workaround) ws.subscribe('nothing');
      const socket = new UwsSocket(ws, limits.closeMs, portNow());
      const connection = acceptor.accept(socket, size);
      open.set(ws, { socket, connection, heard: true, pinged: false });
      connection.start();
    },
    message(ws, message, isBinary) {
      hear(ws);
      const connection = open.get(ws)?.connection;
      if (isBinary) connection?.receive(new Uint8Array(message));
      else connection?.reject('a text message');
    },
    ping: hear,
    pong: hear,
    drain(ws) {
      // A side that reads is there, and its answer to a ping may be behind what it reads.
      hear(ws);
      const entry = open.get(ws);
      entry?.socket.onDrain();
      entry?.connection.drained();
    },
    close(ws, code, message) {
      const entry = open.get(ws);
      if (!entry) return;
      open.delete(ws);
      entry.socket.onClose();
      entry.connection.closed(code, Buffer.from(message).toString());
      acceptor.gone(entry.connection);
    },
  };
}

function answer(
  response: Response,
  request: UwsRequest,
  options: ListenOptions,
  bodies: { bytes: number },
  streams: Streams,
): void {
  // The request object is valid only now.
  const asked: HttpRequest = {
    method: request.getMethod(),
    path: request.getUrl(),
    query: request.getQuery() ?? '',
    authorization: request.getHeader('authorization'),
    host: request.getHeader('host'),
    accept: request.getHeader('accept'),
    lastEventId: request.getHeader('last-event-id'),
  };
  const type = request.getHeader('content-type');
  let over = false;
  let stream: OpenStream | undefined;
  const give = (it: HttpAnswer, last: boolean) => {
    if (over) return;
    over = true;
    response.cork(() => {
      response.writeStatus(statusLine(it.status)).writeHeader('Content-Type', it.type);
      if (it.location !== undefined) response.writeHeader('Location', it.location);
      response.end(it.body, last);
    });
  };
  const post = postOf(asked, options);
  const body = post && new Body(post, bodies);
  response.onAborted(() => {
    over = true;
    body?.end();
    stream?.closed();
  });
  const follow = (it: HttpAnswer, source: HttpStream) => {
    if (over) return;
    const corked = (work: () => void) => void (!over && response.cork(work));
    let writes = 0;
    const write = (text: string): boolean => {
      let taken = true;
      writes++;
      corked(() => {
        taken = response.write(text);
      });
      return taken;
    };
    stream = streams.add(source, { write, end: () => corked(() => response.end('', true)) });
    response.onWritable(() => {
      const before = writes;
      stream?.drained();
      // The library keeps the rest of the last piece until the next write, so there must be one.
      if (writes === before) write(EVENT_COMMENT);
      return true;
    });
    corked(() => {
      response.writeStatus(statusLine(it.status)).writeHeader('Content-Type', it.type).write(it.body);
    });
    stream.begin();
  };
  if (!post || !body)
    return void answerHttp(asked, options, streams).then((it) =>
      it.stream ? follow(it, it.stream) : give(it, true),
    );
  const refused = refusalOfPost(asked, post, options);
  if (refused) return give(refused, true);
  // The connection stays open for further requests, unless this one was refused.
  response.onData((chunk, isLast) => {
    if (over) return;
    const tooMuch = body.add(new Uint8Array(chunk));
    if (tooMuch) {
      body.end();
      give(tooMuch, true);
    } else if (isLast) give(body.answer(type), false);
  });
}

/** A line of an event stream that readers ignore. */
const EVENT_COMMENT = ':\n';

const statusLine = (status: number): string => `${status} ${STATUS_CODES[status] ?? ''}`;

/**
 * Attempts to choose a free port. The library would accept port 0, but it sets SO_REUSEADDR only for ports
 * that it is given: a port that the kernel chose could not be bound again for a minute after a restart. So
 * the port is chosen here, and another process may be faster to bind it.
 */
const FREE_PORT_ATTEMPTS = 10;

async function freePort(host: string): Promise<number> {
  const outcome = await bind(host, 0);
  if (typeof outcome === 'number') return outcome;
  throw listenError(outcome, host, 0);
}

/** The reason of a failed bind: uWebSockets.js does not tell it, so the port is bound the ordinary way. */
async function bindError(host: string, port: number): Promise<unknown> {
  const outcome = await bind(host, port);
  return typeof outcome === 'number' ? new Error('the server library refused the address') : outcome;
}

/** Binds a port and gives it up again: its number, or the error. */
function bind(host: string, port: number): Promise<unknown> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', resolve);
    probe.listen({ host, port, exclusive: true }, () => {
      const bound = (probe.address() as AddressInfo).port;
      probe.close(() => resolve(bound));
    });
  });
}
