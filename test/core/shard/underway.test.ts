/** Blocks under way: counted once, overdue, and asked of all parities once. */
import { expect, it } from 'vitest';
import { BlocksUnderWay } from '../../../src/core/shard/underway.js';
import { concat, without } from '../../../src/core/shared/blocks.js';

const KEYS = 2;
const ROWS = 3;
const list = (column: number, ...indices: number[]): Uint32Array =>
  Uint32Array.from(indices.flatMap((index) => [column, index]));

it('counts each kind, and a block once', () => {
  const underWay = new BlocksUnderWay();
  underWay.add(list(ROWS, 1, 2, 3), 0);
  underWay.add(list(KEYS, 1), 0);
  expect([underWay.count(0), underWay.count(1)]).toEqual([1, 3]);
  underWay.remove(list(ROWS, 2, 7));
  underWay.remove(list(ROWS, 2));
  expect([underWay.count(0), underWay.count(1)]).toEqual([1, 2]);
  underWay.clear();
  expect([underWay.count(0), underWay.count(1), underWay.has(ROWS, 1)]).toEqual([0, 0, false]);
});

it('says what nobody was asked for', () => {
  const underWay = new BlocksUnderWay();
  underWay.add(list(ROWS, 1, 2), 0);
  expect(underWay.fresh(list(ROWS, 0, 1, 2, 3))).toEqual(list(ROWS, 0, 3));
  expect(underWay.fresh(list(KEYS, 1))).toEqual(list(KEYS, 1));
  expect(underWay.fresh(list(ROWS, 1))).toEqual(list(ROWS));
});

it('gives out what is overdue, once, without what has come', () => {
  const underWay = new BlocksUnderWay();
  underWay.add(list(ROWS, 1, 2), 100);
  underWay.add(list(ROWS, 5), 200);
  underWay.remove(list(ROWS, 1));
  expect(underWay.takeOverdue(100)).toEqual([]);
  expect(underWay.takeOverdue(150)).toEqual([list(ROWS, 2)]);
  expect(underWay.takeOverdue(150)).toEqual([]);
  expect([underWay.has(ROWS, 2), underWay.has(ROWS, 5)]).toEqual([false, true]);
  // A block that is asked for again is under way from then on.
  underWay.add(list(ROWS, 2), 300);
  expect(underWay.takeOverdue(250)).toEqual([list(ROWS, 5)]);
  expect(underWay.count(1)).toBe(1);
});

it('forgets a request whose blocks were listed twice', () => {
  const underWay = new BlocksUnderWay();
  underWay.add(list(ROWS, 1, 1), 0);
  underWay.remove(list(ROWS, 1));
  expect(underWay.takeOverdue(10).map((blocks) => blocks.length)).toEqual([0]);
  expect(underWay.takeOverdue(10)).toEqual([]);
});

it('puts lists together and takes them apart', () => {
  expect(concat(list(ROWS, 1), list(KEYS, 2))).toEqual(Uint32Array.of(ROWS, 1, KEYS, 2));
  expect(without(list(ROWS, 1, 2, 2, 3), list(ROWS, 3))).toEqual(list(ROWS, 1, 2));
});
