// A closed link to a client frees at once what it waited for: pulls, answers, deltas, requests for ranges.
import { afterEach, expect, it } from 'vitest';
import { ItemList } from '../../../src/protocol/items.js';
import { Cluster, DIM } from '../harness.js';
import { kind } from '../packets.js';
import { Book } from '../scheduler/book.js';

let cluster: Cluster | undefined;
afterEach(() => {
  cluster?.close();
  cluster = undefined;
});

function start() {
  const made = new Cluster({ k: 1, r: 1, clients: 2, clientPolicy: { retryMs: 100_000 } });
  cluster = made;
  const actor = made.nodeById(made.map.groups[0]!.data[0]!.node);
  const [client, other] = made.clients.map(({ id }) => id);
  return { made, actor, node: actor.node!, client: client!, other: other! };
}

it('pulls that name a newer map than the node has', () => {
  const { made, actor, node, client, other } = start();
  const items = new ItemList('pull');
  items.add(0, 0, 16);
  // The section has 16 bytes, and the list of sections 12.
  for (const from of [client, other, client]) {
    const message = { t: 'pull', epoch: made.map.epoch + 1, id: 1, items: items.bytes() } as const;
    node.step({ kind: 'message', from, role: 'client', message, parts: [new Uint8Array(16)] });
  }
  expect([node.waiting.count, node.waiting.used]).toEqual([3, 3 * 28]);
  made.disconnect(actor, client);
  expect([node.waiting.count, node.waiting.used]).toEqual([1, 28]);
});

it('answers', () => {
  const { made, actor, node, client } = start();
  made.hold(kind('rows', { to: client }));
  made.clients[0]!.pull({ 0: [{ keys: [1, 2] }] });
  made.settle();
  expect(node.answers.used).toBe(2 * DIM * 4);
  made.disconnect(actor, client);
  expect(node.answers.used).toBe(0);
});

it('deltas for a replica: it is sent no more of the shard until it asks again', () => {
  const { made, actor, node, client, other } = start();
  const { gen } = node.ownerAt(0, 0)!;
  for (const from of [client, other]) {
    const message = { t: 'follow', g: 0, m: 0, gen, id: 1, v: made.map.groups[0]!.version } as const;
    node.step({ kind: 'message', from, role: 'client', message, parts: [] });
  }
  made.disconnect(actor, client);
  expect(made.eventsNamed('replica.dropped')).toMatchObject([{ replica: client, reason: 'disconnected' }]);
  const before = made.history.length;
  made.clients[1]!.push({ 0: [{ keys: [1] }] });
  made.settle();
  expect(made.sent('followDelta', before).map(({ to }) => to)).toEqual([other]);
});

it('a request for a range: the next free range goes to a worker that is there', () => {
  const book = new Book();
  book.open(1);
  const held = [];
  for (let range = book.acquire(1); range?.range; range = book.acquire(1)) held.push(range);
  // Worker 1 waits for one more, and worker 2 behind it.
  expect(book.acquire(2, 0, 77)).toBeUndefined();
  book.closed(1);
  book.attached(1);
  book.release(1, held[0]!, 'returned');
  expect(book.answer(2, 'acquired', 77)?.range?.number).toBe(held[0]!.range!.number);
});
