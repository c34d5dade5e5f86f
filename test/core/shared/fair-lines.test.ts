/** Lines of clients: each keeps its order, they take turns by cost, and none that is empty is left. */
import { expect, it } from 'vitest';
import { FairLines } from '../../../src/core/shared/fair-lines.js';
import { WaitingBytes } from '../../../src/core/shared/waiting-bytes.js';

interface Item {
  name: string;
  cost: number;
}

function start() {
  const account = new WaitingBytes(100);
  const lines = new FairLines<Item>({ maxCount: 3, account }, ({ cost }) => cost);
  const add = (client: number, name: string, cost = 1, bytes = 10) =>
    lines.add(client, { name, cost }, [new Uint8Array(bytes)], 0);
  const served = () => {
    const names: string[] = [];
    for (let line = lines.order.first; line; line = lines.order.first)
      names.push(lines.serve(line).item.name);
    return names.join(' ');
  };
  return { account, lines, add, served };
}

it('are served in turns by what their first items cost', () => {
  const { account, lines, add, served } = start();
  for (const name of ['a1', 'a2']) add(1, name, 3);
  for (const name of ['b1', 'b2', 'b3']) add(2, name, 1);
  expect([lines.byClient.get(1)!.list.bytes, account.used]).toEqual([20, 50]);
  expect(served()).toBe('b1 b2 a1 b3 a2');
  expect([lines.any, account.used]).toEqual([false, 0]);
});

it('have limits, and what was refused leaves no line', () => {
  const { account, lines, add } = start();
  expect([1, 2, 3, 4].map((n) => add(1, `a${n}`))).toEqual([true, true, true, false]);
  expect([add(2, 'b1', 1, 90), lines.byClient.has(2), account.used]).toEqual([false, false, 30]);
});

it('are gone with their last item, however it went', () => {
  const { account, lines, add, served } = start();
  for (const client of [1, 2, 3]) for (const name of ['x', 'y']) add(client, `${name}${client}`);
  lines.drop(1);
  lines.drop(9);
  for (const line of lines.byClient.values()) {
    line.list.retain(({ item }) => item.name === 'y3');
    lines.dropEmpty(line);
  }
  expect([[...lines.byClient.keys()], lines.byClient.get(3)!.list.bytes, account.used]).toEqual([
    [3],
    10,
    10,
  ]);
  expect([served(), lines.any, account.count]).toEqual(['y3', false, 0]);
});
