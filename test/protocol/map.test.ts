/**
 * Kinds of sinks: the streams that they follow, their capabilities, and the parts of the map that derive from
 * these. A kind that is missing here is a type error.
 */
import { describe, expect, it } from 'vitest';
import {
  CAPABILITIES,
  followedBy,
  followersOf,
  type Group,
  type SinkEntry,
  seatOf,
} from '../../src/protocol/map.js';
import { packGroups, unpackGroups } from '../../src/protocol/pack.js';

const place = { node: 20, inc: 1, init: false };
const data = [11, 12, 13].map((node) => ({ node, inc: 1, gen: 1, init: true }));

/**
 * Each kind, as a sink with index 1 in a group of three members. `code`: its number on the wire, for ever.
 */
const KINDS: Record<SinkEntry['kind'], { code: number; follows: number[]; seat: number; counts: string[] }> =
  {
    P: { code: 0, follows: [0, 1, 2], seat: 4, counts: ['protects', 'acknowledges'] },
    M: { code: 1, follows: [1], seat: 1, counts: ['acknowledges'] },
  };

describe.each(Object.keys(KINDS) as SinkEntry['kind'][])('a sink of kind %s', (kind) => {
  const sink: SinkEntry = { sid: 5, kind, index: 1, ...place, ...CAPABILITIES[kind] };
  const group: Group = { id: 0, pool: 0, version: 1, data, sinks: [sink] };

  it('follows the members that its kind says, and has their seat or one after them', () => {
    expect(followedBy(group, sink)).toEqual(KINDS[kind].follows);
    expect([0, 1, 2].filter((m) => followersOf(group, m).includes(sink))).toEqual(KINDS[kind].follows);
    expect(seatOf(group, sink)).toBe(KINDS[kind].seat);
  });

  it('counts as what its kind says', () => {
    const counts = Object.entries(CAPABILITIES[kind]).filter(([, counted]) => counted);
    expect(counts.map(([name]) => name)).toEqual(KINDS[kind].counts);
  });

  it('has the number on the wire that it always had', () => {
    const bytes = packGroups([{ ...group, data: [] }]);
    expect([...bytes]).toEqual([0, 0, 1, 0, 1, 5, KINDS[kind].code, 1, 20, 1, expect.any(Number)]);
    expect(unpackGroups(bytes)[0]!.sinks).toEqual([sink]);
  });
});
