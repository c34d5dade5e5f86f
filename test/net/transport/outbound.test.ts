/** Frames that wait for credit keep their bytes, also where the next frame is built in their memory. */
import { expect, it } from 'vitest';
import { Outbound } from '../../../src/net/transport/outbound.js';

it('frames of memory that the next one uses wait for credit, and keep their bytes', () => {
  const shared = new Uint8Array(64);
  const pieces: number[][] = [];
  const outbound = new Outbound(
    {
      allocate: (bytes) => shared.subarray(0, bytes),
      send: (message) => void pieces.push([...message]),
    },
    { pieceBytes: 4, creditBytes: 4 },
  );
  const frames = [
    [1, 1, 1, 1],
    [2, 2],
    [3, 3, 3, 3, 3, 3],
    [4, 4, 4],
  ];
  for (const bytes of frames) {
    const frame = outbound.allocate(bytes.length);
    frame.set(bytes);
    outbound.send(frame);
  }
  expect(pieces).toEqual([frames[0]]);
  expect(outbound.waitingBytes).toBe(11);
  for (let i = 0; i < 3; i++) outbound.grant(4);
  const opening = [255, 255, 255, 255, 6, 0, 0, 0];
  expect(pieces).toEqual([frames[0], frames[1], opening, [3, 3, 3, 3], [3, 3], frames[3]]);
  expect(outbound.waitingBytes).toBe(0);
});

it('three hundred thousand frames that wait for credit are sent as fast as a few', () => {
  const sent: number[] = [];
  const outbound = new Outbound(
    { allocate: (bytes) => new Uint8Array(bytes), send: (message) => void sent.push(message[0]!) },
    { pieceBytes: 1, creditBytes: 1 },
  );
  const frames = 300_000;
  for (let i = 0; i <= frames; i++) outbound.send(Uint8Array.of(i), () => {});
  expect([sent.length, outbound.waitingBytes]).toEqual([1, frames]);
  outbound.grant(frames);
  expect([sent.length, outbound.waitingBytes]).toEqual([frames + 1, 0]);
  expect(sent.every((byte, i) => byte === (i & 255))).toBe(true);
});
