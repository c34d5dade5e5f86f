/** `Table.drop`: rows, parities and memory go, and the name is free, also through the loss of a PS. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Client, connect, save, type Table } from '../../../src/index.js';
import { internalsOf } from '../../../src/library/client/connected.js';
import { type LocalCluster, startLocalCluster } from '../../../src/roles/cluster.js';
import { rejection, temporaryDirectory } from '../../roles/support.js';

let cluster: LocalCluster;
let client: Client;
let other: Client;
beforeAll(async () => {
  cluster = await startLocalCluster({ ps: 4, code: '2+1' });
  [client, other] = await Promise.all([connect(cluster.address), connect(cluster.address)]);
});
afterAll(async () => {
  await Promise.all([client?.close(), other?.close()]);
  await cluster?.close();
});

const DIM = 32;
const KEYS = BigUint64Array.from({ length: 4096 }, (_, i) => BigInt(i * 7));
const create = (name: string, dim = DIM, by = client) =>
  by.createTable({ name, dim, optimizer: { kind: 'sgd', lr: -1 }, initializer: { kind: 'zeros' } });
const fill = (table: Table, value = 1) =>
  table.push(KEYS, new Float32Array(KEYS.length * table.dim).fill(value));
const first = async (table: Table) => (await table.pull(KEYS.subarray(0, 1)))[0];
/** Bytes of rows, and of parities and mirrors, of all PS together. */
const memory = async () => {
  const { nodes } = await client.observe();
  return nodes.reduce((sum, { telemetry }) => sum + (telemetry?.memory.usedBytes ?? 0), 0);
};

describe('a table that is dropped', () => {
  it('takes no memory any more, and its name is free for one that begins empty', async () => {
    const stays = await create('stays');
    await fill(stays);
    const before = await memory();
    const table = await create('goes');
    await fill(table);
    const full = await memory();
    expect(full).toBeGreaterThan(before + KEYS.length * DIM * 4);
    await table.drop();
    expect(client.tables().map(({ name }) => name)).toEqual(['stays']);
    const { session } = internalsOf(other);
    await session.until(() => session.map.epoch >= client.clusterMap.epoch);
    await expect.poll(memory).toBeLessThan(before + KEYS.length * DIM);
    const again = await create('goes', 3, other);
    await internalsOf(client).session.until(() => client.tables().length === 2);
    expect(await first(again)).toBe(0);
    await fill(again, 5);
    expect([await first(again), await first(stays), again.dim]).toEqual([5, 1, 3]);
    // The object of the old table is not that of the new one.
    for (const work of [
      () => table.pull(KEYS),
      () => fill(table),
      () => table.drop(),
      () => table.set({ lr: 1 }),
    ])
      expect((await rejection(work())).code).toBe('UNKNOWN_TABLE');
    expect((await rejection((async () => table.scan())())).code).toBe('UNKNOWN_TABLE');
  });

  it('does not come back with a PS that was killed between the drop and the next of its name', async () => {
    const table = await create('lost');
    const keeps = await create('keeps');
    await Promise.all([fill(table, 3), fill(keeps, 2)]);
    await cluster.kill(1);
    await table.drop();
    const again = await create('lost');
    await cluster.restart(1);
    expect(await first(again)).toBe(0);
    await fill(again, 1);
    await expect.poll(async () => (await client.status()).redundancy, { timeout: 20_000 }).toBe('full');
    // Shards of this PS are decoded from parities.
    await cluster.kill(0);
    const rows = await again.pull(KEYS);
    expect([rows.every((value) => value === 1), await first(keeps)]).toEqual([true, 2]);
    await cluster.restart(0);
    await expect.poll(async () => (await client.status()).redundancy, { timeout: 20_000 }).toBe('full');
  });

  it('is refused to a push and a scan of a client that knows it, and saved by nobody', async () => {
    const table = await create('short');
    await fill(table);
    await other.table('short').drop();
    const { session } = internalsOf(client);
    await session.until(() => session.map.epoch >= other.clusterMap.epoch);
    const { code, message } = await rejection(fill(table));
    expect([code, message]).toEqual(['UNKNOWN_TABLE', 'table "short" was dropped']);
    expect((await rejection((async () => client.table('short'))())).code).toBe('UNKNOWN_TABLE');
    await save(client, temporaryDirectory());
    expect((await rejection(client.table('keeps').drop({ signal: AbortSignal.abort() }))).code).toBe(
      'ABORTED',
    );
  });
});
