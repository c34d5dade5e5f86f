/**
 * The fallback server: `ws` on node:http, for Node versions and platforms that have no uWebSockets.js binary.
 * It speaks the same wire, has about the same throughput for large frames, and takes more time for small
 * ones.
 */
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket as TcpSocket } from 'node:net';
import type { Duplex } from 'node:stream';
import { WebSocketServer } from 'ws';
import { Acceptor, listenError } from './accept.js';
import { GATE_HEADER } from './auth.js';
import { answerHttp, Body, type HttpRequest, postOf, refusalOfPost } from './http.js';
import { Streams } from './streams.js';
import { MIN_TLS_VERSION, readServerTls } from './tls.js';
import {
  type HttpAnswer,
  LINK_SIZES,
  type Listener,
  type ListenOptions,
  maxMessageBytes,
  SMALL_LINK_PATH,
  type TransportLimits,
  type WindowSize,
} from './types.js';
import { WsSocket } from './ws-socket.js';

export async function listenWs(options: ListenOptions, limits: TransportLimits): Promise<Listener> {
  const { host, port } = options;
  const acceptor = new Acceptor(options, limits);
  const upgrader = (size: WindowSize): WebSocketServer =>
    new WebSocketServer({
      noServer: true,
      clientTracking: false,
      perMessageDeflate: false,
      skipUTF8Validation: true,
      maxPayload: maxMessageBytes(options, limits, size),
    });
  const upgraders = { large: upgrader('large'), small: upgrader('small') };
  const server = createHttpServer(options, limits);
  const waiting = new WaitingSockets(limits.maxWaiting);
  server.on('connection', (socket: TcpSocket) => waiting.add(socket));
  const bodies = { bytes: 0 };
  const streams = new Streams();
  server.on('request', async (request, response) => {
    const { method = '', headers } = request;
    const asked: HttpRequest = {
      ...{ method, path: pathOf(request), query: (request.url ?? '').split('?').slice(1).join('?') },
      ...{ authorization: headers.authorization, host: headers.host ?? '', accept: headers.accept ?? '' },
      lastEventId: `${headers['last-event-id'] ?? ''}`,
    };
    const post = postOf(asked, options);
    if (post) return takePost(asked, new Body(post, bodies), request, response, options);
    const answer = await answerHttp(asked, options, streams);
    const { location } = answer;
    const where = location === undefined ? {} : { Location: location };
    response.writeHead(answer.status, { 'Content-Type': answer.type, Connection: 'close', ...where });
    if (!answer.stream) return void response.end(answer.body);
    waiting.remove(request.socket);
    const write = (text: string): boolean => response.write(text);
    const stream = streams.add(answer.stream, { write, end: () => response.end() });
    response.on('drain', () => stream.drained());
    response.on('close', () => stream.closed());
    response.write(answer.body);
    if (!response.closed) stream.begin();
  });

  server.on('upgrade', (request, stream, head) => {
    stream.on('error', () => stream.destroy());
    const { origin, [GATE_HEADER]: gate } = request.headers;
    // A header that is given twice arrives as a list. It is no gate pass.
    const pass = typeof gate === 'string' ? gate : undefined;
    const size = LINK_SIZES.get(pathOf(request));
    const status = size ? acceptor.refusal(origin, pass, size) : 404;
    if (!size || status !== undefined) return refuse(stream, status!);
    upgraders[size].handleUpgrade(request, stream, head, (ws) => {
      const { remoteAddress, remotePort } = request.socket;
      waiting.remove(request.socket);
      const host = remoteAddress?.includes(':') ? `[${remoteAddress}]` : remoteAddress;
      const socket = new WsSocket(ws, `${host}:${remotePort}`, limits);
      const connection = acceptor.accept(socket, size);
      socket.attach(connection, () => acceptor.gone(connection));
      stream.on('drain', () => connection.drained());
      connection.start();
    });
  });

  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => reject(listenError(error, host, port)));
    server.listen({ host, port, exclusive: true }, resolve);
  });
  let closed: Promise<void> | undefined;
  return {
    port: (server.address() as AddressInfo).port,
    kind: 'ws',
    get authFailures() {
      return acceptor.authFailures;
    },
    close() {
      closed ??= (async () => {
        const freed = new Promise<void>((resolve) => server.close(() => resolve()));
        streams.close();
        server.closeAllConnections();
        await acceptor.close();
        await freed;
      })();
      return closed;
    },
  };
}

/** Answers a POST. The connection stays open for further requests, unless this one was refused. */
function takePost(
  asked: HttpRequest,
  body: Body,
  request: IncomingMessage,
  response: ServerResponse,
  options: ListenOptions,
): void {
  const give = ({ status, type, body: content }: HttpAnswer, last: boolean) => {
    response.writeHead(status, { 'Content-Type': type, ...(last && { Connection: 'close' }) }).end(content);
    // The rest of the body is not read.
    if (last) request.removeAllListeners('data');
  };
  const refused = refusalOfPost(asked, options.post!, options);
  if (refused) return give(refused, true);
  response.on('close', () => body.end());
  let over = false;
  request.on('data', (chunk: Buffer) => {
    const tooMuch = body.add(chunk);
    if (!tooMuch) return;
    over = true;
    body.end();
    give(tooMuch, true);
  });
  request.on('end', () => {
    if (!over) give(body.answer(request.headers['content-type'] ?? ''), false);
  });
}

function createHttpServer({ tls }: ListenOptions, limits: TransportLimits): Server {
  const timeouts = {
    headersTimeout: limits.handshakeMs,
    requestTimeout: limits.handshakeMs,
    connectionsCheckingInterval: limits.handshakeMs,
  };
  if (!tls) return createServer(timeouts);
  const secured = {
    ...readServerTls(tls),
    minVersion: MIN_TLS_VERSION,
    handshakeTimeout: limits.handshakeMs,
  };
  return createTlsServer({ ...timeouts, ...secured });
}

/**
 * TCP connections that are no links (yet), oldest first. The key is the other side's address, which is unique
 * while they are open: the socket of a TLS connection is another object than the one that was accepted.
 */
class WaitingSockets {
  readonly #sockets = new Map<string, TcpSocket>();
  readonly #most: number;

  constructor(most: number) {
    this.#most = most;
  }

  add(socket: TcpSocket): void {
    const key = keyOf(socket);
    this.#sockets.set(key, socket);
    socket.once('close', () => {
      if (this.#sockets.get(key) === socket) this.#sockets.delete(key);
    });
    if (this.#sockets.size <= this.#most) return;
    const [oldest, evicted] = this.#sockets.entries().next().value!;
    this.#sockets.delete(oldest);
    evicted.destroy();
  }

  remove(socket: TcpSocket): void {
    this.#sockets.delete(keyOf(socket));
  }
}

const keyOf = (socket: TcpSocket): string => `${socket.remoteAddress} ${socket.remotePort}`;

const pathOf = (request: IncomingMessage): string => (request.url ?? '').split('?', 1)[0]!;

function refuse(stream: Duplex, status: number): void {
  // Destroy it when the answer is out: a peer that goes on sending would keep the connection open.
  stream.once('finish', () => stream.destroy());
  const where = status === 307 ? `Location: ${SMALL_LINK_PATH}\r\n` : '';
  const rest = `${where}Connection: close\r\nContent-Length: 0\r\n\r\n`;
  stream.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${rest}`);
}
