/** Counts of a push: what policies take for sightings, in real jobs. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TablePolicy } from '../../../src/engine/policies.js';
import { type Client, connect, type Table } from '../../../src/index.js';
import { type LocalCluster, startLocalCluster } from '../../../src/roles/cluster.js';
import { rejection } from '../../roles/support.js';

let cluster: LocalCluster;
let client: Client;
beforeAll(async () => {
  cluster = await startLocalCluster({ ps: 4, code: '2+1' });
  client = await connect(cluster.address);
});
afterAll(async () => {
  await client?.close();
  await cluster?.close();
});

const DIM = 2;
const optimizer = { kind: 'sgd', lr: -1 } as const;
const KEYS = BigUint64Array.from({ length: 40 }, (_, i) => BigInt(i * 11));
let made = 0;
const create = (policy?: TablePolicy) =>
  client.createTable({
    ...{ name: `t${made++}`, dim: DIM, optimizer, initializer: { kind: 'zeros' as const } },
    ...(policy && { policy }),
  });
const ones = (keys: BigUint64Array) => new Float32Array(keys.length * DIM).fill(1);
const countsOf = (keys: BigUint64Array, count: (i: number) => number) =>
  Uint32Array.from(keys, (_, i) => count(i));

async function sightings({ name, spec }: Table, keys: BigUint64Array): Promise<number[]> {
  const [rows] = await client.pullFull([{ table: name, keys }]);
  const words = new Uint32Array(rows!.buffer, rows!.byteOffset, rows!.length);
  const width = client.rowWidth(spec);
  return Array.from(keys, (_, i) => words[(i + 1) * width - 1]!);
}

describe('counts', () => {
  it('are the sightings of rows, also through the loss of a PS', async () => {
    const table = await create({ ttl: 1000 });
    await table.push(KEYS, ones(KEYS), { counts: countsOf(KEYS, (i) => 1 + (i % 7)) });
    const lost = cluster.kill(0);
    await client.push([{ table, keys: KEYS, gradients: ones(KEYS), counts: countsOf(KEYS, (i) => 2 + i) }]);
    await table.push(KEYS, ones(KEYS));
    await lost;
    expect(await sightings(table, KEYS)).toEqual(Array.from(KEYS, (_, i) => 1 + (i % 7) + 2 + i + 1));
    expect(await table.pull(KEYS)).toEqual(new Float32Array(KEYS.length * DIM).fill(3));
    await cluster.restart(0);
  });

  it.each<TablePolicy>([{ counter: 3 }, { bloom: { sightings: 3, capacity: 1000, error: 0.001 } }])(
    'admit keys by %j',
    async (policy) => {
      const table = await create(policy);
      const keys = BigUint64Array.of(1n, 2n, 3n);
      await table.push(keys, ones(keys), { counts: Uint32Array.of(2, 3, 1) });
      expect([...(await table.pull(keys))]).toEqual([0, 0, 1, 1, 0, 0]);
      await table.push(keys, ones(keys));
      expect([...(await table.pull(keys))]).toEqual([1, 1, 2, 2, 0, 0]);
      await table.push(keys, ones(keys));
      expect(await sightings(table, keys)).toEqual([4, 5, 3]);
    },
  );

  it('of keys that repeat are summed, also in a push that is cut into sections', async () => {
    const table = await create({ ttl: 1000 });
    const several = BigUint64Array.from({ length: 300_000 }, (_, i) => BigInt(i % 3));
    await table.push(several, ones(several));
    const few = several.subarray(0, 4);
    await table.push(few, ones(few), { counts: Uint32Array.of(1, 2, 3, 10) });
    expect(await sightings(table, several.subarray(0, 3))).toEqual([100_011, 100_002, 100_003]);
    await table.push(several, ones(several), { counts: countsOf(several, () => 2) });
    expect(await sightings(table, several.subarray(0, 3))).toEqual([300_011, 300_002, 300_003]);
    const most = countsOf(several, () => 0xffffffff);
    await table.push(several, ones(several), { counts: most });
    expect(new Set(await sightings(table, several.subarray(0, 3))).size).toBe(1);
  });

  it('say nothing to a table without a policy', async () => {
    const [plain, counted] = [await create(), await create({ ttl: 1000 })];
    const requests = [plain, counted].map((table) => ({
      ...{ table, keys: KEYS, gradients: ones(KEYS), counts: countsOf(KEYS, () => 5) },
    }));
    await client.push(requests);
    expect(await plain.pull(KEYS)).toEqual(ones(KEYS));
    expect(await sightings(counted, KEYS.subarray(0, 1))).toEqual([5]);
  });

  it('are refused where they say nothing', async () => {
    const keys = KEYS.subarray(0, 2);
    for (const table of [await create(), await create({ ttl: 5 })]) {
      const push = (counts: Uint32Array) => rejection(table.push(keys, ones(keys), { counts }));
      expect(await push(Uint32Array.of(1, 0))).toMatchObject({
        code: 'BAD_ARGUMENT',
        message: expect.stringContaining('counts[1] is 0, but a key that is pushed was seen once or more'),
      });
      expect(await push(Uint32Array.of(1))).toMatchObject({ code: 'LENGTH_MISMATCH' });
      expect(await push([1, 2] as never)).toMatchObject({ code: 'BAD_ARGUMENT' });
      expect(await table.pull(keys)).toEqual(new Float32Array(2 * DIM));
    }
    const table = await create({ ttl: 5 });
    const gradients = new Float32Array(2 * client.rowWidth(table.spec));
    const whole = client.assign([{ table, keys, gradients, counts: Uint32Array.of(1, 1) }]);
    expect(await rejection(whole)).toMatchObject({ code: 'BAD_ARGUMENT' });
  });
});
