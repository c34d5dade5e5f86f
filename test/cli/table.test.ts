/** `kintsugi table list` and `show`: pages, sizes and parameters of the tables of a job. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Client, connect, listTables, showTable, type TablePage } from '../../src/index.js';
import { type LocalCluster, startLocalCluster } from '../../src/roles/cluster.js';
import { rejection } from '../roles/support.js';
import { kintsugi } from './support.js';

const MANY = 250;
let cluster: LocalCluster;
let client: Client;

beforeAll(async () => {
  cluster = await startLocalCluster({ code: '2+1', ps: 3 });
  client = await connect(cluster.address, { audit: true });
  await client.createTables(
    Array.from({ length: MANY }, (_, i) => ({ name: `t-${String(i).padStart(3, '0')}`, dim: 4 })),
  );
  const schedule = { kind: 'cosine', steps: 100 } as const;
  const items = await client.createTable({
    name: 'items',
    dim: 5,
    optimizer: { kind: 'sgd', lr: 0.25, clipNorm: 2, schedule },
    initializer: { kind: 'uniform', low: -0.5, high: 0.5 },
    seed: 7,
  });
  const keys = BigUint64Array.from({ length: 1500 }, (_, i) => BigInt(i));
  await items.push(keys, new Float32Array(1500 * 5).fill(1));
});
afterAll(async () => {
  await client?.close();
  await cluster?.close();
});

const run = (...args: string[]) => kintsugi(['table', ...args, '--scheduler', cluster.address]);

test('show: the parameters of a table, its rows, bytes and shards', async () => {
  const { stdout, code, stderr } = await run('show', 'items');
  expect([code, stderr]).toEqual([0, '']);
  const pairs = new Map(stdout.split('\n').map((line) => [line.slice(0, 12).trim(), line.slice(13)]));
  expect(Object.fromEntries(pairs)).toMatchObject({
    ...{ table: 'items', pool: 'embedding', dim: '5', seed: '7', rows: '1,500' },
    initializer: 'uniform low=-0.5 high=0.5',
  });
  for (const part of ['sgd ', 'lr=0.25', 'clipNorm=2', 'schedule=(cosine ', 'steps=100'])
    expect(pairs.get('optimizer')).toContain(part);
  const { optimizer, ...json } = JSON.parse((await run('show', 'items', '--json')).stdout);
  expect(optimizer).toEqual(client.table('items').spec.optimizer);
  const [pool] = client.clusterMap.pools;
  expect(json).toMatchObject({ name: 'items', rows: 1500, shards: pool!.groups * pool!.k, missing: [] });
  const stride = Math.ceil((client.rowWidth(client.table('items').spec) * 4) / 16) * 16;
  expect(json.bytes).toBe(1500 * stride);
  expect((await showTable(client, 'items')).table).toEqual({ optimizer, ...json, missing: undefined });
});

test('list: every table once, over pages, in the order of names, without those of audits', async () => {
  const names: string[] = [];
  let after: string[] = [];
  for (let pages = 1; ; pages++) {
    const { stdout } = await run('list', '--limit', '100', '--json', ...after);
    const { tables, total, next } = JSON.parse(stdout) as TablePage;
    expect(total).toBe(MANY + 1);
    names.push(...tables.map(({ name }) => name));
    if (next === undefined) {
      expect(pages).toBe(3);
      break;
    }
    expect(next).toBe(names.at(-1));
    after = ['--after', next];
  }
  expect(names).toEqual([...new Set(names)].sort());
  expect(names).toHaveLength(MANY + 1);
  expect(names.filter((name) => name.startsWith('__'))).toEqual([]);
});

test('list for people says how many there are, and the command for the next ones', async () => {
  const { stdout } = await run('list', '--limit', '2');
  const lines = stdout.trimEnd().split('\n');
  expect(lines).toHaveLength(4);
  expect(lines[1]).toMatch(/^items +embedding +sgd lr=0\.25 .* uniform low=-0\.5 high=0\.5 +5 +\d+ +1,500 /);
  const command = `kintsugi table list --after t-000 --limit 2 --scheduler ${cluster.address}`;
  expect(lines[3]).toBe(`2 of ${MANY + 1} tables; the next ones: ${command}`);
  expect((await run('list', '--after', 'z')).stdout).toBe(`no name of its ${MANY + 1} tables is above "z"\n`);
});

test('an unknown name is an error with the names near it', async () => {
  const { code, said } = await run('show', 'Itmes');
  const text = 'no table "Itmes" exists in this job; near it: "items"';
  expect([code, said]).toEqual([2, [`kintsugi: UNKNOWN_TABLE: ${text}`]]);
  expect(await rejection(showTable(client, 'Itmes'))).toMatchObject({ code: 'UNKNOWN_TABLE', message: text });
  expect(() => client.table('t-00')).toThrow('near it: "t-000", "t-001", "t-002"');
  expect(() => client.table('something else')).toThrow(/exists in this job$/);
  expect(() => client.table('__audit/embeddin')).toThrow(/exists in this job$/);
});

test('bad pages are refused', async () => {
  expect(await run('list', '--limit', '0')).toMatchObject({ code: 2 });
  expect(await rejection(listTables(client, { limit: 0.5 }))).toMatchObject({ code: 'BAD_ARGUMENT' });
  expect(await rejection(listTables(client, { after: 3 as never }))).toMatchObject({ code: 'BAD_ARGUMENT' });
  expect(await rejection(listTables(client, { from: 3 } as never))).toMatchObject({ code: 'BAD_ARGUMENT' });
});
