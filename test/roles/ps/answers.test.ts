/** Where a PS puts its answers: memory that is used again, and when it is not. */
import { describe, expect, it } from 'vitest';
import type { RowsBuffer } from '../../../src/core/shard/host.js';
import { copied } from '../../../src/core/shared/bytes.js';
import type { NativeShard } from '../../../src/engine/native.js';
import { Answers } from '../../../src/roles/ps/answers.js';

/** A shard whose pulls answer one byte each, where they are told to. */
function shardOf() {
  const places: (Uint8Array | undefined)[] = [];
  const pull: NativeShard['pull'] = (_, into, at = 0) => {
    places.push(into);
    return into ? into.subarray(at, at + 1) : new Uint8Array(1);
  };
  return { shard: { pull } as unknown as NativeShard, places };
}
const REQUEST = new Uint8Array(2048);

function answers() {
  const { shard, places } = shardOf();
  const of = new Answers();
  const pullOne = (buffer?: RowsBuffer) => shard.pull(REQUEST, buffer?.memory, buffer?.at);
  const pull = () => of.step(REQUEST.byteLength, pullOne);
  return { of, pullOne, pull, places };
}

it('a part of content is copied by slice(), which is a view where the memory is a Buffer', () => {
  const { memory, at } = new Answers().openContent(4096)!;
  const part = memory.subarray(at, at + 8);
  part.fill(1);
  // As a node keeps it that sends content to itself; its memory is used again before it arrives.
  const kept = [part.slice(), copied(part), copied(Buffer.from(part.buffer, part.byteOffset, 8))];
  part.fill(2);
  for (const copy of kept) expect(copy).toEqual(new Uint8Array(8).fill(1));
});

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
    const { of, pullOne, pull, places } = answers();
    const fails = (buffer?: RowsBuffer) => {
      pullOne(buffer);
      throw new Error('the second section');
    };
    expect(() => of.step(REQUEST.byteLength, fails)).toThrow('the second section');
    of.sent();
    pull();
    expect(places[1] === places[0]).toBe(false);
  });

  it('is lent to a limit: beyond it, and for small requests, an answer has memory of its own', () => {
    const { of, pullOne, pull, places } = answers();
    of.step(8, pullOne);
    for (let i = 0; i < 9; i++) pull();
    expect(places.map((place) => place !== undefined)).toEqual([false, ...Array(8).fill(true), false]);
  });

  it('of a large answer is its own until the turn ends in which it is sent, or until it is given up', () => {
    const { of } = answers();
    const large = () => of.open(1 << 20);
    const [first, second] = [large(), large()];
    expect(first.memory === second.memory).toBe(false);
    of.sent();
    const third = large();
    expect([first, second].some(({ memory }) => memory === third.memory)).toBe(false);
    first.took(first.memory.subarray(first.at, first.at + 100));
    of.sent();
    const fourth = large();
    expect(fourth.memory === first.memory).toBe(true);
    second.drop();
    expect(large().memory === second.memory).toBe(true);
  });
});
