/** De-duplication state: one number per client, and the newest refusals. */
import { describe, expect, it } from 'vitest';
import { Dedup } from '../../../src/core/shared/dedup.js';

describe('dedup', () => {
  it('knows the last number of each client, 0 of strangers', () => {
    const dedup = new Dedup();
    dedup.record([7, 1]);
    dedup.record([7, 2]);
    dedup.record([8, 1]);
    expect([7, 8, 9].map((client) => dedup.last(client))).toEqual([2, 1, 0]);
  });

  it('remembers refusals by number and client', () => {
    const dedup = new Dedup();
    dedup.record([7, 1, 'DIM_MISMATCH']);
    dedup.record([7, 2]);
    dedup.record([8, 1]);
    expect([dedup.refusal(7, 1), dedup.refusal(7, 2), dedup.refusal(8, 1), dedup.last(7)]).toEqual([
      'DIM_MISMATCH',
      undefined,
      undefined,
      2,
    ]);
  });

  it('forgets the oldest refusals beyond its limit of 64', () => {
    const dedup = new Dedup();
    for (let cseq = 1; cseq <= 65; cseq++) dedup.record([7, cseq, 'MEMORY_LIMIT']);
    expect([dedup.refusal(7, 1), dedup.refusal(7, 2), dedup.refusal(7, 65)]).toEqual([
      undefined,
      'MEMORY_LIMIT',
      'MEMORY_LIMIT',
    ]);
    expect(dedup.entries()[0]![2]).toHaveLength(64);
  });

  it('forgets refusals with their client', () => {
    const dedup = new Dedup();
    dedup.record([7, 1, 'DIM_MISMATCH']);
    dedup.record([7, 7, 'ENDED']);
    expect([dedup.refusal(7, 1), dedup.last(7), dedup.size]).toEqual([undefined, 0, 1]);
    dedup.record([7, 1]);
    expect(dedup.entries()).toContainEqual([7, 1, []]);
  });

  it('a copy, also by way of the wire form, does not follow the original', () => {
    const dedup = new Dedup();
    dedup.record([7, 1, 'BAD_FRAME']);
    const copies = [dedup.copy(), Dedup.from(dedup.entries())];
    dedup.record([7, 2, 'BAD_FRAME']);
    for (const copy of copies) {
      expect(copy.entries()).toEqual([[7, 1, [[1, 'BAD_FRAME']]]]);
      copy.record([7, 2]);
    }
    expect(dedup.refusal(7, 2)).toBe('BAD_FRAME');
  });
});
