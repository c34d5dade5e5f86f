/** Where a PS puts its answers: memory that is used again, and when it is not. */
import { describe, expect, it } from 'vitest';
import type { NativeAddon, NativeShard } from '../../src/native.js';
import { Answers } from '../../src/runtime/answers.js';

/** An engine whose pulls answer one byte each, where they are told to. */
function engine() {
  const places: (Uint8Array | undefined)[] = [];
  const pull: NativeShard['pull'] = (_, into, at = 0) => {
    places.push(into);
    return into ? into.subarray(at, at + 1) : new Uint8Array(1);
  };
  const native = { createShard: () => ({ pull }) } as unknown as NativeAddon;
  return { native, places };
}
const REQUEST = new Uint8Array(2048);

function answers() {
  const { native, places } = engine();
  const of = new Answers();
  const { createShard } = of.lendTo(native);
  const shard = (createShard as () => NativeShard)();
  const pull = () => of.during(REQUEST.byteLength, () => shard.pull(REQUEST));
  return { of, shard, pull, places };
}

describe('memory of answers', () => {
  it('is used again after the end of a turn', () => {
    const { of, pull, places } = answers();
    pull();
    pull();
    of.sent();
    pull();
    // Compared here: a matcher looks into the megabytes of both.
    expect(places[0] === places[1]).toBe(false);
    expect(places.slice(0, 2).some((place) => place === places[2])).toBe(true);
  });

  it('is not used again after a step that failed: what it answered may still be sent', () => {
    const { of, shard, pull, places } = answers();
    const fails = () => {
      shard.pull(REQUEST);
      throw new Error('the second section');
    };
    expect(() => of.during(REQUEST.byteLength, fails)).toThrow('the second section');
    of.sent();
    pull();
    expect(places[1] === places[0]).toBe(false);
  });

  it('is lent to a limit: beyond it, and for small requests, an answer has memory of its own', () => {
    const { of, shard, pull, places } = answers();
    of.during(8, () => shard.pull(REQUEST));
    for (let i = 0; i < 9; i++) pull();
    expect(places.map((place) => place !== undefined)).toEqual([false, ...Array(8).fill(true), false]);
  });
});
