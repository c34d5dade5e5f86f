/** Frames that wait for credit keep their bytes, also where a socket builds the next one in its memory. */
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
