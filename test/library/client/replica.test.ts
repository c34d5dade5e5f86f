// Pulls of the library that replicas answer: whom it asks, and what it does when that one does not answer.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { KintsugiError } from '../../../src/common/errors.js';
import type { Client, ConnectOptions } from '../../../src/library/client/client.js';
import type { ReplicaAnswer } from '../../../src/library/client/options.js';
import {
  type ReplicaRoleOptions,
  type RunningReplica,
  startReplica,
} from '../../../src/roles/replica/replica.js';
import { COUNTING, client, cluster, firstKeys, rejection, silent, statusWhere } from '../../roles/support.js';

const ROWS = 200;

async function job() {
  const running = await cluster({ code: '2+1', ps: 3, groups: 4, token: 'a secret' });
  const writer = await client(running.address, { token: 'a secret' });
  await writer.createTables([
    { name: 'items', ...COUNTING },
    { name: 'users', ...COUNTING, pool: 'mirrored' },
  ]);
  const push = async (value: number) => {
    const gradients = new Float32Array(ROWS * 2).fill(value);
    for (const table of ['items', 'users']) await writer.push([{ table, keys: firstKeys(ROWS), gradients }]);
  };
  await push(1);
  const follow = async (options: Partial<ReplicaRoleOptions> = {}): Promise<RunningReplica> => {
    const replica = await startReplica({
      ...{ scheduler: running.address, name: 'replica', token: 'a secret', log: silent },
      ...options,
    });
    onTestFinished(() => replica.close());
    await statusWhere(writer, 'a replica that has all', ({ replicas = [] }) =>
      replicas.some(({ id, shards, complete, lagMs }) => {
        return id === replica.id && shards > 0 && complete === shards && lagMs < 1e6;
      }),
    );
    return replica;
  };
  const reader = (replica: ConnectOptions['replica']) =>
    client(running.address, { token: 'a secret', replica });
  return { running, writer, push, follow, reader };
}

const ALL = [
  { table: 'items', keys: firstKeys(ROWS) },
  { table: 'users', keys: firstKeys(ROWS) },
];

async function pull(from: Client): Promise<{ rows: Float32Array[]; answer: ReplicaAnswer }> {
  let answer: ReplicaAnswer | undefined;
  const rows = await from.pull(ALL, {
    onAnswer: (it) => {
      answer = it;
    },
  });
  return { rows, answer: answer! };
}

/** Pulls until the rows are these. A replica that has just come is not known at once. */
async function sees(
  from: Client,
  value: number,
  wanted = (_: ReplicaAnswer) => true,
): Promise<ReplicaAnswer> {
  for (;;) {
    const pulled = await pull(from).catch((error: KintsugiError) => {
      if (error.code !== 'STALE_REPLICA') throw error;
      return undefined;
    });
    const same = pulled?.rows.every((rows) => rows.every((found) => found === value));
    if (pulled && same && wanted(pulled.answer)) return pulled.answer;
  }
}

describe('a client that reads from replicas', () => {
  it('gets rows of states that it is told of', async () => {
    const { push, follow, reader } = await job();
    await follow();
    const from = await reader(true);
    const { answer } = await pull(from);
    // Eight shards of one pool, three of the other.
    expect(answer.states.length).toBe(11);
    expect(answer.lagMs).toBeGreaterThanOrEqual(0);
    expect(new Set(answer.states.map(({ pool }) => pool))).toEqual(new Set(['embedding', 'mirrored']));
    const before = await sees(from, 1);
    await push(2);
    const after = await sees(from, 3);
    const position = (of: ReplicaAnswer) => of.states.reduce((sum, state) => sum + state.position, 0);
    expect(position(after)).toBeGreaterThan(position(before));
    // Everything else is as with any client.
    await from.push([{ table: 'items', keys: firstKeys(1), gradients: new Float32Array(2) }]);
    const [row] = await from.pullFull([{ table: 'items', keys: firstKeys(1) }]);
    expect(row).toEqual(Float32Array.of(3, 3));
  });

  it('has what it asks for in place of initial values', async () => {
    const { follow, reader } = await job();
    await follow();
    const [initial, given] = await Promise.all([reader(true), reader({ missing: -7 })]);
    const keys = BigUint64Array.of(1n, 1_000_000n);
    expect(await initial.table('items').pull(keys)).toEqual(Float32Array.of(1, 1, 0, 0));
    expect(await given.table('items').pull(keys)).toEqual(Float32Array.of(1, 1, -7, -7));
  });

  it('asks each of those that share the tables, and another one when one is gone', async () => {
    const { follow, reader } = await job();
    const shares = [await follow({ share: [1, 2] }), await follow({ share: [2, 2] })];
    const from = await reader(true);
    await sees(from, 1);
    await shares[1]!.close();
    expect((await rejection(from.pull(ALL))).code).toBe('STALE_REPLICA');
    await follow();
    await sees(from, 1);
    await shares[0]!.close();
    await sees(from, 1);
  });

  it('asks owners for what no replica answers, if it may', async () => {
    const { push, follow, reader } = await job();
    const [strict, lenient] = await Promise.all([reader(true), reader({ owners: true })]);
    expect((await rejection(strict.pull(ALL))).code).toBe('STALE_REPLICA');
    expect((await sees(lenient, 1)).states).toEqual([]);
    await follow({ tables: ['items'] });
    await push(1);
    const { states } = await sees(lenient, 2, (answer) => answer.states.length > 0);
    expect(new Set(states.map(({ pool }) => pool))).toEqual(new Set(['embedding']));
    await strict.pull([ALL[0]!]);
    expect((await rejection(strict.pull(ALL))).message).toContain('users');
  });

  it('refuses rows that are older than it allows, whatever the replica does', async () => {
    const { follow, reader } = await job();
    await follow();
    const from = await reader({ maxLagMs: 0 });
    // A question takes time, so no state is known to be of this very moment.
    expect((await rejection(from.pull(ALL))).code).toBe('STALE_REPLICA');
    const instead = await reader({ maxLagMs: 0, owners: true });
    expect((await sees(instead, 1)).lagMs).toBe(0);
  });

  it('says what is wrong with a request', async () => {
    const { running, follow, reader } = await job();
    await follow();
    const from = await reader(true);
    const keys = BigUint64Array.of(2n ** 64n - 1n);
    expect((await rejection(from.pull([{ table: 'items', keys }]))).code).toBe('KEY_RESERVED');
    expect((await rejection(from.pull([{ table: 'none', keys }]))).code).toBe('UNKNOWN_TABLE');
    for (const replica of [{ maxLagMs: -1 }, { missing: 'x' as never }, { other: 1 } as never])
      expect((await rejection(client(running.address, { replica }))).code).toBe('BAD_ARGUMENT');
  });
});
