/** Peers that connect and say nothing, or too little: each is hung up on, and the log is told why. */
import { connect as connectTcp, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { LINK_PATH, type Link, type ServerKind } from '../../../src/net/transport/index.js';
import type { TransportLimits } from '../../../src/net/transport/types.js';
import { encodeFrame } from '../../../src/protocol/frame.js';
import { HOST, RawClient, Recorder, serveFor } from './support.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

class Listening extends Recorder {
  readonly told: string[] = [];
  #wake: () => void = () => {};

  onHungUp({ remote }: Link, reason: string): void {
    this.told.push(`${remote ? 'somebody' : 'nobody'}: ${reason}`);
    this.#wake();
  }

  /** Resolves when somebody was hung up on. */
  async hungUp(): Promise<string> {
    while (this.told.length === 0) await new Promise<void>((resolve) => (this.#wake = resolve));
    return this.told[0]!;
  }
}

async function serve(server: ServerKind, limits: Partial<TransportLimits>): Promise<[number, Listening]> {
  const handlers = new Listening();
  const [{ port }] = await serveFor(cleanups, { server, handlers, limits });
  return [port, handlers];
}

/** A WebSocket by hand, after its handshake. */
async function byHand(port: number): Promise<{ socket: Socket; closed: Promise<void> }> {
  const socket = connectTcp(port, HOST);
  cleanups.push(() => socket.destroy());
  socket.on('error', () => {});
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  const upgrade =
    `GET ${LINK_PATH} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
    'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n';
  socket.write(upgrade);
  await new Promise<void>((resolve) => socket.once('data', () => resolve()));
  socket.resume();
  return { socket, closed };
}

/** A message in a binary and final frame of less than 126 bytes, masked with zeros. */
function messageOf(header: object): Uint8Array {
  const bytes = encodeFrame(header);
  return Uint8Array.from([0x82, 0x80 | bytes.length, 0, 0, 0, 0, ...bytes]);
}

const PROOF = messageOf({ t: 'proof', nonce: new Uint8Array(32) });
/** Long enough for a handshake on a busy machine: only silence lasts for longer. */
const SOON = { firstMessageMs: 300 };

/** Sends a byte now and then, for ever. */
function trickle(socket: Socket, bytes: Uint8Array): void {
  let at = 0;
  const timer = setInterval(() => {
    if (at < bytes.length - 1) socket.write(bytes.subarray(at, ++at));
  }, 10);
  socket.once('close', () => clearInterval(timer));
}

describe.each<ServerKind>(['uws', 'ws'])('server %s', (kind) => {
  it('hangs up on a link that says nothing after its proof', async () => {
    const [port, served] = await serve(kind, SOON);
    const client = await new RawClient(port).prove();
    expect(await client.closed).toEqual({ code: 4408, reason: 'no message within 300 ms' });
    await served.take('open');
    expect((await served.take('close')).reason).toBe('no message within 300 ms');
    expect(served.told).toEqual(['somebody: no message within 300 ms']);
  });

  it('hangs up on a link whose first message never ends', async () => {
    const [port, served] = await serve(kind, SOON);
    const half = await byHand(port);
    half.socket.write(PROOF);
    half.socket.write(messageOf({ t: 'status', id: 1 }).subarray(0, 12));
    const slow = await byHand(port);
    slow.socket.write(PROOF);
    trickle(slow.socket, messageOf({ t: 'x'.repeat(90) }));
    await Promise.all([half.closed, slow.closed]);
    expect(served.told).toHaveLength(2);
    expect(served.events.every(({ kind: what }) => what !== 'message')).toBe(true);
  });

  it('hangs up on a connection that does not prove itself, and says so', async () => {
    const [port, served] = await serve(kind, { handshakeMs: 100 });
    const slow = await byHand(port);
    trickle(slow.socket, PROOF);
    expect(await served.hungUp()).toBe('somebody: the handshake took too long');
    await slow.closed;
  });

  it('hangs up on a link that has said hello, and never ends a later message', async () => {
    const [port, served] = await serve(kind, { pingMs: 100 });
    const half = await byHand(port);
    half.socket.write(PROOF);
    half.socket.write(messageOf({ t: 'hello' }));
    await served.take('open');
    await served.take('message');
    trickle(half.socket, messageOf({ t: 'x'.repeat(90) }));
    expect(await served.hungUp()).toBe('somebody: no message and no answer to a ping within 100 ms');
    await half.closed;
  });

  it('keeps a link that has said hello and answers pings', async () => {
    const [port, served] = await serve(kind, { firstMessageMs: 1000, pingMs: 500 });
    const client = await new RawClient(port).prove();
    client.send({ t: 'hello' });
    await served.take('open');
    await served.take('message');
    for (let pings = 0; pings < 4; pings++)
      await new Promise<void>((resolve) => client.ws.once('ping', () => resolve()));
    client.send({ t: 'still here' });
    expect((await served.take('message')).header).toEqual({ t: 'still here' });
    client.ws.terminate();
  });
});
