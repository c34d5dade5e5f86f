/**
 * The fallback server: `ws` on node:http, for Node versions and platforms that have no uWebSockets.js binary. Same wire,
 * about the same throughput for large frames, more work per small one.
 */
import { createServer, type IncomingMessage, STATUS_CODES } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { WebSocketServer } from 'ws';
import { Acceptor, listenError } from './accept.js';
import { answerHttp } from './http.js';
import { LINK_PATH, type Listener, type ListenOptions, type TransportLimits } from './types.js';
import { WsSocket } from './ws-socket.js';

export async function listenWs(options: ListenOptions, limits: TransportLimits): Promise<Listener> {
  const { host, port, token, http } = options;
  const acceptor = new Acceptor(options, limits);
  const upgrader = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    skipUTF8Validation: true,
    maxPayload: limits.maxFrameBytes,
  });
  const timeouts = {
    headersTimeout: limits.handshakeMs,
    requestTimeout: limits.handshakeMs,
    connectionsCheckingInterval: limits.handshakeMs,
  };
  const server = createServer(timeouts, async (request, response) => {
    const { method = '', headers } = request;
    const answer = await answerHttp(
      { method, path: pathOf(request), authorization: headers.authorization },
      token,
      http,
    );
    response.writeHead(answer.status, { 'Content-Type': answer.type, Connection: 'close' }).end(answer.body);
  });

  server.on('upgrade', (request, stream, head) => {
    stream.on('error', () => stream.destroy());
    const status = pathOf(request) === LINK_PATH ? acceptor.refusal(request.headers.origin) : 404;
    if (status !== undefined) return refuse(stream, status);
    upgrader.handleUpgrade(request, stream, head, (ws) => {
      const { remoteAddress, remotePort } = request.socket;
      const socket = new WsSocket(ws, `${remoteAddress}:${remotePort}`, limits);
      const connection = acceptor.accept(socket);
      socket.attach(connection, () => acceptor.gone(connection));
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
    close() {
      closed ??= (async () => {
        const freed = new Promise<void>((resolve) => server.close(() => resolve()));
        server.closeAllConnections();
        await acceptor.close();
        await freed;
      })();
      return closed;
    },
  };
}

const pathOf = (request: IncomingMessage): string => (request.url ?? '').split('?', 1)[0]!;

function refuse(stream: Duplex, status: number): void {
  stream.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
}
