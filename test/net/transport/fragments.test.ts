/** Large frames to a side that reads slowly: the library has little of them, and they arrive whole. */
import { afterEach, expect, it } from 'vitest';
import { UwsSocket, type Ws } from '../../../src/net/transport/uws-socket.js';

const MIB = 1 << 20;
const MOST = MIB + (64 << 10);

/** A socket of the library that takes nothing until it is told to. */
class SlowWs implements Ws {
  /** Bytes that the library holds. */
  held = 0;
  most = 0;
  /** The kernel takes everything at once. */
  open = false;
  readonly messages: Uint8Array[] = [];
  private parts: Uint8Array[] = [];

  private take(part: Uint8Array, first: boolean, last: boolean): number {
    expect(this.parts.length === 0).toBe(first);
    this.parts.push(part.slice());
    if (!this.open) this.held += part.byteLength;
    this.most = Math.max(this.most, this.held);
    if (last) this.messages.push(Buffer.concat(this.parts.splice(0)));
    return 1;
  }
  send = (part: Uint8Array) => this.take(part, true, true);
  sendFirstFragment = (part: Uint8Array) => this.take(part, true, false);
  sendFragment = (part: Uint8Array) => this.take(part, false, false);
  sendLastFragment = (part: Uint8Array) => this.take(part, false, true);
  ping = () => 1;
  getBufferedAmount = () => this.held;
  end = () => {};
  close = () => {};
  subscribe = () => true;
  getRemoteAddressAsText = () => new ArrayBuffer(0);
}

const sockets: UwsSocket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.onClose();
});

function connected(): { ws: SlowWs; socket: UwsSocket } {
  const ws = new SlowWs();
  const socket = new UwsSocket(ws, 1000, 0);
  sockets.push(socket);
  return { ws, socket };
}

it('the library has no more than a fragment, and every frame arrives whole and in order', () => {
  const { ws, socket } = connected();
  const sizes = [10, 5 * MIB, 100, MOST, MOST + 1, 3, 8 * MIB, MIB];
  let lent = 0;
  for (const [i, size] of sizes.entries()) {
    // As a connection does it: some frames are built in memory that the next one uses.
    const isLent = i % 3 === 0;
    const frame = isLent ? new Uint8Array(size) : socket.allocate(size);
    frame.fill(i + 1);
    if (isLent) lent++;
    socket.send(frame, isLent ? () => lent-- : undefined);
  }
  const total = sizes.reduce((sum, size) => sum + size, 0);
  expect(socket.bufferedBytes).toBe(total);
  for (let left = total; left > 0; left = socket.bufferedBytes) {
    ws.held = Math.max(0, ws.held - 300_000);
    socket.onDrain();
    expect(socket.bufferedBytes).toBeLessThan(left);
  }
  expect(ws.most).toBeLessThanOrEqual(MOST);
  expect(lent).toBe(0);
  expect(ws.messages.map((message) => message.byteLength)).toEqual(sizes);
  for (const [i, message] of ws.messages.entries())
    expect(message.every((byte) => byte === i + 1)).toBe(true);
});

it('a frame that fits goes to a socket that takes it at once, in one message', () => {
  const { ws, socket } = connected();
  ws.open = true;
  let sent = false;
  socket.send(new Uint8Array(MOST), () => (sent = true));
  expect([sent, ws.messages.length, socket.bufferedBytes]).toEqual([true, 1, 0]);
});

it('a socket that closes gives back all memory, once', () => {
  const { ws, socket } = connected();
  let given = 0;
  for (let i = 0; i < 3; i++) socket.send(new Uint8Array(4 * MIB), () => given++);
  expect(given).toBe(0);
  socket.onClose();
  socket.onClose();
  expect([given, socket.bufferedBytes]).toEqual([3, 0]);
  socket.send(new Uint8Array(10), () => given++);
  expect([given, ws.messages.length]).toEqual([4, 0]);
});
