// Frames are built around their parts where that is possible. Their memory is not used again too early, and
// sending a part once more or to another peer does not change a frame that is on its way.
import { describe, expect, it } from 'vitest';
import { Connection, type Socket } from '../../../src/net/transport/connection.js';
import { type PartBuffer, PartMemory, TRANSPORT_LIMITS } from '../../../src/net/transport/index.js';
import { encodeFrame } from '../../../src/protocol/frame.js';
import { Recorder } from './support.js';

/** A socket that keeps every frame, as the kernel may, until a test releases it. */
class SlowSocket implements Socket {
  readonly fd = -1;
  ping(): boolean {
    return false;
  }
  readonly remote = 'nowhere';
  readonly bufferedBytes = 0;
  readonly frames: { frame: Uint8Array; bytes: Uint8Array; sent: () => void; copied: boolean }[] = [];
  allocate(bytes: number): Uint8Array {
    return new Uint8Array(bytes);
  }
  send(frame: Uint8Array, sent?: () => void): void {
    this.frames.push({ frame, bytes: frame.slice(), sent: sent ?? (() => {}), copied: sent === undefined });
  }
  end(): void {}
  destroy(): void {}
}

function open(): [Connection, SlowSocket] {
  const socket = new SlowSocket();
  const handshake = { start: () => undefined, step: () => ({ done: true }) };
  const connection = new Connection(socket, {
    outgoing: true,
    limits: TRANSPORT_LIMITS,
    handlers: new Recorder(),
    handshake,
  });
  connection.start();
  connection.receive(encodeFrame({ t: 'hello' }));
  return [connection, socket];
}

function write(buffer: PartBuffer, ...sizes: number[]): Uint8Array[] {
  return sizes.map((size, index) => {
    const part = buffer.memory.subarray(buffer.at, buffer.at + size).fill(index + 1);
    buffer.took(part);
    return part;
  });
}

describe('memory of parts', () => {
  it('is the memory of their frame, and free when it was closed and the frame was sent', () => {
    const [connection, socket] = open();
    const memory = new PartMemory();
    const buffer = memory.open(30_000);
    const parts = write(buffer, 10_000, 9_999, 1);
    connection.send({ t: 'rows', items: [1, 2] }, parts);
    const [sent] = socket.frames;
    expect(sent?.frame.buffer).toBe(buffer.memory.buffer);
    expect(sent?.bytes).toEqual(encodeFrame({ t: 'rows', items: [1, 2] }, parts));
    buffer.close();
    expect(memory.open(30_000)).not.toBe(buffer);
    sent?.sent();
    expect(memory.open(30_000)).toBe(buffer);
    expect(memory.open(30_000)).not.toBe(buffer);
  });

  it('is not free before it was closed, however often it was sent, and is given back once', () => {
    const [connection, socket] = open();
    const memory = new PartMemory();
    const buffer = memory.open(8);
    const parts = write(buffer, 8);
    for (let i = 0; i < 3; i++) {
      connection.send({ t: 'push', i }, parts);
      socket.frames[i]?.sent();
      expect(socket.frames[i]?.copied).toBe(false);
      expect(memory.open(8)).not.toBe(buffer);
    }
    buffer.close();
    buffer.close();
    expect(memory.open(8)).toBe(buffer);
    expect(memory.open(8)).not.toBe(buffer);
  });

  it('is copied for a second frame while the first is on its way, which stays as it is', () => {
    const [first, slow] = open();
    const [second, other] = open();
    const buffer = new PartMemory().open(100);
    const parts = write(buffer, 40, 40);
    first.send({ t: 'push', epoch: 1 }, parts);
    second.send({ t: 'push', epoch: 22_222 }, parts);
    expect(other.frames[0]?.copied).toBe(true);
    expect(other.frames[0]?.bytes).toEqual(encodeFrame({ t: 'push', epoch: 22_222 }, parts));
    expect(slow.frames[0]?.frame).toEqual(slow.frames[0]?.bytes);
  });

  it('is copied when not all of a frame stands in it in order, or its header is too long', () => {
    const [connection, socket] = open();
    const buffer = new PartMemory().open(100);
    const [a, b] = write(buffer, 40, 40) as [Uint8Array, Uint8Array];
    const other = new Uint8Array(40);
    const long = 'x'.repeat(5000);
    for (const parts of [[b], [b, a], [a, other], [other, a]]) connection.send({ t: 'a' }, parts);
    connection.send({ t: 'a', long }, [a, b]);
    connection.send({ t: 'a' }, []);
    expect(socket.frames.map(({ copied }) => copied)).toEqual([true, true, true, true, true, true]);
    expect(socket.frames[4]?.bytes).toEqual(encodeFrame({ t: 'a', long }, [a, b]));
    connection.send({ t: 'a' }, [a]);
    expect(socket.frames[6]?.copied).toBe(false);
  });

  it('of many buffers is kept up to a limit, and not used for much less than it holds', () => {
    const memory = new PartMemory();
    const large = Array.from({ length: 40 }, () => memory.open(1 << 20));
    for (const buffer of large) buffer.close();
    const again = Array.from({ length: 40 }, () => memory.open(1 << 20));
    expect(again.filter((buffer) => large.includes(buffer)).length).toBe(31);
    for (const buffer of again) buffer.close();
    expect(again).not.toContain(memory.open(8));
  });

  it("is not sent when it was given back: it may be somebody else's by then", () => {
    const [connection, socket] = open();
    const memory = new PartMemory();
    const buffer = memory.open(8);
    const parts = write(buffer, 8);
    buffer.close();
    expect(() => connection.send({ t: 'push' }, parts)).toThrow('before their memory is given back');
    expect(socket.frames).toEqual([]);
  });

  it('is counted while it is lent: until it was closed and sent', () => {
    const [connection, socket] = open();
    const memory = new PartMemory();
    const [buffer, other] = [memory.open(8), memory.open(8)];
    const each = buffer.memory.byteLength;
    expect(memory.lentBytes).toBe(2 * each);
    memory.abandon(other);
    connection.send({ t: 'push' }, write(buffer, 8));
    buffer.close();
    expect(memory.lentBytes).toBe(each);
    socket.frames[0]?.sent();
    expect(memory.lentBytes).toBe(0);
  });
});
