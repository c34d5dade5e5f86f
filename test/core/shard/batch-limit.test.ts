/** The room of a batch: no delta is larger than `maxBatchBytes`, and new keys find slots after it. */
import { afterEach, expect, it } from 'vitest';
import { Cluster, tableSpec } from '../harness.js';

let cluster: Cluster;
afterEach(() => cluster.close());

/** Bytes of some 120 rows. */
const LIMIT = 1 << 18;
const keysFrom = (from: number, count: number) => Array.from({ length: count }, (_, i) => from + i);
const sizes = () => cluster.sent('delta').map(({ parts }) => parts[0]!.byteLength);

/** Pushes of one turn of the event loop. */
function pushTogether(lists: number[][]) {
  cluster.autoFlush = false;
  const tickets = lists.map((keys) => cluster.client.push({ 0: [{ keys }] }));
  cluster.settle();
  cluster.autoFlush = true;
  cluster.advance(1000);
  return tickets;
}

it('a push that makes a batch too large is in the next one', () => {
  cluster = new Cluster({ k: 1, r: 1, policy: { maxBatchBytes: LIMIT } });
  const tickets = pushTogether(Array.from({ length: 8 }, (_, i) => keysFrom(1 + 30 * i, 30)));
  expect(tickets.map(({ done, error }) => [done, error])).toEqual(tickets.map(() => [true, undefined]));
  expect(Math.max(...sizes())).toBeLessThanOrEqual(LIMIT);
  expect(sizes().length).toBeGreaterThan(1);
  expect(sizes().length).toBeLessThan(8);
  for (const key of [1, 100, 240]) expect(cluster.read(0, key)).toBe(1);
  expect(cluster.checkParities()).toBeGreaterThan(0);
});

it('a push whose delta alone is too large is refused, and the next ones are not', () => {
  cluster = new Cluster({ k: 1, r: 1, policy: { maxBatchBytes: LIMIT } });
  const tickets = pushTogether([[1], keysFrom(1, 400), [1, 2], keysFrom(1, 400), [1]]);
  expect(tickets.map(({ error }) => error)).toEqual([undefined, 'LIMIT', undefined, 'LIMIT', undefined]);
  expect(Math.max(...sizes())).toBeLessThanOrEqual(LIMIT);
  expect([1, 2, 3].map((key) => cluster.read(0, key))).toEqual([3, 1, 0]);
  expect(cluster.client.core.unacknowledged).toBe(0);
  expect(cluster.checkParities()).toBeGreaterThan(0);
});

it('waits for acknowledgements, as any push, where its batch has to end', () => {
  cluster = new Cluster({ k: 1, r: 1, policy: { maxBatchBytes: LIMIT, maxUncommittedBytes: 1 } });
  const stalled = cluster.hold(({ message }) => message.t === 'applied');
  cluster.autoFlush = false;
  for (let i = 0; i < 16; i++) cluster.client.push({ 0: [{ keys: keysFrom(1 + 30 * i, 30) }] });
  cluster.settle();
  expect(cluster.owner(0).stream.seq).toBe(1);
  expect(cluster.owner(0).native.dirty).toBe(false);
  cluster.autoFlush = true;
  stalled.release();
  cluster.advance(1000);
  expect(cluster.client.core.unacknowledged).toBe(0);
  for (const key of [1, 240, 480]) expect(cluster.read(0, key)).toBe(1);
});

it('rows go in a batch of their own for a push with more new keys than slots', () => {
  cluster = new Cluster({
    ...{ k: 1, r: 1, memoryLimit: 4 << 20 },
    tables: [{ ...tableSpec('t'), policy: { memory: true } }],
  });
  for (let i = 0; i < 60; i++) {
    const count = 60 * (1 + (i % 10));
    const [ticket] = pushTogether([keysFrom(1 + 10_000 * i, count)]);
    expect(ticket).toMatchObject({ done: true, error: undefined });
    // An acknowledged push has its rows.
    expect(cluster.read(0, 10_000 * i + count)).not.toBe(0);
  }
  const life = cluster.owner(0).native.stats()[0]!.life!;
  expect(life.refused).toBe(0);
  expect(life.displaced).toBeGreaterThan(10_000);
  expect(cluster.checkParities()).toBeGreaterThan(0);
});
