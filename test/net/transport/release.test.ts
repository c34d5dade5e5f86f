/** Released memory is gone at once, and memory that others may still read is not touched. */
import { describe, expect, it } from 'vitest';
import { RELEASED_FROM, release } from '../../../src/net/transport/release.js';
import { FrameMemory } from '../../../src/net/transport/ws-socket.js';

describe('release', () => {
  it('frees a large array that has its buffer to itself', () => {
    const array = new Uint8Array(RELEASED_FROM);
    release([array]);
    expect(array.byteLength).toBe(0);
    expect(array.buffer.byteLength).toBe(0);
  });

  it('leaves views alone: the rest of the buffer may be someone else’s', () => {
    const whole = new Uint8Array(2 * RELEASED_FROM).fill(7);
    release([whole.subarray(0, RELEASED_FROM), whole.subarray(1)]);
    expect(whole.every((byte) => byte === 7)).toBe(true);
    expect(whole.byteLength).toBe(2 * RELEASED_FROM);
  });

  it('leaves small arrays and shared memory alone', () => {
    const small = new Uint8Array(RELEASED_FROM - 1);
    const shared = new Uint8Array(new SharedArrayBuffer(RELEASED_FROM));
    release([small, shared]);
    expect([small.byteLength, shared.byteLength]).toEqual([RELEASED_FROM - 1, RELEASED_FROM]);
  });

  it('takes an array that was released before', () => {
    const array = new Uint8Array(RELEASED_FROM);
    release([array, array]);
    release([array]);
    expect(array.byteLength).toBe(0);
  });
});

describe('memory of frames', () => {
  const LARGE = 300_000;

  it('is used again for a frame that fits, and not while it is in use', () => {
    const memory = new FrameMemory();
    const first = memory.take(LARGE);
    const second = memory.take(LARGE);
    expect(second.buffer).not.toBe(first.buffer);
    memory.giveBack(first);
    const third = memory.take(LARGE - 1000);
    expect(third.buffer).toBe(first.buffer);
    expect(third.byteLength).toBe(LARGE - 1000);
    expect(memory.take(LARGE).buffer).not.toBe(first.buffer);
  });

  it('is not taken for a frame that does not fit', () => {
    const memory = new FrameMemory();
    const first = memory.take(LARGE);
    memory.giveBack(first);
    const larger = memory.take(first.buffer.byteLength + 1);
    expect(larger.buffer).not.toBe(first.buffer);
    expect(larger.byteLength).toBe(first.buffer.byteLength + 1);
  });

  it('keeps only so much', () => {
    const memory = new FrameMemory();
    const frames = Array.from({ length: 20 }, () => memory.take(1 << 20));
    for (const frame of frames) memory.giveBack(frame);
    const known = new Set(frames.map((frame) => frame.buffer));
    const again = Array.from({ length: 20 }, () => memory.take(1 << 20));
    expect(again.filter((frame) => known.has(frame.buffer)).length).toBe(8);
  });

  it('of small frames comes from the pool and stays there', () => {
    const memory = new FrameMemory();
    const small = memory.take(100);
    memory.giveBack(small);
    expect(memory.take(100).byteLength).toBe(100);
    expect(small.byteLength).toBe(100);
  });
});
