/**
 * Lists packed in headers: they are read as they were packed, at any address, and no other bytes are valid.
 */
import { describe, expect, it } from 'vitest';
import {
  areItems,
  type ItemKind,
  ItemList,
  Items,
  packItems,
  shardKey,
  unpackItems,
} from '../../src/protocol/items.js';

const LISTS: [ItemKind, number[][]][] = [
  [
    'push',
    [
      [0, 0, 1, 0],
      [4095, 3, Number.MAX_SAFE_INTEGER, 2 ** 32 - 1],
      [2 ** 32 - 1, 65_535, 2 ** 32, 8],
    ],
  ],
  [
    'pull',
    [
      [7, 2, 24],
      [0, 0, 0],
    ],
  ],
  [
    'pushAck',
    [
      [1, 2, 2 ** 40 + 3],
      [1, 3, 1],
    ],
  ],
  [
    'rows',
    [
      [0, 64],
      [9, 0],
    ],
  ],
];

describe.each(LISTS)('a list of %s', (kind, list) => {
  it('comes back as it was packed', () => {
    expect(areItems(kind, packItems(kind, list))).toBe(true);
    expect(unpackItems(kind, packItems(kind, list))).toEqual(list);
    expect(unpackItems(kind, packItems(kind, []))).toEqual([]);
  });

  it('is read at any address', () => {
    const packed = packItems(kind, list);
    for (let offset = 0; offset < 8; offset++) {
      const bytes = new Uint8Array(packed.byteLength + 8).subarray(offset, offset + packed.byteLength);
      bytes.set(packed);
      expect(unpackItems(kind, bytes)).toEqual(list);
    }
  });

  it('has whole items only, in bytes', () => {
    const packed = packItems(kind, list);
    for (let cut = 1; cut < packed.byteLength / list.length; cut++)
      expect(areItems(kind, packed.subarray(0, packed.byteLength - cut))).toBe(false);
    for (const value of [undefined, null, 1, 'push', [], list, new Uint32Array(20)])
      expect(areItems(kind, value)).toBe(false);
  });

  it('grows', () => {
    const many = Array.from({ length: 1000 }, () => list[0]!);
    expect(unpackItems(kind, packItems(kind, many))).toEqual(many);
  });
});

describe('numbers', () => {
  it.each(['push', 'pushAck'] as const)('of %s are safe integers', (kind) => {
    const packed = packItems(kind, [[0, 0, Number.MAX_SAFE_INTEGER]]);
    expect(areItems(kind, packed)).toBe(true);
    packed[14] = 32;
    expect(areItems(kind, packed)).toBe(false);
  });

  it('of members are such that a group and a member are one number', () => {
    expect(areItems('push', packItems('push', [[0, 65_536, 1, 0]]))).toBe(false);
    const places = [
      [0, 65_535],
      [1, 0],
      [2 ** 32 - 1, 65_535],
    ] as const;
    expect(new Set(places.map(([g, m]) => shardKey(g, m))).size).toBe(places.length);
    expect(Number.isSafeInteger(shardKey(2 ** 32 - 1, 65_535))).toBe(true);
  });
});

it('sizes fill a payload exactly, also where their sum does not fit a word', () => {
  const list = new ItemList('push');
  list.addNumbered(0, 0, 1, 2 ** 31);
  list.addNumbered(0, 1, 1, 2 ** 31 + 8);
  const items = new Items('push', list.bytes());
  expect(() => items.checkSizes(4, 8)).toThrow(/items of 4294967304 bytes/);
  expect(() => items.checkSizes(4, 2 ** 32 + 8)).not.toThrow();
});
