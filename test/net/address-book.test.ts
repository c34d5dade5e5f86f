/** The address book has the addresses of the newest map. */
import { expect, it } from 'vitest';
import { AddressBook } from '../../src/net/address-book.js';
import { type ClusterMap, EMPTY_MAP } from '../../src/protocol/map.js';

const node = (id: number, inc: number, address: string) => ({
  id,
  inc,
  name: `ps-${id}`,
  host: 'h',
  address,
  standby: false,
});

it('knows which nodes hold something, by the newest map', () => {
  let map: ClusterMap | undefined;
  const book = new AddressBook(() => map);
  expect(book.holds(1)).toBe(false);
  const group = { id: 0, pool: 0, version: 1 };
  const data = (id: number) => [{ node: id, inc: 1, gen: 1, init: false }];
  const sink = {
    kind: 'P' as const,
    node: 2,
    inc: 1,
    sid: 1,
    index: 0,
    init: false,
    protects: true,
    acknowledges: true,
  };
  const nodes = [1, 2, 3].map((id) => node(id, 1, `localhost:${id}`));
  map = { ...EMPTY_MAP, nodes, groups: [{ ...group, data: data(1), sinks: [sink] }] };
  expect([1, 2, 3].map((id) => book.holds(id))).toEqual([true, true, false]);
  map = { ...map, groups: [{ ...group, data: data(3), sinks: [sink] }] };
  expect([1, 2, 3].map((id) => book.holds(id))).toEqual([false, true, true]);
});

it('follows the map: a restarted node is at its new address, one that left is nowhere', () => {
  let map: ClusterMap | undefined;
  const book = new AddressBook(() => map);
  expect(book.resolve(1)).toBeUndefined();
  map = { ...EMPTY_MAP, nodes: [node(1, 1, 'localhost:7000'), node(2, 1, '[::1]:7001')] };
  expect(book.resolve(1)).toEqual({ host: 'localhost', port: 7000, inc: 1 });
  expect(book.resolve(2)).toMatchObject({ port: 7001, inc: 1 });
  expect(book.resolve(3)).toBeUndefined();
  map = { ...map, nodes: [node(1, 2, 'localhost:7002')] };
  expect(book.resolve(1)).toEqual({ host: 'localhost', port: 7002, inc: 2 });
  expect(book.resolve(2)).toBeUndefined();
});
