// Streams of the keys whose rows leave a table.
import { expect, it } from 'vitest';
import type { Client, EvictionBatch, EvictionsOptions } from '../../../src/library/client/client.js';
import { COUNTING, client, cluster, keysOf, rejection } from '../../roles/support.js';

const DIM = COUNTING.dim;
const ones = (rows: number) => new Float32Array(rows * DIM).fill(1);

/** A stream that has begun, and what it tells. */
async function reading(job: Client, table: string, options: EvictionsOptions = {}) {
  const stream = job.evictions(table, { pollMs: 5, ...options });
  let first: EvictionBatch | undefined;
  if (!options.from) first = (await stream.next()).value as EvictionBatch;
  /** Reasons by key of the next `count` keys. */
  const next = async (count: number) => {
    const told = new Map<bigint, string>();
    let last = first;
    while (told.size < count) {
      last = (await stream.next()).value as EvictionBatch;
      for (const [i, key] of last.keys.entries()) told.set(key, last.reasons[i]!);
      expect(last.gap).toBe(false);
    }
    return { told, position: last!.position };
  };
  return { stream, first, next };
}

it('tells keys that leave from its first batch on, with their reasons', async () => {
  const job = await client((await cluster({ code: '2+1', ps: 3 })).address);
  const policy = { ttl: 10, minFrequency: { sightings: 2, ttl: 4 } };
  const table = await job.createTable({ name: 'items', ...COUNTING, policy });
  await table.push(keysOf(1, 2, 3, 4), ones(4));
  await table.delete(keysOf(1));
  const { stream, first, next } = await reading(job, 'items');
  expect(first).toMatchObject({ keys: keysOf(), reasons: [], gap: false });
  await table.push(keysOf(2), ones(1));
  await table.delete(keysOf(3, 99));
  expect((await next(1)).told).toEqual(new Map([[3n, 'deleted']]));
  // Every shard has steps of its own: all get one with each push.
  const steps = BigUint64Array.from({ length: 40 }, (_, i) => BigInt(1000 + i));
  for (let step = 0; step < 20; step++) await table.push(steps, ones(40));
  const { told } = await next(2);
  expect(told).toEqual(
    new Map(
      [
        [4n, 'rare'],
        [2n, 'expired'],
      ].map(([k, v]) => [k, v] as [bigint, string]),
    ),
  );
  await stream.return();
});

it('goes on from a position, in another client, too', async () => {
  const { address } = await cluster({ code: '2+1', ps: 3 });
  const job = await client(address);
  const table = await job.createTable({ name: 'items', ...COUNTING });
  await table.push(keysOf(1, 2, 3, 4, 5), ones(5));
  const one = await reading(job, 'items');
  await table.delete(keysOf(1, 2));
  const { position } = await one.next(2);
  await one.stream.return();
  await table.delete(keysOf(3, 4));
  const other = await client(address);
  const two = await reading(other, 'items', { from: JSON.parse(JSON.stringify(position)) });
  expect([...(await two.next(2)).told.keys()].sort()).toEqual([3n, 4n]);
  const elsewhere = other.evictions('items', { from: { ...position, job: 'another' } });
  expect((await elsewhere.next()).value).toMatchObject({ keys: keysOf(), gap: true });
  await elsewhere.return();
  await two.stream.return();
});

it('ends with an error: a signal, a dropped table, a client that closes', async () => {
  const { address } = await cluster({ code: '2+1', ps: 3 });
  const job = await client(address);
  const table = await job.createTable({ name: 'items', ...COUNTING });
  const stop = new AbortController();
  const aborted = await reading(job, 'items', { signal: stop.signal });
  const dropped = await reading(job, 'items');
  const closed = await reading(await client(address), 'items');
  await job.createTable({ name: 'others', ...COUNTING });
  const ends = [rejection(aborted.stream.next()), rejection(dropped.stream.next())];
  stop.abort();
  await table.drop();
  expect((await Promise.all(ends)).map(({ code }) => code)).toEqual(['ABORTED', 'UNKNOWN_TABLE']);
  expect(await rejection(closed.stream.next())).toMatchObject({ code: 'UNKNOWN_TABLE' });
  const other = await client(address);
  const { stream } = await reading(other, 'others');
  const end = rejection(stream.next());
  await other.close();
  expect(await end).toMatchObject({ code: 'CLOSED' });
});

it('refuses a position that is none, and a table that is none', async () => {
  const job = await client((await cluster({ code: '2+1', ps: 3 })).address);
  await job.createTable({ name: 'items', ...COUNTING });
  expect(() => job.evictions('item')).toThrow(expect.objectContaining({ code: 'UNKNOWN_TABLE' }));
  for (const from of [
    null,
    {},
    { job: 'j', table: 1, shards: [[1]] },
    { job: 'j', table: 1, shards: [[1, -1]] },
  ])
    expect(() => job.evictions('items', { from } as never)).toThrow(
      expect.objectContaining({ code: 'BAD_ARGUMENT' }),
    );
  expect(() => job.evictions('items', { pollMs: 0 })).toThrow(/pollMs/);
});
