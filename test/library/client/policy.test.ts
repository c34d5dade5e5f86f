// Tables with a policy in real jobs: rows that go by themselves and rows that are not admitted yet, against a
// plain model, through losses of PS, checkpoints, a restore with another code, and replicas.
import { expect, it, onTestFinished } from 'vitest';
import { poolsFor } from '../../../src/core/placement/job.js';
import { loadNative } from '../../../src/engine/native.js';
import { parsedPolicy, policyText, type TablePolicy } from '../../../src/engine/policies.js';
import { policyProblem } from '../../../src/engine/policy-checks.js';
import type { Client } from '../../../src/library/client/client.js';
import type { Table } from '../../../src/library/client/options.js';
import { setSavePlan } from '../../../src/library/tools/checkpoints.js';
import { digest } from '../../../src/library/tools/digest.js';
import { load } from '../../../src/library/tools/load.js';
import { checkParity } from '../../../src/library/tools/parity.js';
import { listTables } from '../../../src/library/tools/tables.js';
import { shardCount } from '../../../src/protocol/map.js';
import { startReplica } from '../../../src/roles/replica/replica.js';
import { Random } from '../../../src/sim/random.js';
import { openPlace } from '../../../src/stores/checkpoint/open.js';
import { verifyCheckpoint } from '../../../src/stores/checkpoint/verify.js';
import {
  COUNTING,
  client,
  cluster,
  firstKeys,
  keysIn,
  keysOf,
  noticed,
  ps,
  redundant,
  rejection,
  scheduler,
  silent,
  statusWhere,
  temporaryDirectory,
} from '../../roles/support.js';

const KEYS = 60;
const DIM = COUNTING.dim;
const native = loadNative();

interface ModelRow {
  value: number;
  last: number;
  sightings: number;
}

/** A table whose rows add their gradients: what it holds is a map of each shard, with a clock. */
class PlainTable {
  private readonly shardOf = new Map<bigint, number>();
  private readonly clocks: number[];
  readonly rows = new Map<bigint, ModelRow>();
  /** Keys without a row, and how often they were seen. */
  private readonly waiting = new Map<bigint, number>();

  constructor(
    private readonly policy: TablePolicy,
    shards: number,
  ) {
    const keys = firstKeys(KEYS);
    const { order, starts } = native.partition(keys, shards);
    for (let shard = 0; shard < shards; shard++)
      for (let i = starts[shard]!; i < starts[shard + 1]!; i++) this.shardOf.set(keys[order[i]!]!, shard);
    this.clocks = new Array<number>(shards).fill(0);
  }

  push(keys: readonly bigint[], values: readonly number[]): void {
    const clocks = [...this.clocks];
    for (const key of keys) clocks[this.shardOf.get(key)!] = this.clocks[this.shardOf.get(key)!]! + 1;
    for (const key of new Set(keys)) {
      const waited = this.policy.bloom && !this.alive(key) ? (this.waiting.get(key) ?? 0) : 0;
      const times = keys.filter((each) => each === key).length;
      if (this.policy.bloom && !this.alive(key) && waited + times < this.policy.bloom.sightings) {
        this.waiting.set(key, waited + times);
        continue;
      }
      this.waiting.delete(key);
      const before = this.alive(key) ?? { value: 0, last: 0, sightings: 0 };
      const mine = keys.flatMap((each, i) => (each === key ? [values[i]!] : []));
      const sightings = before.sightings + waited + mine.length;
      const isAdmitted = sightings >= (this.policy.counter ?? 0);
      const sum = isAdmitted ? mine.reduce((a, b) => a + b, 0) : 0;
      this.rows.set(key, { value: before.value + sum, last: clocks[this.shardOf.get(key)!]!, sightings });
    }
    for (const [shard, clock] of clocks.entries()) this.clocks[shard] = clock;
  }

  ageOf(key: bigint, { last }: ModelRow): number {
    return this.clocks[this.shardOf.get(key)!]! - last;
  }

  alive(key: bigint): ModelRow | undefined {
    const row = this.rows.get(key);
    if (!row) return undefined;
    const { ttl = Infinity, minFrequency, l2Below } = this.policy;
    const age = this.ageOf(key, row);
    if (l2Below && age > l2Below.ttl && Math.abs(row.value) * Math.sqrt(DIM) < l2Below.norm) return undefined;
    const isRare = minFrequency && row.sightings < minFrequency.sightings;
    return age > (isRare ? Math.min(ttl, minFrequency.ttl) : ttl) ? undefined : row;
  }
}

async function compare(job: Client, table: Table, model: PlainTable): Promise<void> {
  const keys = [...firstKeys(KEYS)];
  const [rows] = await job.pullFull([{ table, keys: BigUint64Array.from(keys) }]);
  const width = job.rowWidth(table.spec);
  const words = new Uint32Array(rows!.buffer, rows!.byteOffset, rows!.length);
  const found = keys.map((key, i) => {
    const at = i * width;
    return [key, rows![at], words[at + width - 2], words[at + width - 1]];
  });
  const expected = keys.map((key) => {
    const row = model.alive(key);
    return [key, row?.value ?? 0, row ? model.ageOf(key, row) : 0, row?.sightings ?? 0];
  });
  expect(found).toEqual(expected);
  expect(await keysIn(job, table.name)).toEqual(keys.filter((key) => model.alive(key)));
}

async function pushSome(random: Random, table: Table, model: PlainTable): Promise<void> {
  // Few keys are seen often, and most of them seldom.
  const keys = Array.from({ length: 1 + random.below(6) }, () =>
    BigInt(random.chance(0.5) ? random.below(8) : random.below(KEYS)),
  );
  const values = keys.map(() => 1 + random.below(5));
  await table.push(
    BigUint64Array.from(keys),
    Float32Array.from(values.flatMap((value) => new Array<number>(DIM).fill(value))),
  );
  model.push(keys, values);
}

it.each<TablePolicy>([
  { ttl: 7 },
  { minFrequency: { sightings: 3, ttl: 4 } },
  { counter: 2, ttl: 9, minFrequency: { sightings: 4, ttl: 3 } },
  { ttl: 9, l2Below: { norm: 15, ttl: 4 } },
  { bloom: { sightings: 3, capacity: 4000, error: 1e-5 }, ttl: 9 },
])('rows are those of a plain model, also when PS die: %j', async (policy) => {
  const running = await cluster({ code: '2+1', ps: 3, groups: 2 });
  const job = await client(running.address);
  const table = await job.createTable({ name: 'items', ...COUNTING, policy });
  const model = new PlainTable(policy, shardCount(job.clusterMap.pools[0]!));
  const random = new Random(policyText(policy).length);
  for (const index of [0, 1, 2]) {
    for (let i = 0; i < 60; i++) await pushSome(random, table, model);
    await compare(job, table, model);
    await running.kill(index);
    await noticed(job, `ps-${index}`);
    for (let i = 0; i < 20; i++) await pushSome(random, table, model);
    await compare(job, table, model);
    await running.restart(index);
    await redundant(job, 3);
    await compare(job, table, model);
  }
  expect(await checkParity(job)).toMatchObject({ blocksUnprotected: 0, mismatched: 0 });
});

it('a job that is restored with another code goes on with the lives of rows', async () => {
  const policy = { counter: 2, ttl: 9 };
  const before = await cluster({ code: '2+1', ps: 3, groups: 2 });
  const job = await client(before.address);
  const table = await job.createTable({ name: 'items', ...COUNTING, policy });
  const model = new PlainTable(policy, 4);
  const random = new Random(5);
  const url = temporaryDirectory();
  await setSavePlan(job, 'checkpoint', { url, everyMs: 0, keep: 100, rate: 0, kind: 'full job' });
  const numbers = [1, 2, 3];
  for (const number of numbers) {
    for (let i = 0; i < 40; i++) await pushSome(random, table, model);
    const alive = [...model.rows.keys()].filter((key) => model.alive(key)).length;
    expect(await job.checkpoint()).toMatchObject({ number, rows: alive });
  }
  const place = await openPlace(url);
  for (const number of numbers) expect(await verifyCheckpoint(place, number)).toMatchObject({ bad: [] });
  const expected = await digest(job);
  await job.close();
  await before.close();
  // Other shards, with clocks of their own: ages are the same.
  const running = await scheduler({ nodes: 4, pools: poolsFor({ k: 3, r: 1 }, 4), restore: { url } });
  for (const name of ['a', 'b', 'c', 'd']) await ps({ scheduler: running.address, name });
  const after = await client(running.address);
  expect(shardCount(after.clusterMap.pools[0]!)).not.toBe(4);
  expect(after.table('items').spec.policy).toEqual(policy);
  expect(await digest(after)).toEqual(expected);
  // A program that gives whole rows gives their ages.
  const loaded = await client((await cluster({ code: 'none', ps: 1 })).address);
  await load(loaded, url);
  expect(await digest(loaded)).toEqual(expected);
});

it.each([
  ['as many shards', { k: 2, r: 1 }, 2],
  ['other shards', { k: 3, r: 1 }, 0],
])('keys that waited count on in a job that is restored in %s', async (_, code, groups) => {
  const policy = { bloom: { sightings: 3, capacity: 4000, error: 1e-5 } };
  const before = await cluster({ code: '2+1', ps: 3, groups: 2 });
  const job = await client(before.address);
  const table = await job.createTable({ name: 'items', ...COUNTING, policy });
  const model = new PlainTable(policy, 4);
  const random = new Random(11);
  const url = temporaryDirectory();
  await setSavePlan(job, 'checkpoint', { url, everyMs: 0, keep: 100, rate: 0, kind: 'full job' });
  for (let i = 0; i < 40; i++) await pushSome(random, table, model);
  await job.checkpoint();
  for (let i = 0; i < 20; i++) await pushSome(random, table, model);
  const alive = [...model.rows.keys()];
  await job.checkpoint();
  await job.close();
  await before.close();
  const pools = groups > 0 ? [{ name: 'embedding', ...code, groups }] : poolsFor(code, 4);
  const running = await scheduler({ nodes: 4, pools, restore: { url } });
  for (const name of ['a', 'b', 'c', 'd']) await ps({ scheduler: running.address, name });
  const after = await client(running.address);
  expect(shardCount(after.clusterMap.pools[0]!) === 4).toBe(groups > 0);
  for (let i = 0; i < 30; i++) await pushSome(random, after.table('items'), model);
  expect(await keysIn(after, 'items')).toEqual([...model.rows.keys()].sort((a, b) => (a < b ? -1 : 1)));
  expect(model.rows.size).toBeGreaterThan(alive.length);
  // In other shards the clocks are others.
  if (groups > 0) await compare(after, after.table('items'), model);
});

it('a replica does not serve what is gone', async () => {
  const running = await cluster({ code: '2+1', ps: 3 });
  const job = await client(running.address);
  const policy = { ttl: 3 };
  const table = await job.createTable({ name: 'items', ...COUNTING, policy });
  const model = new PlainTable(policy, shardCount(job.clusterMap.pools[0]!));
  const random = new Random(9);
  for (let i = 0; i < 30; i++) await pushSome(random, table, model);
  const replica = await startReplica({ scheduler: running.address, name: 'replica', log: silent });
  onTestFinished(() => replica.close());
  await statusWhere(job, 'a replica that has all', ({ replicas = [] }) =>
    replicas.some(({ shards, complete, lagMs }) => shards > 0 && complete === shards && lagMs < 1e6),
  );
  const reader = await client(running.address, { replica: true });
  for (let i = 0; i < 30; i++) await pushSome(random, table, model);
  const expected = [...firstKeys(KEYS)].flatMap((key) =>
    new Array<number>(DIM).fill(model.alive(key)?.value ?? 0),
  );
  for (;;) {
    const rows = await reader.table('items').pull(firstKeys(KEYS));
    if (rows.every((value, i) => value === expected[i])) break;
  }
});

const isFew = (rows: number) => rows < 400;

it('memory of rows that are gone is used again', async () => {
  const job = await client((await cluster({ code: '1+1', ps: 2 })).address);
  const table = await job.createTable({ name: 'items', ...COUNTING, policy: { ttl: 5 } });
  for (let step = 0; step < 400; step++) {
    const keys = BigUint64Array.from({ length: 10 }, (_, i) => BigInt(step * 10 + i));
    await table.push(keys, new Float32Array(10 * DIM).fill(1));
  }
  expect((await keysIn(job, 'items')).length).toBeLessThan(200);
  expect((await digest(job)).rows).toBe((await keysIn(job, 'items')).length);
  // Rows that are gone and not evicted yet are counted, too.
  expect((await listTables(job)).tables).toMatchObject([{ name: 'items', rows: expect.toSatisfy(isFew) }]);
});

it('a policy is written in one line', () => {
  for (const policy of [
    { ttl: 5 },
    { counter: 2 },
    { counter: 2, ttl: 9, minFrequency: { sightings: 4, ttl: 3 } },
    { ttl: 9, maxRows: 2 ** 40, memory: true as const },
    { l2Below: { norm: 0.1, ttl: 3 } },
    { l2Below: { norm: 2 ** 80, ttl: 3 } },
    { memory: true as const },
    { maxRows: 5, score: true as const },
    { bloom: { sightings: 3, capacity: 1000, error: 0.001 } },
    { probability: 0.25, ttl: 5 },
    { likely: 4 },
  ])
    expect(parsedPolicy(policyText(policy))).toEqual(policy);
  expect(parsedPolicy(' evict = ttl( 7 ) , admit=counter(2)')).toEqual({ ttl: 7, counter: 2 });
  expect(parsedPolicy('admit=bloom(2)')).toEqual({ bloom: { sightings: 2, capacity: 1e6, error: 0.01 } });
  expect(parsedPolicy('admit=bloom(2, 500, 1e-3)')).toMatchObject({ bloom: { capacity: 500, error: 0.001 } });
  for (const text of [
    '',
    'ttl(5)',
    'evict=ttl(5),',
    'evict=ttl(5),evict=ttl(6)',
    'evict=ttl(5,6)',
    'evict=ttl(x)',
    'evict=ttl(-1)',
    'admit=ttl(5)',
    'evict=minFrequency(3)',
    'evict=l2Below(3)',
    'admit=bloom',
    'admit=bloom(2,3,0.1,4)',
    'admit=probability(x)',
    'admit=probability()',
    'evict=memory(5)',
    'evict=score(5)',
    'admit=score',
    'evict=memory,evict=memory',
    'evict=maxRows',
    'evict=maxRows(5,6)',
    'evict=toString(5)',
    'evict=ttl(5) admit=counter(2)',
  ])
    expect(parsedPolicy(text), text).toBeUndefined();
});

it('a policy that says nothing, or nothing that is known, is refused', async () => {
  const job = await client((await cluster({ code: 'none', ps: 1 })).address);
  const refused: [policy: unknown, message: string][] = [
    [
      {},
      'a policy has at least one of ttl, minFrequency, l2Below, clock, keep, maxRows, memory, score, ' +
        'counter, bloom, probability, likely',
    ],
    [{ ttl: 0 }, 'policy: ttl must be an integer from 1 to 536870911'],
    [{ ttl: 1.5 }, 'policy: ttl must be an integer'],
    [{ ttl: '5' }, 'policy: ttl must be an integer'],
    [{ counter: 2 ** 29 }, 'policy: counter must be an integer'],
    [{ minFrequency: 3 }, 'policy: minFrequency must be an object of sightings, ttl'],
    [{ l2Below: { norm: 0, ttl: 3 } }, 'policy: l2Below.norm must be a positive float32'],
    [{ l2Below: { norm: 1e39, ttl: 3 } }, 'policy: l2Below.norm must be a positive float32'],
    [{ l2Below: { norm: '1', ttl: 3 } }, 'policy: l2Below.norm must be a positive float32'],
    [{ l2Below: { norm: 1 } }, 'policy: l2Below.ttl must be an integer'],
    [{ l2Below: { norm: 1, ttl: 1, x: 1 } }, 'policy: l2Below has no field "x"'],
    [{ minFrequency: { sightings: 3 } }, 'policy: minFrequency.ttl must be an integer'],
    [{ minFrequency: { sightings: 3, ttl: 1, x: 1 } }, 'policy: minFrequency has no field "x"'],
    [{ ttl: 5, rows: 7 }, 'a policy has no field "rows"'],
    [{ maxRows: 0 }, 'policy: maxRows must be an integer from 1 to 281474976710656'],
    [{ maxRows: 2 ** 48 + 1 }, 'policy: maxRows must be an integer'],
    [{ memory: false }, 'policy: memory must be true, or left out'],
    [{ memory: 1 }, 'policy: memory must be true, or left out'],
    [{ maxRows: 5, score: 1 }, 'policy: score must be true, or left out'],
    [{ score: true }, 'policy: score says which rows go for maxRows or memory: it needs one of them'],
    [{ score: true, ttl: 5, memory: undefined }, 'policy: score says which rows go for maxRows or memory'],
    [{ bloom: 2 }, 'policy: bloom must be an object of sightings, capacity, error'],
    [{ bloom: { sightings: 1 } }, 'policy: bloom.sightings must be an integer from 2 to 255'],
    [
      { bloom: { sightings: 2, capacity: 1 } },
      'policy: bloom.capacity must be an integer from 2 to 4294967295',
    ],
    [{ bloom: { sightings: 2, error: 0.6 } }, 'policy: bloom.error must be a number from 0.000001 to 0.5'],
    [{ bloom: { sightings: 2, x: 1 } }, 'policy: bloom has no field "x"'],
    [{ probability: 0 }, 'policy: probability must be a number from 1e-9 to 1'],
    [{ probability: '0.5' }, 'policy: probability must be a number'],
    [{ likely: 0 }, 'policy: likely must be an integer from 1'],
    [
      { likely: 2, counter: 2 },
      'a policy has one of counter, bloom, probability, likely, not counter and likely',
    ],
    [null, 'policy must'],
    [7, 'policy must be an object'],
  ];
  for (const [policy, message] of refused) {
    expect(policyProblem(policy)).toContain(message);
    const error = await rejection(job.createTable({ name: 'bad', dim: 2, policy: policy as never }));
    expect(error).toMatchObject({ code: 'BAD_ARGUMENT', message: expect.stringContaining(message) });
  }
  await job.createTable({ name: 'items', dim: 2, policy: { ttl: 5 } });
  await job.createTable({ name: 'items', dim: 2, policy: { ttl: 5 } });
  expect(await rejection(job.createTable({ name: 'items', dim: 2 }))).toMatchObject({
    code: 'TABLE_EXISTS',
    message: 'table "items" exists with policy {"ttl":5}, not none',
  });
  expect(job.rowWidth(job.table('items').spec)).toBe(6);
  expect(await keysIn(job, 'items')).toEqual([]);
  expect(await job.table('items').pull(keysOf(1))).toHaveLength(2);
});
