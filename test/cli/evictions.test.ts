// A stream of evicted keys while a PS is killed: what is not told lies in a gap, and nothing told is there.
import { afterEach, expect, test } from 'vitest';
import { loadNative } from '../../src/engine/native.js';
import { connect, type EvictionBatch } from '../../src/index.js';
import { type Running, record, start } from './support.js';

const NODES = 4;
const DIM = 2;
const PART = 300;
const SHARDS = 2;
const running: Running[] = [];
afterEach(() => {
  for (const one of running.splice(0)) one.process.kill('SIGKILL');
});
const started = (args: string[]): Running => {
  running.push(start([...args, '--log-format', 'json']));
  return running.at(-1)!;
};
const part = (number: number) => BigUint64Array.from({ length: PART }, (_, i) => BigInt(number * PART + i));

test('keys that leave are told, or lie in a gap of their shard, when a PS is killed', async () => {
  const shape = ['--listen', '127.0.0.1:0', '--ps', `${NODES}`, '--code', '2+1', '--groups', '1'];
  const address = `${(await record(started(['scheduler', ...shape]), 'scheduler.ready')).address}`;
  const nodes = Array.from({ length: NODES }, (_, i) =>
    started(['ps', '--scheduler', address, '--name', `ps-${i}`]),
  );
  for (const node of nodes) await record(node, 'ps.ready');
  const client = await connect(address);
  const table = await client.createTable({ name: 'items', dim: DIM });
  const keys = BigUint64Array.from({ length: 4 * PART }, (_, i) => BigInt(i));
  await table.push(keys, new Float32Array(keys.length * DIM).fill(1));

  const told = new Map<bigint, number>();
  const gaps: EvictionBatch[] = [];
  let waits: { isDone: () => boolean; resolve: () => void } | undefined;
  const until = (isDone: () => boolean) =>
    new Promise<void>((resolve) => {
      waits = { isDone, resolve };
      if (isDone()) resolve();
    });
  const stop = new AbortController();
  const stream = table.evictions({ pollMs: 5, signal: stop.signal });
  const first = (await stream.next()).value as EvictionBatch;
  const read = (async () => {
    for await (const batch of stream) {
      for (const key of batch.keys) told.set(key, (told.get(key) ?? 0) + 1);
      if (batch.gap) gaps.push(batch);
      if (waits?.isDone()) waits.resolve();
    }
  })().catch((error) => error.code);

  await table.delete(part(0));
  await until(() => told.size === PART);
  expect(gaps).toEqual([]);

  // While the owner of shard 0 is killed, keys leave one after the other.
  const { groups, nodes: known } = client.clusterMap;
  const { name } = known.find(({ id }) => id === groups[0]!.data[0]!.node)!;
  for (const [i, key] of part(1).entries()) {
    if (i === PART / 3) nodes[Number(name.slice('ps-'.length))]!.process.kill('SIGKILL');
    await table.delete(BigUint64Array.of(key));
  }
  await until(() => gaps.length > 0);
  const last = part(2);
  await table.delete(last);
  await until(() => last.every((key) => told.has(key)));
  stop.abort();
  expect(await read).toBe('ABORTED');

  const { order, starts } = loadNative().partition(keys, SHARDS);
  const shardOf = new Map<bigint, number>();
  for (let shard = 0; shard < SHARDS; shard++)
    for (let i = starts[shard]!; i < starts[shard + 1]!; i++) shardOf.set(keys[order[i]!]!, shard);
  const there: bigint[] = [];
  for await (const batch of table.scan({ select: 'keys' })) there.push(...batch.keys);
  expect(there.sort((a, b) => Number(a - b))).toEqual([...part(3)]);
  expect(
    gaps.map(({ position }) => position.shards.map(([gen], i) => gen > first.position.shards[i]![0])),
  ).toEqual([[true, false]]);
  expect([...told.values()].every((times) => times === 1)).toBe(true);
  const missing = [...keys].filter((key) => !told.has(key) && !there.includes(key));
  expect(missing.every((key) => shardOf.get(key) === 0 && key >= PART && key < 2 * PART)).toBe(true);
  expect(told.size + missing.length + there.length).toBe(keys.length);
  await client.close();
});
