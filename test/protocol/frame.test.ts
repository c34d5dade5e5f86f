/** The frame codec: encoded messages are decoded to the same, and any other bytes are BAD_FRAME. */
import { Packr } from 'msgpackr';
import { describe, expect, it } from 'vitest';
import {
  decodeFrame,
  decodeMessages,
  encodeFrame,
  encodeMessages,
  MAX_HEADER_DEPTH,
  MAX_PARTS,
} from '../../src/protocol/frame.js';
import { codeOf } from '../codes.js';

/** The generator mulberry32: 32-bit integers from a seed, the same everywhere. */
function random(seed: number): () => number {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
}

/** A frame made by hand: any msgpack bytes, any payload. */
function raw(packed: Uint8Array, payload: Uint8Array = new Uint8Array()): Uint8Array {
  const start = payload.length === 0 ? 4 + packed.length : Math.ceil((4 + packed.length) / 8) * 8;
  const frame = new Uint8Array(start + payload.length);
  new DataView(frame.buffer).setUint32(0, packed.length, true);
  frame.set(packed, 4);
  frame.set(payload, start);
  return frame;
}
const pack = (value: unknown): Uint8Array => new Packr({ useRecords: false }).pack(value);

function randomFrame(next: () => number): { header: Record<string, unknown>; parts: Uint8Array[] } {
  const header: Record<string, unknown> = { t: 'x'.repeat(next() % 40) };
  const values: (() => unknown)[] = [
    () => next(),
    () => -next(),
    () => next() * 2 ** 20,
    () => next() / 7,
    () => BigInt(next()) * 2n ** 31n + 2n ** 60n,
    () => 'é€𝄞a'.repeat(next() % 60),
    () => next() % 2 === 0,
    () => null,
    () => undefined,
    () => Uint8Array.from({ length: next() % 70 }, () => next()),
    () => Array.from({ length: next() % 20 }, () => next() % 300),
    () => ({ a: { b: [next(), { c: 'd' }] }, e: [] }),
  ];
  const fields = next() % 20;
  for (let i = 0; i < fields; i++) header[`field${i}`] = values[next() % values.length]!();
  const parts = Array.from({ length: next() % 6 }, () =>
    Uint8Array.from({ length: next() % 100 }, () => next() & 255),
  );
  return { header, parts };
}

describe('frame', () => {
  it('gives back headers and parts', () => {
    const next = random(1);
    for (let i = 0; i < 2000; i++) {
      const { header, parts } = randomFrame(next);
      const decoded = decodeFrame(encodeFrame(header, parts));
      expect(decoded.header).toEqual(header);
      expect(decoded.parts.map((p) => [...p])).toEqual(parts.map((p) => [...p]));
    }
  });

  it('carries several messages, in order, each with its parts', () => {
    const next = random(2);
    for (let i = 0; i < 500; i++) {
      const sent = Array.from({ length: 1 + (next() % 5) }, () => randomFrame(next));
      const frame = encodeMessages(sent.map(({ header, parts }) => [header, parts] as const));
      const decoded = decodeMessages(frame);
      expect(decoded.map(({ header }) => header)).toEqual(sent.map(({ header }) => header));
      expect(decoded.map(({ parts }) => parts.map((part) => [...part]))).toEqual(
        sent.map(({ parts }) => parts.map((part) => [...part])),
      );
      if (sent.length > 1) expect(codeOf(() => decodeFrame(frame))).toBe('BAD_FRAME');
    }
  });

  it('counts the parts of all its messages against one limit', () => {
    const parts = Array.from({ length: MAX_PARTS / 2 }, () => new Uint8Array(0));
    const half = [{ t: 'a' }, parts] as const;
    expect(decodeMessages(encodeMessages([half, half])).length).toBe(2);
    expect(codeOf(() => encodeMessages([half, half, [{ t: 'b' }, [new Uint8Array(0)]]]))).toBe('LIMIT');
  });

  it('refuses an envelope without a message, and parts before the first header', () => {
    expect(codeOf(() => decodeMessages(raw(pack([]))))).toBe('BAD_FRAME');
    expect(codeOf(() => decodeMessages(raw(pack([0, { t: 'a' }]))))).toBe('BAD_FRAME');
    expect(codeOf(() => decodeMessages(raw(pack([{ t: 'a' }, { no: 't' }]))))).toBe('BAD_FRAME');
    expect(codeOf(() => decodeMessages(raw(pack([{ t: 'a' }, null]))))).toBe('BAD_FRAME');
    expect(codeOf(() => decodeMessages(raw(pack([{ t: 'a' }, 'b']))))).toBe('BAD_FRAME');
  });

  it('gives back integers exactly, as numbers where that is safe', () => {
    const header = {
      t: 'n',
      small: 1n,
      edge: 2n ** 53n - 1n,
      big: 2n ** 53n + 1n,
      most: 2n ** 64n - 1n,
      low: -(2n ** 63n),
      double: 2 ** 40,
    };
    expect(decodeFrame(encodeFrame(header)).header).toStrictEqual({
      ...header,
      small: 1,
      edge: Number.MAX_SAFE_INTEGER,
    });
  });

  it('aligns every part to 8 and makes views, also inside a larger buffer', () => {
    const parts = [
      new Uint8Array(3).fill(1),
      new Uint8Array(0),
      new Uint8Array(9).fill(2),
      new Uint8Array(1).fill(3),
    ];
    for (let pad = 0; pad < 9; pad++) {
      const frame = encodeFrame({ t: 'p'.repeat(pad + 1) }, parts);
      const outer = new Uint8Array(frame.length + 24).fill(255);
      outer.set(frame, 8);
      const decoded = decodeFrame(outer.subarray(8, 8 + frame.length));
      expect(decoded.parts).toEqual(parts);
      for (const part of decoded.parts) {
        expect(part.buffer).toBe(outer.buffer);
        expect(part.byteOffset % 8).toBe(0);
      }
    }
  });

  it('writes into memory that was handed in, with zero padding', () => {
    const parts = [Uint8Array.of(1, 2, 3), Uint8Array.of(4)];
    const dirty = new Uint8Array(256).fill(255);
    const frame = encodeFrame({ t: 'a' }, parts, { allocate: (bytes) => dirty.subarray(0, bytes) });
    expect(frame.buffer).toBe(dirty.buffer);
    expect(frame).toEqual(encodeFrame({ t: 'a' }, parts));
  });

  it('holds no view of the frame in the header', () => {
    const frame = encodeFrame({ t: 'a', bytes: Uint8Array.of(1, 2, 3) });
    const { header } = decodeFrame(frame);
    frame.fill(0);
    expect([...(header.bytes as Uint8Array)]).toEqual([1, 2, 3]);
  });

  it('refuses to encode what breaks a limit or has no t', () => {
    expect(codeOf(() => encodeFrame({}))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => encodeFrame({ t: 1 }))).toBe('BAD_ARGUMENT');
    expect(codeOf(() => encodeFrame({ t: 'a' }, [new Uint8Array(100)], { maxBytes: 100 }))).toBe('LIMIT');
    const empty = new Uint8Array(0);
    expect(codeOf(() => encodeFrame({ t: 'a' }, Array(MAX_PARTS + 1).fill(empty)))).toBe('LIMIT');
    expect(decodeFrame(encodeFrame({ t: 'a' }, Array(MAX_PARTS).fill(empty))).parts.length).toBe(MAX_PARTS);
  });

  const ok = encodeFrame({ t: 'hello', n: [1, 2, 3] }, [new Uint8Array(20), new Uint8Array(5)]);
  const nested = (depth: number): unknown => (depth === 0 ? 1 : [nested(depth - 1)]);
  const cases: [string, Uint8Array][] = [
    ['nothing', new Uint8Array(0)],
    ['three bytes', ok.subarray(0, 3)],
    ['a header length beyond the frame', Uint8Array.of(255, 255, 255, 255, 1)],
    ['one byte too few', ok.subarray(0, ok.length - 1)],
    ['one byte too many', Uint8Array.from([...ok, 0])],
    ['an empty header', raw(new Uint8Array(0))],
    ['no envelope', raw(pack({ t: 'a' }))],
    ['an empty envelope', raw(pack([]))],
    ['a number as header', raw(pack([1]))],
    ['null as header', raw(pack([null]))],
    ['an array as header', raw(pack([['t']]))],
    ['no t', raw(pack([{ u: 'a' }]))],
    ['a t that is no string', raw(pack([{ t: 7 }]))],
    ['a part beyond the frame', raw(pack([{ t: 'a' }, 9]), new Uint8Array(8))],
    ['a part of 2^53 bytes', raw(pack([{ t: 'a' }, 2 ** 53]), new Uint8Array(8))],
    ['a part of negative length', raw(pack([{ t: 'a' }, -1]), new Uint8Array(8))],
    ['a part of fractional length', raw(pack([{ t: 'a' }, 7.5]), new Uint8Array(8))],
    ['a part length that is a string', raw(pack([{ t: 'a' }, '8']), new Uint8Array(8))],
    ['too many parts', raw(pack([{ t: 'a' }, ...Array(MAX_PARTS + 1).fill(0)]), new Uint8Array(0))],
    ['a map of 2^32-1 entries', raw(Uint8Array.of(0x91, 0xdf, 255, 255, 255, 255))],
    ['an array of 2^32-1 entries', raw(Uint8Array.of(0xdd, 255, 255, 255, 255, 0x80))],
    ['a string of 2^32-1 bytes', raw(Uint8Array.of(0x91, 0xdb, 255, 255, 255, 255))],
    ['a number as key', raw(Uint8Array.of(0x91, 0x82, 0xa1, 0x74, 0xa1, 0x61, 1, 1))],
    ['an extension', raw(pack([{ t: 'a', at: new Date(0) }]))],
    ['a record definition', raw(new Packr({ useRecords: true }).pack([{ t: 'a' }]))],
    ['deep nesting', raw(pack([{ t: 'a', x: nested(MAX_HEADER_DEPTH) }]))],
    ['very deep nesting', raw(new Uint8Array(100_000).fill(0x91))],
  ];
  it.each(cases)('refuses %s', (_, bytes) => {
    expect(codeOf(() => decodeFrame(bytes))).toBe('BAD_FRAME');
  });

  it('refuses a frame above the limit, and accepts one at it', () => {
    expect(codeOf(() => decodeFrame(ok, ok.length - 1))).toBe('BAD_FRAME');
    expect(decodeFrame(ok, ok.length).header.t).toBe('hello');
  });

  it('accepts nesting up to the limit', () => {
    const header = { t: 'a', x: nested(MAX_HEADER_DEPTH - 2) };
    expect(decodeFrame(encodeFrame(header)).header).toEqual(header);
  });

  it('cannot be made to set a prototype', () => {
    const packed = Uint8Array.of(
      0x91,
      0x82,
      0xa1,
      0x74,
      0xa1,
      0x61,
      0xa9,
      ...Buffer.from('__proto__'),
      0x81,
      0xa1,
      0x78,
      1,
    );
    const { header } = decodeFrame(raw(packed));
    expect((header as { x?: unknown }).x).toBeUndefined();
    expect(Object.getPrototypeOf(header)).toBe(Object.prototype);
  });

  it('survives 20,000 mutated frames: they decode or are BAD_FRAME', () => {
    const next = random(20_251);
    const seen: Record<string, number> = {};
    for (let i = 0; i < 20_000; i++) {
      const { header, parts } = randomFrame(next);
      const frame = mutate(encodeFrame(header, parts), next);
      const code = codeOf(() => decodeFrame(frame));
      seen[code] = (seen[code] ?? 0) + 1;
    }
    expect(Object.keys(seen).sort()).toEqual(['BAD_FRAME', 'nothing was thrown']);
    // Both outcomes must be common, or the mutations test nothing.
    expect(Math.min(...Object.values(seen))).toBeGreaterThan(1000);
  });
});

/** Flips, overwrites, cuts, extends or moves bytes, mostly near the start, where the lengths are. */
function mutate(frame: Uint8Array, next: () => number): Uint8Array {
  const kind = next() % 8;
  if (kind === 0) return frame.slice(0, next() % (frame.length + 1));
  if (kind === 1) return Uint8Array.from([...frame, ...Array(1 + (next() % 16)).fill(next() & 255)]);
  const out = frame.slice();
  if (kind === 2) return out.copyWithin(next() % out.length, next() % out.length);
  const times = 1 + (next() % 4);
  for (let i = 0; i < times; i++) {
    const at = next() % (next() % 2 === 0 ? Math.min(out.length, 24) : out.length);
    out[at] = kind < 5 ? out[at]! ^ (1 << (next() % 8)) : next() & 255;
  }
  return out;
}
