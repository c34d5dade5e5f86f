/** Waiting lists: bounded in number and in bytes, copied, and every byte that leaves is given back. */
import { describe, expect, it } from 'vitest';
import { WaitingBytes } from '../../../src/core/shared/waiting-bytes.js';
import { WaitingList, type WaitingOptions } from '../../../src/core/shared/waiting-list.js';

const start = (atLimit: WaitingOptions['atLimit'], maxCount = 3, bytes = 10) => {
  const account = new WaitingBytes(bytes);
  const list = new WaitingList<string>({ maxCount, account, atLimit });
  const items = () => list.takeAll().map(({ item }) => item);
  return { account, list, items };
};
const part = (length: number): Uint8Array[] => [new Uint8Array(length)];

describe('a waiting list', () => {
  it('refuses what does not fit, in number or in bytes', () => {
    const { account, list, items } = start('refuse');
    expect(['a', 'b'].map((item) => list.add(item, part(4)))).toEqual([true, true]);
    expect([list.add('c', part(3)), list.add('d', part(2)), list.add('e', part(0))]).toEqual([
      false,
      true,
      false,
    ]);
    expect([account.used, items(), account.used]).toEqual([10, ['a', 'b', 'd'], 0]);
  });

  it('drops the oldest, in number or in bytes, and takes nothing that never fits', () => {
    const { account, list, items } = start('dropOldest');
    for (const item of ['a', 'b', 'c', 'd']) list.add(item, part(1));
    expect([list.first?.item, list.last?.item, account.used]).toEqual(['b', 'd', 3]);
    expect(list.add('e', part(9))).toBe(true);
    expect([account.used, items()]).toEqual([10, ['d', 'e']]);
    expect([list.add('f', part(11)), account.used]).toEqual([false, 0]);
  });

  it('copies parts, which are views that end with the call', () => {
    const { list } = start('refuse');
    const view = Uint8Array.of(7);
    list.add('a', [view]);
    view.fill(0xa5);
    expect([...list.first!.parts[0]!]).toEqual([7]);
  });

  it('gives up what came before a time, and what is not kept', () => {
    const { account, list, items } = start('refuse');
    for (const [now, item] of ['a', 'b', 'c'].entries()) list.add(item, part(1), now);
    expect(list.takeBefore(1).map(({ item }) => item)).toEqual(['a']);
    list.retain(({ item }) => item !== 'b');
    expect([account.used, items()]).toEqual([1, ['c']]);
  });

  it('an account never falls below nothing', () => {
    const { account } = start('refuse');
    account.take(2);
    expect(() => account.give(3)).toThrow('invariant broken');
  });
});
