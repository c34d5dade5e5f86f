/** The book that keeps chaos within the promise: what may be lost together, and what may not. */
import { expect, test } from 'vitest';
import { PushLedger } from '../../bench/chaos/ledger.js';
import { CAPABILITIES, type ClusterMap, EMPTY_MAP, type SinkEntry } from '../../src/protocol/map.js';

function mapOf(
  owners: number[],
  sinks: [kind: 'P' | 'M', index: number, node: number][],
  r: number,
): ClusterMap {
  const data = owners.map((node) => ({ node, inc: 1, gen: 1, init: true }));
  const entries = sinks.map(
    ([kind, index, node], i): SinkEntry => ({
      sid: i + 1,
      kind,
      index,
      node,
      inc: 1,
      init: true,
      ...CAPABILITIES[kind],
    }),
  );
  const pool = { name: 'embedding', k: owners.length, r, firstGroup: 0, groups: 1 };
  return { ...EMPTY_MAP, pools: [pool], groups: [{ id: 0, pool: 0, version: 1, data, sinks: entries }] };
}

test('at most r members of a group may be lost together', () => {
  const ledger = new PushLedger();
  const map = mapOf(
    [1, 2, 3],
    [
      ['P', 0, 4],
      ['P', 1, 5],
    ],
    2,
  );
  expect(ledger.allows(map, [1, 4])).toBe(true);
  expect(ledger.allows(map, [1, 2, 4])).toBe(false);
  ledger.add(map, [1]);
  expect(ledger.empty).toBe(false);
  expect(ledger.allows(map, [2])).toBe(true);
  expect(ledger.allows(map, [2, 3])).toBe(false);
  // A node outside the group costs it nothing.
  expect(ledger.allows(map, [2, 9])).toBe(true);
  ledger.clear();
  expect(ledger.allows(map, [2, 3])).toBe(true);
});

test('a node that holds two members counts twice, a member that moved counts once', () => {
  const crowded = mapOf([1, 1, 3], [['P', 0, 4]], 1);
  const ledger = new PushLedger();
  expect(ledger.allows(crowded, [1])).toBe(false);
  const before = mapOf([1, 2, 3], [['P', 0, 4]], 1);
  ledger.add(before, [1]);
  const after = mapOf([5, 2, 3], [['P', 0, 4]], 1);
  expect(ledger.allows(after, [5])).toBe(true);
  expect(ledger.allows(after, [2])).toBe(false);
});
