/**
 * Helpers of the transport tests: recorded events that can be awaited, and peers that do not follow the
 * rules.
 */
import { connect, createServer, type Server, type Socket } from 'node:net';
import { WebSocket } from 'ws';
import { KintsugiError } from '../../../src/common/errors.js';
import { clientHandshake } from '../../../src/net/transport/auth.js';
import {
  LINK_PATH,
  type Link,
  type LinkHandlers,
  type Listener,
  type ListenOptions,
  listen,
} from '../../../src/net/transport/index.js';
import { decodeFrame, encodeFrame } from '../../../src/protocol/frame.js';

export const HOST = '127.0.0.1';

export type Event =
  | { kind: 'open'; link: Link }
  | { kind: 'message'; link: Link; header: Record<string, unknown>; parts: Uint8Array[] }
  | { kind: 'close'; link: Link; reason: string }
  | { kind: 'error'; link: Link; error: unknown };

/**
 * Handlers that record; parts are copied, as they must be to be kept. `next` waits for the first event not
 * yet taken.
 */
export class Recorder implements LinkHandlers {
  readonly events: Event[] = [];
  readonly #waiting: ((event: Event) => void)[] = [];

  onOpen(link: Link): void {
    this.#push({ kind: 'open', link });
  }
  onMessage(link: Link, header: Record<string, unknown>, parts: Uint8Array[]): void {
    this.#push({ kind: 'message', link, header, parts: parts.map((part) => part.slice()) });
  }
  onClose(link: Link, reason: string): void {
    this.#push({ kind: 'close', link, reason });
  }
  onError(link: Link, error: unknown): void {
    this.#push({ kind: 'error', link, error });
  }

  next(): Promise<Event> {
    const event = this.events.shift();
    return event ? Promise.resolve(event) : new Promise((resolve) => this.#waiting.push(resolve));
  }
  /** The next event, which must be of this kind. */
  async take<K extends Event['kind']>(kind: K): Promise<Extract<Event, { kind: K }>> {
    const event = await this.next();
    if (event.kind !== kind)
      throw new Error(`expected ${kind}, got ${event.kind} ${JSON.stringify(event, safe)}`);
    return event as Extract<Event, { kind: K }>;
  }

  #push(event: Event): void {
    const waiting = this.#waiting.shift();
    if (waiting) waiting(event);
    else this.events.push(event);
  }
}

const safe = (key: string, value: unknown): unknown => (key === 'link' ? undefined : value);

/** A server on a free port, which `cleanups` close. */
export async function serveFor(
  cleanups: (() => unknown)[],
  options: Partial<ListenOptions>,
): Promise<[Listener, Recorder]> {
  const handlers = new Recorder();
  const listener = await listen({ host: HOST, port: 0, handlers, ...options });
  cleanups.push(() => listener.close());
  return [listener, handlers];
}

/** The code of the KintsugiError that a promise is rejected with, and its message. */
export async function rejection(promise: Promise<unknown>): Promise<{ code: string; message: string }> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof KintsugiError) return { code: error.code, message: error.message };
    throw error;
  }
  throw new Error('the promise was fulfilled');
}

/** A WebSocket client without our rules: it sends the bytes that a test gives it and records the answers. */
export class RawClient {
  readonly ws: WebSocket;
  readonly closed: Promise<{ code: number; reason: string }>;
  /** The upgrade's failure, as its HTTP status. */
  readonly refused: Promise<number>;
  readonly #frames: Record<string, unknown>[] = [];
  #wake: (() => void) | undefined;

  constructor(port: number, headers: Record<string, string> = {}, path: string = LINK_PATH) {
    this.ws = new WebSocket(`ws://${HOST}:${port}${path}`, { headers, perMessageDeflate: false });
    this.closed = new Promise((resolve) => {
      this.ws.on('close', (code, reason) => resolve({ code, reason: reason.toString() }));
    });
    this.refused = new Promise((resolve) => {
      this.ws.on('unexpected-response', (request, response) => {
        resolve(response.statusCode!);
        request.destroy();
      });
    });
    this.ws.on('error', () => {});
    this.ws.on('message', (data) => {
      this.#frames.push(decodeFrame(data as Buffer).header);
      this.#wake?.();
    });
  }
  async next(): Promise<Record<string, unknown>> {
    while (this.#frames.length === 0) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    return this.#frames.shift()!;
  }
  send(header: object, parts: Uint8Array[] = []): void {
    this.ws.send(encodeFrame(header, parts));
  }
  /** Resolves when the other side has handled everything that was sent. */
  async heard(): Promise<void> {
    const pong = new Promise<void>((resolve) => this.ws.once('pong', () => resolve()));
    this.ws.ping();
    await pong;
  }
  /** Goes through the handshake of a server; with a token, the gate must have been opened by a header. */
  async prove(token?: string): Promise<this> {
    const handshake = clientHandshake(token);
    this.send(handshake.step(await this.next()).send!);
    handshake.step(await this.next());
    return this;
  }
}

/** A TCP server that hands over its sockets and sends nothing by itself. */
export async function silentServer(
  onSocket: (socket: Socket) => void = () => {},
): Promise<{ port: number; close(): void }> {
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    onSocket(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, HOST, resolve));
  return {
    port: (server.address() as { port: number }).port,
    close() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

/** A WebSocket peer that stops reading: a TCP client that completes the upgrade and the handshake by hand. */
export function stalledClient(port: number): Socket {
  const socket = connect({ port, host: HOST });
  socket.on('error', () => {});
  socket.write(
    `GET ${LINK_PATH} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
      'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n',
  );
  socket.once('data', () => {
    const proof = encodeFrame({ t: 'proof', nonce: new Uint8Array(32) });
    // The frame is binary and final, masked with zeros, and shorter than 126 bytes.
    socket.write(Uint8Array.from([0x82, 0x80 | proof.length, 0, 0, 0, 0, ...proof]));
    socket.pause();
  });
  return socket;
}
