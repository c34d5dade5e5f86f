/**
 * Dialing, with the `ws` package on every platform.
 *
 * Clients must mask their frames (RFC 6455, against proxies that take a browser's bytes for HTTP). These
 * peers are no browsers and choose zeros as the mask, for which the library skips the pass over the payload:
 * 3 to 4 GB/s instead of 0.3.
 */
import { isIP, type Socket } from 'node:net';
import { WebSocket } from 'ws';
import { onAbort } from '../../common/aborts.js';
import { describe, KintsugiError } from '../../common/errors.js';
import { clientHandshake, GATE_HEADER, gatePass } from './auth.js';
import { Connection } from './connection.js';
import { clientTlsOptions, distrust } from './tls.js';
import {
  type DialOptions,
  LINK_PATH,
  type Link,
  maxMessageBytes,
  SMALL_LINK_PATH,
  type TransportLimits,
} from './types.js';
import { INBOUND_MEMORY, WsSocket } from './ws-socket.js';

export function dialWs(options: DialOptions, limits: TransportLimits): Promise<Link> {
  const { host, port, signal, timeoutMs = limits.dialMs } = options;
  const where = `${host}:${port}`;
  if (signal?.aborted) return Promise.reject(new KintsugiError('ABORTED', `dialing ${where} was aborted`));
  return new Promise((resolve, reject) => {
    const late = (): void => fail(new KintsugiError('UNREACHABLE', `${where} did not take the connection`));
    const { token } = options;
    const ws = connect(options, maxMessageBytes(options, limits, 'large'), late);
    const socket = new WsSocket(ws, where, limits);
    const settle = (outcome: () => void): void => {
      clearTimeout(timer);
      forget();
      outcome();
    };
    const fail = (error: KintsugiError): void => {
      settle(() => reject(error));
      // Close the connection, so that nothing is handled any more. Terminate the socket, so that the other
      // side is not waited for.
      connection.close();
      ws.terminate();
    };
    const abort = (): void => fail(new KintsugiError('ABORTED', `dialing ${where} was aborted`));
    const timer = setTimeout(
      () => fail(new KintsugiError('UNREACHABLE', `${where} did not answer within ${timeoutMs} ms`)),
      timeoutMs,
    );
    const forget = onAbort(signal, abort);
    let connected = false;
    const received = options.received?.open('free');
    const connection: Connection = new Connection(socket, {
      outgoing: true,
      handshake: clientHandshake(token, received?.terms),
      received: received && { link: received, memory: INBOUND_MEMORY },
      handlers: options.handlers,
      // The timer of the whole dial covers the handshake.
      limits: { ...limits, handshakeMs: timeoutMs },
      onReady: () => settle(() => resolve(connection)),
      onRefused: (error) => {
        if (!connected) return;
        const code = error.code === 'CLOSED' ? 'UNREACHABLE' : error.code;
        const failed = new KintsugiError(code, `${where}: ${error.message}`, { cause: error });
        settle(() => reject(failed));
      },
    });
    // This listener comes before that of the connection: it has the error's code, the connection only the
    // text.
    ws.on('error', (error) => {
      if (!connected) settle(() => reject(refusal(where, error, options.tls !== undefined)));
    });
    ws.on('open', () => {
      connected = true;
      connection.start();
    });
    socket.attach(connection);
  });
}

function connect(
  { host, port, token, tls, connectMs, onTaken }: DialOptions,
  messageBytes: number,
  late: () => void,
): WebSocket {
  const name = host.includes(':') ? `[${host}]` : host;
  const secured = tls && clientTlsOptions(tls, host);
  try {
    const url = new URL(`${secured ? 'wss' : 'ws'}://${name}:${port}${LINK_PATH}`);
    const places = [url.href, new URL(SMALL_LINK_PATH, url).href];
    return new WebSocket(url, {
      ...secured,
      headers: token ? { [GATE_HEADER]: gatePass(token) } : {},
      perMessageDeflate: false,
      skipUTF8Validation: true,
      maxPayload: messageBytes,
      generateMask: (mask) => mask.fill(0),
      followRedirects: true,
      maxRedirects: 1,
      finishRequest: (request, ws) => {
        // A redirection leads to the other path of this server. None takes the token's pass elsewhere.
        if (!places.includes(ws.url)) return void request.destroy(new Error('it redirects to another place'));
        if (onTaken) request.once('socket', (socket) => socket.once('connect', onTaken));
        if (connectMs !== undefined)
          request.once('socket', (socket) => connectWithin(socket, host, connectMs, late));
        request.end();
      },
    });
  } catch (error) {
    throw new KintsugiError('BAD_ARGUMENT', `"${host}" is no host name`, { cause: error });
  }
}

/**
 * Limits the time of the TCP connection. The kernel repeats a request for a connection less and less often,
 * so after a partition a new request gets through first.
 */
function connectWithin(socket: Socket, host: string, connectMs: number, late: () => void): void {
  let timer: NodeJS.Timeout | undefined;
  const begin = (): void => {
    timer = setTimeout(late, connectMs);
  };
  // Looking up a name takes its own time.
  if (isIP(host) !== 0) begin();
  else socket.once('lookup', begin);
  socket.once('connect', () => clearTimeout(timer));
  socket.once('close', () => clearTimeout(timer));
}

function refusal(where: string, error: Error, secured: boolean): KintsugiError {
  const strange = distrust(error);
  if (strange !== undefined) {
    const text = `${where}: its certificate is not to be trusted: ${strange}`;
    return new KintsugiError('UNAUTHORIZED', text, { cause: error });
  }
  const status = /^Unexpected server response: (\d+)$/.exec(error.message)?.[1];
  if (status === '401') return new KintsugiError('UNAUTHORIZED', `${where}: the token is missing or wrong`);
  return new KintsugiError('UNREACHABLE', `${where}: ${causeOf(error, status, secured)}`, { cause: error });
}

/**
 * The cause of a failed dial, for people: Node's error for several addresses of a name has an empty message.
 */
function causeOf(error: Error, status: string | undefined, secured: boolean): string {
  const code = (error as { code?: string }).code;
  if (code === 'ECONNREFUSED') return 'connection refused';
  if (status === '503')
    return 'too many connections are waiting there to be authenticated, or it is shutting down';
  if (status) return `not a port of this system (HTTP ${status})`;
  // One side speaks TLS and the other does not: neither can say so in words that the other understands.
  if (secured && (code === 'EPROTO' || code?.startsWith('ERR_SSL_')))
    return 'the other side does not speak TLS';
  if (code === 'ECONNRESET')
    return `the other side hung up at once; does it speak TLS${secured ? ' at all' : ', and this side not'}?`;
  return describe(error) || code || 'cannot connect';
}
