/** Policies that are set: which tables take one, who may have which, and what stays. */
import { afterEach, expect, it } from 'vitest';
import type { TablePolicy } from '../../../src/engine/policies.js';
import { MAX_EARLIER } from '../../../src/protocol/settings.js';
import { Cluster, tableSpec } from '../harness.js';
import { mapsTo } from '../packets.js';

let cluster: Cluster;
afterEach(() => cluster.close());

const FIRST: TablePolicy = { ttl: 5, counter: 2 };
let number = 0;
const start = () => {
  const tables = [{ ...tableSpec('t'), policy: FIRST }, tableSpec('plain')];
  cluster = new Cluster({ k: 2, r: 1, clients: 1, tables });
};
const ask = (message: Record<string, unknown>) => {
  const asked = { ...message, id: number++ } as never;
  cluster.stepScheduler({ kind: 'message', from: cluster.client.id, role: 'client', message: asked });
  cluster.settle();
  cluster.advance(600);
  return number - 1;
};
const set = (changes: Record<string, unknown>, name = 't') => {
  const id = ask({ t: 'setTable', name, ...changes });
  return cluster.sent('tableSet').find((each) => each.message.id === id)?.message;
};
const create = (policy: TablePolicy | undefined) => {
  const id = ask({ t: 'createTables', specs: [{ ...tableSpec('t'), ...(policy && { policy }) }] });
  const answer = cluster.sent('tablesCreated').find((each) => each.message.id === id)!.message;
  return answer.message ?? answer.tables[0]!.policy;
};
const table = () => cluster.map.tables.find(({ name }) => name === 't')!;

it('are durable, have a version, and are told', () => {
  start();
  expect(set({ policy: { ttl: 9 } })).toMatchObject({ epoch: cluster.map.epoch });
  const held = cluster.hold(mapsTo(cluster, 1));
  expect(set({ policy: { ttl: 20, memory: true } })).toBeUndefined();
  held.release();
  cluster.advance(600);
  expect(cluster.sent('tableSet').at(-1)!.message.code).toBeUndefined();
  expect(set({ policy: FIRST })?.code).toBeUndefined();
  // A policy that is there already changes nothing.
  expect(set({ policy: { counter: 2, ttl: 5 } })?.code).toBeUndefined();
  const now = {
    policy: FIRST,
    policyVersion: 4,
    earlierPolicies: [FIRST, { ttl: 9 }, { ttl: 20, memory: true }],
  };
  expect(table()).toMatchObject(now);
  expect(cluster.eventsNamed('table.set')).toEqual([
    { table: 't', policy: 'evict=ttl(9)', was: 'admit=counter(2),evict=ttl(5)' },
    { table: 't', policy: 'evict=ttl(20),evict=memory', was: 'evict=ttl(9)' },
    { table: 't', policy: 'admit=counter(2),evict=ttl(5)', was: 'evict=ttl(20),evict=memory' },
  ]);
  cluster.restartScheduler();
  expect(table()).toMatchObject(now);
});

it('stay when a worker comes again with one that the table had before', () => {
  start();
  set({ policy: { ttl: 9 } });
  set({ policy: { ttl: 30 } });
  for (const policy of [FIRST, { ttl: 9 }, { ttl: 30 }]) expect(create(policy)).toEqual({ ttl: 30 });
  expect(create({ ttl: 31 })).toBe('table "t" exists with policy {"ttl":30}, not {"ttl":31}');
  expect(create(undefined)).toBe('table "t" exists with policy {"ttl":30}, not none');
  expect(table().policyVersion).toBe(3);
});

it('are none of a table without one, and must be valid', () => {
  start();
  const refused = (policy: unknown, name = 't') => {
    const { code, message } = set({ policy }, name) ?? {};
    return [code, message];
  };
  expect(refused({ ttl: 9 }, 'plain')).toEqual([
    'BAD_ARGUMENT',
    'table "plain": it has no policy, and its rows have no words for one: a table has a policy from its ' +
      'creation on',
  ]);
  expect(refused({ ttl: 0 })[1]).toMatch('ttl must be an integer from 1');
  expect(refused({})[1]).toMatch('a policy has at least one of');
  expect(refused({ maxRows: 9, score: true })).toEqual([
    'BAD_ARGUMENT',
    'table "t": its rows have no word for a score: a table has score from its creation on, or never',
  ]);
  expect(set({})?.message).toBe('table "t": nothing is to change: it takes lr, clipNorm, schedule, policy');
  expect(refused({ ttl: 9 }, 'other')[0]).toBe('UNKNOWN_TABLE');
  expect(table()).toMatchObject({ policy: FIRST });
  expect(table().policyVersion).toBeUndefined();
});

it('come together with other settings, or none of both does', () => {
  start();
  expect(set({ lr: -2, policy: { ttl: 0 } })?.code).toBe('BAD_ARGUMENT');
  expect(table().optimizer.lr).toBe(-1);
  expect(set({ lr: -2, policy: { ttl: 7 } })?.code).toBeUndefined();
  expect(table()).toMatchObject({ optimizer: { lr: -2 }, policy: { ttl: 7 }, earlierRates: [-1] });
});

it('of which there were many are not all remembered', () => {
  start();
  for (let ttl = 10; ttl < 10 + MAX_EARLIER + 3; ttl++) set({ policy: { ttl } });
  expect(table().earlierPolicies).toHaveLength(MAX_EARLIER);
  expect(table().policyVersion).toBe(MAX_EARLIER + 4);
  expect(create(FIRST)).toEqual({ ttl: 10 + MAX_EARLIER + 2 });
  expect(create({ ttl: 10 + MAX_EARLIER + 1 })).toMatch('exists with policy');
});

it('a table whose filter no shard could have is refused, and nobody dies of it', () => {
  start();
  const policy = { bloom: { sightings: 2, capacity: 2 ** 32 - 1, error: 1e-6 } };
  const id = ask({ t: 'createTables', specs: [{ ...tableSpec('big'), dim: 1, policy }] });
  const answer = cluster.sent('tablesCreated').find((each) => each.message.id === id)!.message;
  expect(answer).toMatchObject({ code: 'BAD_ARGUMENT', message: expect.stringContaining('bloom needs') });
  expect(cluster.map.tables.some(({ name }) => name === 'big')).toBe(false);
});

it('have no filter that is larger than the memory of a PS', () => {
  cluster = new Cluster({ k: 2, r: 1, clients: 1, tables: [tableSpec('plain')], memoryLimit: 8 << 20 });
  cluster.advance(2000);
  const bloom = { sightings: 2, capacity: 100_000, error: 0.01 };
  const answered = (capacity: number) => {
    const specs = [{ ...tableSpec('t'), policy: { bloom: { ...bloom, capacity } } }];
    const id = ask({ t: 'createTables', specs });
    return cluster.sent('tablesCreated').find((each) => each.message.id === id)!.message;
  };
  expect(answered(10_000_000)).toMatchObject({
    code: 'MEMORY_LIMIT',
    message: expect.stringMatching(/table "t": policy: bloom needs \d+ MiB of a PS, whose --memory is 8 MiB/),
  });
  expect(cluster.map.tables).toHaveLength(1);
  expect(answered(100_000).code).toBeUndefined();
  expect(cluster.map.tables).toHaveLength(2);
});
