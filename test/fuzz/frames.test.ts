// The frame fuzzer in a small mode, so that it does not rot; `npm run fuzz:frames` runs a million.
import { describe, expect, it } from 'vitest';
import { decodeFrame, decodeMessages, encodeFrame, encodeMessages } from '../../src/protocol/frame.js';
import { toMessage } from '../../src/protocol/validate.js';
import { fuzzFrames, SAMPLES } from './frames.js';

const FRAMES = Number(process.env.KINTSUGI_FRAMES ?? 20_000);
const SEED = Number(process.env.KINTSUGI_SEED ?? 1);
const decoders = { encodeMessages, decodeMessages, toMessage };

describe('generated and mutated frames', () => {
  it('start from one sample of every kind of message', () => {
    for (const sample of SAMPLES) {
      expect(toMessage(decodeFrame(encodeFrame(sample)).header)).toEqual(sample);
    }
    expect(new Set(SAMPLES.map((sample) => (sample as { t: string }).t)).size).toBe(SAMPLES.length);
  });

  it('are messages or BAD_FRAME, the same for the same seed', { timeout: 600_000 }, () => {
    const report = fuzzFrames(decoders, FRAMES, SEED);
    console.log(JSON.stringify({ seed: SEED, ...report }));
    expect(report.accepted + report.refused).toBe(report.frames);
    expect(report.accepted).toBeGreaterThan(report.frames / 20);
    expect(report.refused).toBeGreaterThan(report.frames / 4);
    expect(report.kinds).toBe(SAMPLES.length);
    expect(fuzzFrames(decoders, 2000, 7).digest).toBe(fuzzFrames(decoders, 2000, 7).digest);
    expect(fuzzFrames(decoders, 2000, 7).digest).not.toBe(fuzzFrames(decoders, 2000, 8).digest);
  });

  it('would be caught if a decoder answered with anything else', () => {
    const broken = {
      ...decoders,
      decodeMessages: (bytes: Uint8Array) =>
        decodeMessages(bytes).map((frame) => ({ ...frame, parts: [new Uint8Array(1)] })),
    };
    expect(() => fuzzFrames(broken, 200, 1)).toThrow(/frame \d+ of seed 1: [0-9a-f]/);
  });
});
