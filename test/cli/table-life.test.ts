// Rows that went from tables, by reason, where people and programs look: telemetry, metrics, status, table
// show. Counts of a shard stay where they were counted when it moves away.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { endOf } from '../../src/fleet/local/report.js';
import { lifeText } from '../../src/fleet/local/text.js';
import { type Client, connect, type LifeCounts, showTable } from '../../src/index.js';
import { type LocalCluster, startLocalCluster } from '../../src/roles/cluster.js';
import { psReadings } from '../../src/roles/metrics/ps.js';
import { ps, statusWhere } from '../roles/support.js';
import { kintsugi } from './support.js';

const DIM = 2;
const EXPECTED: LifeCounts = { expired: 30, rare: 20, faint: 0, displaced: 0, deleted: 5, refused: 25 };
let cluster: LocalCluster;
let client: Client;

const keysFrom = (from: number, count: number) =>
  BigUint64Array.from({ length: count }, (_, i) => BigInt(from + i));

beforeAll(async () => {
  cluster = await startLocalCluster({ code: '2+1', ps: 3, groups: 6 });
  client = await connect(cluster.address);
  const policy = { counter: 2, ttl: 9, minFrequency: { sightings: 2, ttl: 4 } };
  const items = await client.createTable({ name: 'items', dim: DIM, policy });
  const plain = await client.createTable({ name: 'plain', dim: DIM });
  const push = async (keys: BigUint64Array) => items.push(keys, new Float32Array(keys.length * DIM).fill(1));
  const twice = (keys: BigUint64Array) => BigUint64Array.from([...keys, ...keys]);
  await push(twice(keysFrom(0, 30)));
  await push(keysFrom(100, 20));
  // All shards see these in each step, so all their clocks go on.
  for (let step = 0; step < 40; step++) await push(twice(keysFrom(1000, 64)));
  await push(keysFrom(200, 5));
  await items.delete(keysFrom(200, 5));
  await items.delete(keysFrom(5000, 5));
  await plain.push(keysFrom(0, 10), new Float32Array(10 * DIM).fill(1));
  await plain.delete(keysFrom(0, 3));
});
afterAll(async () => {
  await client?.close();
  await cluster?.close();
});

const run = (...args: string[]) => kintsugi([...args, '--scheduler', cluster.address]);
const sumOfNodes = (nodes: Record<string, LifeCounts>, reason: keyof LifeCounts) =>
  Object.values(nodes).reduce((sum, each) => sum + each[reason], 0);

async function allSayIt(): Promise<void> {
  const { life } = (await showTable(client, 'items')).table;
  expect(life).toMatchObject(EXPECTED);
  for (const reason of Object.keys(EXPECTED) as (keyof LifeCounts)[])
    expect(sumOfNodes(life!.nodes, reason)).toBe(EXPECTED[reason]);
  expect((await showTable(client, 'plain')).table.life).toMatchObject({ deleted: 3, expired: 0 });
}

test('a table that only grows says nothing about it', async () => {
  await client.createTable({ name: 'grows', dim: DIM });
  expect((await showTable(client, 'grows')).table).not.toHaveProperty('life');
});

test('the library and table show tell them by reason and PS', async () => {
  await allSayIt();
  const { stdout } = await run('table', 'show', 'items');
  expect(stdout).toMatch(/^gone +30 expired, 20 below frequency, 5 deleted, 25 gradients not admitted$/m);
  expect(stdout).toMatch(/^ {2}on \S+ +.*expired/m);
  const json = JSON.parse((await run('table', 'show', 'plain', '--json')).stdout);
  expect(json.life).toMatchObject({ deleted: 3 });
});

test('status tells them for people and programs', async () => {
  const { stdout } = await run('status');
  expect(stdout).toMatch(
    /^rows gone from +on +expired +below frequency +below norm +for room +deleted +not admitted$/m,
  );
  expect(stdout).toMatch(/^items +all +30 +20 +0 +0 +5 +25$/m);
  const { tables } = JSON.parse((await run('status', '--json')).stdout);
  const items = tables.find(({ name }: { name: string }) => name === 'items');
  expect(items).toMatchObject({ policy: { counter: 2, ttl: 9 }, life: EXPECTED });
});

test('status tells of deleted rows where no table has a policy', async () => {
  const other = await startLocalCluster({ code: '1+1' });
  const job = await connect(other.address);
  const plain = await job.createTable({ name: 'plain', dim: DIM });
  await plain.push(keysFrom(0, 10), new Float32Array(10 * DIM).fill(1));
  await plain.delete(keysFrom(0, 3));
  const { stdout } = await kintsugi(['status', '--scheduler', other.address]);
  const { stdout: json } = await kintsugi(['status', '--json', '--scheduler', other.address]);
  await job.close();
  await other.close();
  expect(stdout).toMatch(/^plain +all +0 +0 +0 +0 +3 +0$/m);
  expect(JSON.parse(json).tables).toMatchObject([{ name: 'plain', life: { deleted: 3 } }]);
});

test('the report of a run tells them', async () => {
  const { tables } = endOf(await client.observe());
  expect(tables.map(({ name }) => name).sort()).toEqual(['items', 'plain']);
  const none = { expired: 0, rare: 0, faint: 0, displaced: 0, refused: 0 };
  expect(tables).toContainEqual({ name: 'plain', rows: 7, ...none, deleted: 3 });
  expect(tables).toContainEqual({ name: 'items', rows: 64, ...EXPECTED });
  expect(lifeText(EXPECTED)).toBe('30 expired, 20 below frequency, 5 deleted, 25 gradients not admitted');
});

test('metrics tell them with table and reason', async () => {
  const found = new Map<string, number>();
  for (const { address } of (await client.status()).nodes) {
    const text = await (await fetch(`http://${address}/metrics`)).text();
    for (const line of text.split('\n')) {
      const match = /^(kintsugi_table_\w+_total)\{table="(\w+)",reason="(\w+)".*\} (\d+)$/.exec(line);
      if (!match) continue;
      const series = match.slice(1, 4).join(' ');
      found.set(series, (found.get(series) ?? 0) + Number(match[4]));
    }
  }
  const removed = 'kintsugi_table_removed_rows_total';
  expect(Object.fromEntries(found)).toMatchObject({
    [`${removed} items expired`]: 30,
    [`${removed} items below_frequency`]: 20,
    [`${removed} items deleted`]: 5,
    [`${removed} plain deleted`]: 3,
    'kintsugi_table_dropped_gradients_total items not_admitted': 25,
  });
});

test('series of tables are bounded: further ones are one series', async () => {
  const { telemetry } = (await client.observe()).nodes[0]!;
  const life: LifeCounts = { expired: 1, rare: 2, faint: 0, displaced: 5, deleted: 3, refused: 4 };
  const tables = Array.from({ length: 130 }, (_, i) => ({
    ...{ name: `t${i}`, rows: 0, pulledRows: 0, pushedRows: 0, life },
  }));
  const readings = psReadings({ ...telemetry, tables }, {
    map: client.clusterMap,
  } as Parameters<typeof psReadings>[1]);
  const removed = readings.kintsugi_table_removed_rows_total as [{ table: string; reason: string }, number][];
  expect(removed).toHaveLength(101 * 5);
  expect(removed.at(-1)).toEqual([{ table: '(others)', reason: 'deleted' }, 90]);
});

test('counts stay on the PS that made them when their shards move', async () => {
  await ps({ scheduler: cluster.address, name: 'more' });
  await statusWhere(client, 'a PS that has joined', ({ scaling }) =>
    scaling.changes.some(({ state, shardsMoved }) => state === 'done' && shardsMoved > 0),
  );
  await allSayIt();
});
