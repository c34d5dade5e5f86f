/** An address is that of the map of the moment. */
import { expect, it } from 'vitest';
import { type ClusterMap, EMPTY_MAP } from '../../src/protocol/map.js';
import { AddressBook } from '../../src/runtime/address-book.js';

const node = (id: number, inc: number, address: string) => ({
  id,
  inc,
  name: `ps-${id}`,
  host: 'h',
  address,
  standby: false,
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
