/** Lines of waiting pushes: contiguous, bounded, copied. */
import { describe, expect, it } from 'vitest';
import { WaitingPushes } from '../../../src/core/shard/waiting-pushes.js';
import { Meter } from '../../../src/core/shared/meter.js';
import { DEFAULT_POLICY } from '../../../src/core/shared/policy.js';
import { WaitingBytes } from '../../../src/core/shared/waiting-bytes.js';

const lines = (limits: { maxHeldPushes?: number; maxParked?: number } = {}): WaitingPushes =>
  new WaitingPushes({
    policy: { ...DEFAULT_POLICY, ...limits },
    waiting: new WaitingBytes(1000),
    meter: new Meter(),
  });
const drain = (held: WaitingPushes, client: number): number[] => {
  const numbers: number[] = [];
  for (let first = held.first(client); first; first = held.first(client)) {
    numbers.push(first.cseq);
    held.shift(client);
  }
  return numbers;
};
const bytes = Uint8Array.of(1);

describe('lines', () => {
  it('keep the order of each client and take only the next number', () => {
    const held = lines();
    for (const cseq of [4, 5, 5, 7, 4, 6]) held.add(1, cseq, bytes);
    held.add(2, 9, bytes);
    expect([held.clients(), drain(held, 1), drain(held, 2), held.any]).toEqual([
      [1, 2],
      [4, 5, 6],
      [9],
      false,
    ]);
  });

  it('drop what does not fit: per client and in the number of clients', () => {
    const held = lines({ maxHeldPushes: 2, maxParked: 1 });
    for (const cseq of [1, 2, 3]) held.add(1, cseq, bytes);
    held.add(2, 1, bytes);
    expect([drain(held, 1), held.waiting(2)]).toEqual([[1, 2], false]);
  });

  it('copy the section, which is a view that ends with the call', () => {
    const held = lines();
    for (const cseq of [1, 2]) {
      const view = Uint8Array.of(cseq);
      held.add(1, cseq, view);
      view.fill(0xa5);
    }
    expect(held.first(1)!.section).toEqual(Uint8Array.of(1));
    held.shift(1);
    expect(held.first(1)!.section).toEqual(Uint8Array.of(2));
  });

  it('end with the last push, or at once when dropped', () => {
    const held = lines();
    held.add(1, 1, bytes);
    held.shift(1);
    expect(held.waiting(1)).toBe(false);
    held.add(1, 2, bytes);
    held.drop(1);
    expect([held.any, held.first(1)]).toEqual([false, undefined]);
    held.shift(1);
  });
});
