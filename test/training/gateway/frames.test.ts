// Frames between a gateway and a program: whole, in pieces, and hostile.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { encodeFrame, FrameReader, MAX_JSON_BYTES } from '../../../src/training/gateway/frames.js';
import { codeOf } from '../../codes.js';

it('frames are put together from pieces of any size', () => {
  const frame = fc.record({
    text: fc.string(),
    payload: fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
  });
  const cuts = fc.array(fc.integer({ min: 1, max: 50 }), { minLength: 1, maxLength: 20 });
  fc.assert(
    fc.property(fc.array(frame, { maxLength: 6 }), cuts, (frames, sizes) => {
      const all = Buffer.concat(
        frames.flatMap(({ text, payload }) => [encodeFrame({ text }, payload.length), payload]),
      );
      const reader = new FrameReader();
      const read = [];
      for (let at = 0, i = 0; at < all.length; i++) {
        const size = sizes[i % sizes.length]!;
        read.push(...reader.take(all.subarray(at, at + size)));
        at += size;
      }
      expect(read.map(({ message, payload }) => ({ text: message.text, payload: [...payload] }))).toEqual(
        frames.map(({ text, payload }) => ({ text, payload: [...payload] })),
      );
    }),
  );
});

it('what is no frame is refused', () => {
  const huge = Buffer.alloc(8);
  huge.writeUInt32LE(MAX_JSON_BYTES + 1);
  expect(codeOf(() => new FrameReader().take(huge))).toBe('BAD_FRAME');
  const payload = Buffer.alloc(8);
  payload.writeUInt32LE(0xffffffff, 4);
  expect(codeOf(() => new FrameReader().take(payload))).toBe('BAD_FRAME');
  for (const json of ['', '[]', 'null', '7', '{"a":']) {
    const frame = Buffer.alloc(8 + json.length);
    frame.writeUInt32LE(json.length);
    frame.write(json, 8);
    expect(codeOf(() => new FrameReader().take(frame))).toBe('BAD_FRAME');
  }
});
