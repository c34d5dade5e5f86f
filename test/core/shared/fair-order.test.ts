// Clients that wait get equal shares, those with little first, and everybody's turn comes.
import { describe, expect, it } from 'vitest';
import { FairOrder } from '../../../src/core/shared/fair-order.js';

interface Client {
  name: string;
  tag: number;
  /** Costs of what it waits for, the first one first. */
  costs: number[];
}

const client = (name: string, ...costs: number[]): Client => ({ name, tag: 0, costs });
const all = (...clients: Client[]): FairOrder<Client> => {
  const order = new FairOrder<Client>();
  for (const each of clients) order.enter(each, each.costs[0]!);
  return order;
};
const next = (order: FairOrder<Client>): string => {
  const first = order.first!;
  first.costs.shift();
  order.served(first, first.costs[0]);
  return first.name;
};
const names = (order: FairOrder<Client>, count: number): string =>
  Array.from({ length: count }, () => next(order)).join('');

describe('a fair order', () => {
  it('has what costs least first, and what came first among equals', () => {
    expect(names(all(client('a', 5), client('b', 1), client('c', 1), client('d', 3)), 4)).toBe('bcda');
  });

  it('gives everybody as much', () => {
    const order = all(client('a', 4, 4, 4), client('b', 1, 1, 1, 1, 1, 1, 1, 1));
    expect(names(order, 10)).toBe('bbbabbbbab');
  });

  it('lets one that comes again and again with little pass one with much only so often', () => {
    const order = all(client('a', 3));
    const seen: string[] = [];
    while (seen.at(-1) !== 'a' && seen.length < 9) {
      order.enter(client('b', 1), 1);
      seen.push(next(order));
    }
    expect(seen.join('')).toBe('bba');
  });

  it('lets those that come go where those are that wait, whatever was served before', () => {
    const order = all(client('a', 1, 1, 1, 1, 1, 1));
    names(order, 4);
    order.enter(client('b', 1), 1);
    expect(names(order, 3)).toBe('aba');
    order.enter(client('c', 9), 9);
    expect(order.first!.tag).toBe(9);
  });

  it('has the place of one that left for a while', () => {
    const [a, b, c] = [client('a', 1), client('b', 2), client('c', 2)];
    const order = all(a, b, c);
    order.leave(a);
    order.leave(b);
    for (const each of [b, a]) order.comeBack(each);
    expect(names(order, 3)).toBe('abc');
    expect([order.length, order.first]).toEqual([0, undefined]);
  });

  it('gives no credit to one that could not be served for long', () => {
    const [a, b] = [client('a', 1, 1, 1), client('b', ...Array<number>(20).fill(1))];
    const order = all(a, b);
    order.leave(a);
    names(order, 10);
    order.comeBack(a);
    expect(names(order, 5)).toBe('ababa');
  });

  it('serves one before its turn, and those that come have their place all the same', () => {
    const [a, b] = [client('a', 5, 5), client('b', 100, 1)];
    const order = all(a, b);
    order.served(b, 1);
    const c = client('c', 1);
    order.enter(c, 1);
    expect([c, a, b].map(({ tag }) => tag)).toEqual([1, 5, 101]);
    expect(names(order, 2)).toBe('ca');
  });
});
