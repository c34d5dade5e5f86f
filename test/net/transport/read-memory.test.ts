/** Memory of received bytes is freed early only where the library has the fields that this depends on. */
import { EventEmitter } from 'node:events';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import type { Connection } from '../../../src/net/transport/connection.js';
import { TRANSPORT_LIMITS } from '../../../src/net/transport/index.js';
import { RELEASED_FROM } from '../../../src/net/transport/release.js';
import { HOST } from './support.js';

// The module is loaded anew for each test, because a process is warned once.
let ReadMemory: typeof import('../../../src/net/transport/read-memory.js').ReadMemory;
let WsSocket: typeof import('../../../src/net/transport/ws-socket.js').WsSocket;
beforeEach(async () => {
  vi.resetModules();
  ({ ReadMemory } = await import('../../../src/net/transport/read-memory.js'));
  ({ WsSocket } = await import('../../../src/net/transport/ws-socket.js'));
});

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
  vi.restoreAllMocks();
});

/** A WebSocket that is open and has these fields inside. */
function openWith(fields: object): WebSocket {
  return Object.assign(new EventEmitter(), { readyState: WebSocket.OPEN }, fields) as unknown as WebSocket;
}

/** The library's side of a TCP socket: it listens before anyone else does. */
function tcpSocket(): EventEmitter {
  return new EventEmitter().on('data', () => {});
}

const RECEIVER = { _buffers: [], _allowSynchronousEvents: true };

/** Bytes left of a piece that was read, once the message that it belongs to has been handled. */
function leftOf(ws: WebSocket, socket: EventEmitter): number {
  const memory = new ReadMemory(ws);
  const piece = Buffer.allocUnsafeSlow(RELEASED_FROM);
  socket.emit('data', piece);
  memory.handled(Buffer.alloc(0));
  return piece.byteLength;
}

describe('memory of what was read', () => {
  it('is freed when its message is complete', () => {
    const socket = tcpSocket();
    expect(leftOf(openWith({ _socket: socket, _receiver: RECEIVER }), socket)).toBe(0);
  });

  it('is not kept for a message that will not come: the library ignores what follows a close', () => {
    const socket = tcpSocket();
    const ws = openWith({ _socket: socket, _receiver: RECEIVER });
    const memory = new ReadMemory(ws);
    Object.assign(ws, { readyState: WebSocket.CLOSING });
    const piece = Buffer.allocUnsafeSlow(RELEASED_FROM);
    socket.emit('data', piece);
    memory.handled(Buffer.alloc(0));
    expect(piece.byteLength).toBe(RELEASED_FROM);
  });

  it.each([
    ['no TCP socket', (socket: EventEmitter) => ({ tcp: socket, _receiver: RECEIVER })],
    [
      'a TCP socket that the library does not listen to',
      () => ({ _socket: new EventEmitter(), _receiver: RECEIVER }),
    ],
    ['no receiver', (socket: EventEmitter) => ({ _socket: socket })],
    [
      'a receiver without buffers',
      (socket: EventEmitter) => ({ _socket: socket, _receiver: { _allowSynchronousEvents: true } }),
    ],
    [
      'a receiver that tells of messages later',
      (socket: EventEmitter) => ({
        _socket: socket,
        _receiver: { ...RECEIVER, _allowSynchronousEvents: false },
      }),
    ],
  ])('is left to the garbage collector where there is %s', (_, fields) => {
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
    const socket = tcpSocket();
    const inside = fields(socket);
    const read = '_socket' in inside ? (inside._socket as EventEmitter) : socket;
    expect(leftOf(openWith(inside), read)).toBe(RELEASED_FROM);
    expect(warn).toHaveBeenCalledWith(expect.stringContaining('garbage collector'), expect.anything());
  });
});

/** Sends a number of large messages to each caller; every byte of message i is i. */
async function sender(messages: number, bytes: number): Promise<number> {
  const server = new WebSocketServer({ host: HOST, port: 0 });
  cleanups.push(() => new Promise((resolve) => server.close(resolve)));
  server.on('connection', (ws) => {
    for (let i = 0; i < messages; i++) ws.send(Buffer.alloc(bytes, i));
  });
  await new Promise((resolve) => server.once('listening', resolve));
  return (server.address() as { port: number }).port;
}

describe.each([true, false])('messages, told of at once: %s', (allowSynchronousEvents) => {
  it('arrive as they were sent, though memory of what was read is freed', async () => {
    const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
    const [messages, bytes] = [40, 150_000];
    const port = await sender(messages, bytes);
    const ws = new WebSocket(`ws://${HOST}:${port}`, { allowSynchronousEvents });
    cleanups.push(() => ws.terminate());
    const wrong: string[] = [];
    await new Promise<void>((resolve) => {
      let received = 0;
      const connection = {
        receive(data: Uint8Array) {
          const i = received++;
          if (Buffer.compare(data, Buffer.alloc(bytes, i)) !== 0) wrong.push(`message ${i}`);
          if (received === messages) resolve();
        },
        reject: (what: string) => wrong.push(what),
        closed(_: number, reason: string) {
          wrong.push(`closed: ${reason}`);
          resolve();
        },
      } as unknown as Connection;
      new WsSocket(ws, 'the sender', TRANSPORT_LIMITS).attach(connection);
    });
    expect(wrong).toEqual([]);
    // The installed version of the library has the fields; with late events for messages it does not count.
    expect(warn).toHaveBeenCalledTimes(allowSynchronousEvents ? 0 : 1);
  });
});
