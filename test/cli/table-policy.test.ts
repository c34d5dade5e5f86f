/**
 * The policy of a table changes while a client trains, in a job of programs: with and without kills at that
 * moment all rows are the same, and what was gone stays gone.
 */
import { expect, test } from 'vitest';
import { type Client, digest, type Table } from '../../src/index.js';
import { Random } from '../../src/sim/random.js';
import { redundant, rejection } from '../roles/support.js';
import { type SmallJob, startSmallJob } from './small-job.js';
import { kintsugi } from './support.js';

const DIM = 2;
/** So many rows that they are gone together wait for pushes to evict them. */
const MANY = 20_000;

const keysFrom = (from: number, count: number) =>
  BigUint64Array.from({ length: count }, (_, i) => BigInt(from + i));
const push = (table: Table, keys: BigUint64Array) =>
  table.push(keys, new Float32Array(keys.length * DIM).fill(0.5));

/** Pushes of some of a few hundred keys, and of others that all shards see. */
async function train(table: Table, random: Random, steps: number): Promise<void> {
  for (let step = 0; step < steps; step++) {
    const some = Array.from({ length: 40 }, () => BigInt(1000 + random.below(400)));
    await push(table, BigUint64Array.from([...keysFrom(0, 100), ...some]));
  }
}

/** Kills the PS that owns the first data shard. */
function killOwner({ client, nodes }: SmallJob): void {
  const { groups, nodes: known } = client.clusterMap;
  const { name } = known.find(({ id }) => id === groups[0]!.data[0]!.node)!;
  nodes[Number(name.slice('ps-'.length))]!.process.kill('SIGKILL');
}

async function keysOf(client: Client): Promise<number[]> {
  const found: number[] = [];
  for await (const { keys } of client.scan('items', { select: 'keys' })) found.push(...[...keys].map(Number));
  return found;
}

async function story(kills: boolean): Promise<{ sha256: string; job: SmallJob; table: Table }> {
  const job = await startSmallJob(5);
  const { client, to } = job;
  const random = new Random(5);
  const policy = { ttl: 6, minFrequency: { sightings: 2, ttl: 4 } };
  const table = await client.createTable({ name: 'items', dim: DIM, policy });
  await train(table, random, 20);
  await push(table, keysFrom(50_000, MANY));
  await train(table, random, 6);
  expect(Math.max(...(await keysOf(client)))).toBeLessThan(50_000);
  if (kills) killOwner(job);
  const longer = 'admit=counter(2),evict=ttl(40)';
  const set = await kintsugi(['table', 'set', 'items', '--table-policy', longer, ...to]);
  expect(set).toMatchObject({ code: 0 });
  expect(set.stdout).toBe(
    `table items: policy evict=ttl(6),evict=minFrequency(2,4) -> admit=counter(2),evict=ttl(40)\n`,
  );
  // Nobody has pushed since: rows that wait for their eviction are gone all the same.
  expect(Math.max(...(await keysOf(client)))).toBeLessThan(50_000);
  await train(table, random, 20);
  expect(Math.max(...(await keysOf(client)))).toBeLessThan(50_000);
  if (kills) await redundant(client, 4);
  await table.set({ policy: { ttl: 3, counter: 3 } });
  if (kills) killOwner(job);
  await train(table, random, 10);
  await push(table, keysFrom(1000, 400));
  return { sha256: (await digest(client)).sha256, job, table };
}

test('all rows are the same with and without kills at that moment', async () => {
  const [quiet, killed] = [await story(false), await story(true)];
  expect(killed.sha256).toBe(quiet.sha256);
  const { table, job } = killed;
  expect(table.spec).toMatchObject({ policy: { ttl: 3, counter: 3 }, policyVersion: 3 });
  const { stdout } = await kintsugi(['table', 'show', 'items', ...job.to]);
  expect(stdout).toMatch(/^policy +admit=counter\(3\),evict=ttl\(3\), version 3$/m);
  // A program that is started again has the policy of the creation.
  const again = { name: 'items', dim: DIM, policy: { ttl: 6, minFrequency: { sightings: 2, ttl: 4 } } };
  expect((await job.client.createTable(again)).spec.policy).toEqual({ ttl: 3, counter: 3 });
  const other = rejection(job.client.createTable({ ...again, policy: { ttl: 7 } }));
  expect(await other).toMatchObject({ code: 'TABLE_EXISTS' });
}, 180_000);

test('a table without a policy takes none, and nothing is no change', async () => {
  const { client, to } = await startSmallJob();
  await client.createTable({ name: 'plain', dim: DIM });
  const refused = await kintsugi(['table', 'set', 'plain', '--table-policy', 'evict=ttl(5)', ...to]);
  expect(refused.code).not.toBe(0);
  expect(refused.stderr).toContain('a table has a policy from its creation on');
  const nothing = await kintsugi(['table', 'set', 'plain', ...to]);
  expect(nothing.code).not.toBe(0);
  expect(nothing.stderr).toContain('nothing is to change');
  const wrong = await kintsugi(['table', 'set', 'plain', '--table-policy', 'evict=later(5)', ...to]);
  expect(wrong.code).not.toBe(0);
  expect(wrong.stderr).toContain('--table-policy');
});
