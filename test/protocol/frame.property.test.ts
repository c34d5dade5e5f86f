// Properties of the codec: encoded messages are decoded to the same, and any other bytes are BAD_FRAME.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KintsugiError } from '../../src/common/errors.js';
import { decodeFrame, encodeFrame } from '../../src/protocol/frame.js';

const bytes = fc.uint8Array({ maxLength: 100 });
const name = fc.string({ maxLength: 12 }).filter((text) => text !== '__proto__');
const { value } = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.integer(),
    fc.maxSafeInteger(),
    fc.double({ noNaN: true }).filter((number) => !Object.is(number, -0)),
    fc.boolean(),
    fc.constant(null),
    fc.string({ unit: 'grapheme' }),
    fc.bigInt({ min: 2n ** 53n + 1n, max: 2n ** 64n - 1n }),
    fc.bigInt({ min: -(2n ** 63n), max: -(2n ** 53n) - 1n }),
    fc.array(tie('value'), { maxLength: 6 }),
    fc.dictionary(name, tie('value'), { maxKeys: 6, noNullPrototype: true }),
  ),
}));
const header = fc
  .tuple(fc.string({ maxLength: 20 }), fc.dictionary(name, value, { maxKeys: 6, noNullPrototype: true }))
  .map(([t, fields]) => ({ ...fields, t }) as Record<string, unknown>);

describe('frames', () => {
  it('decode to what was encoded, parts aligned to 8, wherever the bytes lie', () => {
    fc.assert(
      fc.property(header, fc.array(bytes, { maxLength: 6 }), fc.nat(16), (head, parts, offset) => {
        const frame = encodeFrame(head, parts, {
          allocate: (size) => new Uint8Array(size + offset + 8).fill(0xee).subarray(offset, offset + size),
        });
        const decoded = decodeFrame(frame);
        expect(decoded.header).toEqual(head);
        expect(decoded.parts.map((part) => [...part])).toEqual(parts.map((part) => [...part]));
        for (const part of decoded.parts) expect((part.byteOffset - frame.byteOffset) % 8).toBe(0);
      }),
      { numRuns: 500 },
    );
  });

  it('built around parts that stand in place are the bytes of a copied frame', () => {
    fc.assert(
      fc.property(header, fc.array(bytes, { minLength: 1, maxLength: 6 }), (head, parts) => {
        const memory = new Uint8Array(32 * 1024).fill(0xee);
        let at = 16 * 1024;
        const placed = parts.map((part) => {
          memory.set(part, at);
          const view = memory.subarray(at, at + part.byteLength);
          at = Math.ceil((at + part.byteLength) / 8) * 8;
          return view;
        });
        const frame = encodeFrame(head, placed, {
          allocate: () => expect.unreachable('copied'),
          around: (first, start, size) =>
            memory.subarray(first.byteOffset - start, first.byteOffset - start + size),
        });
        expect(frame.buffer).toBe(memory.buffer);
        expect(frame).toEqual(encodeFrame(head, parts));
      }),
      { numRuns: 300 },
    );
  });

  it('of parts that stand elsewhere are copies', () => {
    const memory = new Uint8Array(256).fill(7);
    const around = () => expect.unreachable('not in place');
    const at = (from: number, size: number) => memory.subarray(from, from + size);
    for (const parts of [
      [at(64, 8), at(80, 8)],
      [at(64, 8), at(56, 8)],
      [at(64, 9), at(73, 8)],
      [at(64, 8), at(64, 8)],
      [at(64, 8), Uint8Array.of(1), at(72, 8)],
    ])
      expect(decodeFrame(encodeFrame({ t: 'a' }, parts, { around })).parts).toEqual(parts);
  });

  it('that are cut anywhere are BAD_FRAME', () => {
    fc.assert(
      fc.property(header, fc.array(bytes, { minLength: 1, maxLength: 3 }), fc.nat(), (head, parts, at) => {
        const frame = encodeFrame(head, parts);
        const cut = frame.subarray(0, at % frame.byteLength);
        expect(() => decodeFrame(cut)).toThrow(expect.objectContaining({ code: 'BAD_FRAME' }));
      }),
      { numRuns: 300 },
    );
  });

  it('of any bytes at all are decoded or BAD_FRAME', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.boolean(), (body, prefixed) => {
        const frame = prefixed ? Uint8Array.of(body.length, 0, 0, 0, ...body) : body;
        try {
          const { header: head, parts } = decodeFrame(frame);
          expect(typeof head.t).toBe('string');
          for (const part of parts) expect(part.buffer).toBe(frame.buffer);
        } catch (error) {
          if (!(error instanceof KintsugiError)) throw error;
          expect(error.code).toBe('BAD_FRAME');
        }
      }),
      { numRuns: 2000 },
    );
  });
});
