import { describe, expect, test } from 'vitest';
import type { Client, Table } from '../../../src/library/client/client.js';
import { internalsOf } from '../../../src/library/client/connected.js';
import { concatenate, countUpTo, keysInOrder, PAGE_KEYS } from '../../../src/library/client/scan.js';
import { drain } from '../../../src/library/tools/scaling.js';
import { keysOf, startJob } from '../tools/support.js';

/** A table of rows that hold their number: dim 1, plain sums. */
async function filled(client: Client, count: number, name = 'items'): Promise<Table> {
  const spec = {
    optimizer: { kind: 'momentum', lr: 1, momentum: 0 },
    initializer: { kind: 'zeros' },
  } as const;
  const table = await client.createTable({ name, dim: 1, ...spec });
  const gradients = Float32Array.from({ length: count }, (_, i) => -i - 1);
  await table.push(keysOf(count), gradients);
  return table;
}

const numbers = (count: number) => new Map([...keysOf(count)].map((key, i) => [key, i + 1]));

/** Rows of a scan by key; a key that comes twice is an error. */
class Seen {
  readonly values = new Map<bigint, number>();

  add({ keys, rows }: { keys: BigUint64Array; rows: Float32Array }): void {
    for (const [i, key] of keys.entries()) {
      expect(this.values.has(key)).toBe(false);
      this.values.set(key, rows[i]!);
    }
  }
}

describe('a scan', () => {
  test('gives every row once, with what is selected', async () => {
    const { client } = await startJob({ ps: 3, code: '2+1' });
    const table = await filled(client, 3000);
    const seen = new Seen();
    for await (const batch of table.scan()) {
      expect(batch.keys.length).toBeGreaterThan(0);
      seen.add(batch);
    }
    expect(seen.values).toEqual(numbers(3000));
    const whole = new Seen();
    for await (const { keys, rows } of client.scan('items', { select: 'rows', batchRows: 7 })) {
      expect(keys.length).toBeLessThanOrEqual(7);
      expect(rows).toHaveLength(keys.length * 2);
      // Value, then momentum, which is the newest gradient.
      const values = rows.filter((_, i) => i % 2 === 0);
      expect(rows.filter((_, i) => i % 2 === 1)).toEqual(values.map((value) => -value));
      whole.add({ keys, rows: values });
    }
    expect(whole.values).toEqual(numbers(3000));
    const keys: bigint[] = [];
    for await (const batch of client.scan(table, { select: 'keys' })) {
      expect(batch.rows).toHaveLength(0);
      keys.push(...batch.keys);
    }
    expect(new Set(keys)).toEqual(new Set(keysOf(3000)));
    expect(keys).toHaveLength(3000);
  });

  test('of an empty table gives nothing', async () => {
    const { client } = await startJob({ ps: 1, code: 'none' });
    const table = await client.createTable({ name: 'a', dim: 3 });
    for await (const _ of table.scan()) expect.unreachable();
  });

  test('says what is wrong with it, and ends when it is told to', async () => {
    const { client } = await startJob({ ps: 1, code: 'none' });
    const table = await filled(client, 1000);
    expect(() => client.scan('b')).toThrow(expect.objectContaining({ code: 'UNKNOWN_TABLE' }));
    for (const options of [{ select: 'all' }, { batchRows: 0 }, { size: 3 }])
      expect(() => table.scan(options as never)).toThrow(expect.objectContaining({ code: 'BAD_ARGUMENT' }));
    const abort = new AbortController();
    const scanning = table.scan({ batchRows: 10, signal: abort.signal });
    expect((await scanning.next()).done).toBe(false);
    abort.abort();
    const rest = async () => {
      for await (const _ of scanning);
    };
    await expect(rest()).rejects.toMatchObject({ code: 'ABORTED' });
    const stop = new AbortController();
    let batches = 0;
    const keysOnly = async () => {
      for await (const _ of table.scan({ select: 'keys', batchRows: 10, signal: stop.signal }))
        if (++batches === 2) stop.abort();
    };
    await expect(keysOnly()).rejects.toMatchObject({ code: 'ABORTED' });
    expect(batches).toBe(2);
    for await (const _ of table.scan({ batchRows: 10 })) break;
    const late = table.scan();
    await client.close();
    await expect(late.next()).rejects.toMatchObject({ code: 'CLOSED' });
  });

  /** Two shards of more than one page each, so that the second page is asked of whoever has them then. */
  const rows = 2 * PAGE_KEYS + 30_000;

  test('goes on when shards are lost and recovered in the middle of it, while others push', async () => {
    const { cluster, client } = await startJob({ ps: 3, code: '2+1', groups: 1 });
    const table = await filled(client, rows);
    const expected = numbers(rows);
    const seen = new Seen();
    const pushes: Promise<void>[] = [];
    for await (const { keys, rows: values } of table.scan({ batchRows: 20_000 })) {
      if (pushes.length === 0) await cluster.kill(0);
      pushes.push(table.push(BigUint64Array.of(BigInt(pushes.length + 1)), Float32Array.of(1)));
      const old = [...keys.keys()].filter((i) => expected.has(keys[i]!));
      seen.add({
        keys: BigUint64Array.from(old, (i) => keys[i]!),
        rows: Float32Array.from(old, (i) => values[i]!),
      });
    }
    await Promise.all(pushes);
    expect(pushes.length).toBeGreaterThan(4);
    expect(seen.values).toEqual(expected);
  });

  test('goes on when a shard moves in the middle of it', async () => {
    const { cluster, client } = await startJob({ ps: 4, code: '2+1', groups: 1 });
    const table = await filled(client, rows);
    const seen = new Seen();
    const owner = client.clusterMap.groups[0]!.data[0]!.node;
    for await (const batch of table.scan({ batchRows: 20_000 })) {
      if (seen.values.size === 0) await drain(client, String(owner));
      seen.add(batch);
    }
    expect(client.clusterMap.groups[0]!.data[0]!.node).not.toBe(owner);
    expect(seen.values).toEqual(numbers(rows));
    expect(cluster.nodes).toHaveLength(4);
  });

  test('of a shard beyond repair fails', async () => {
    const { cluster, client } = await startJob({ ps: 3, code: '2+1', groups: 1 });
    const table = await filled(client, 1000);
    await Promise.all([cluster.kill(0), cluster.kill(1)]);
    await expect(table.scan({ select: 'keys' }).next()).rejects.toMatchObject({ code: 'UNRECOVERABLE' });
  });
});

describe('keys in order', () => {
  test.each([
    [1, 5000],
    [1000, 5000],
    [1 << 20, 5000],
    [1000, 1 << 20],
  ])('are complete and ascending, in runs of about %d, of about %d rows', async (size, rows) => {
    const { client } = await startJob({ ps: 3, code: '2+1', groups: 3 });
    const table = await filled(client, 5000);
    const runs: BigUint64Array[] = [];
    const { session } = internalsOf(client);
    for await (const run of keysInOrder(session, table.spec, size, rows)) runs.push(run);
    expect(concatenate(runs)).toEqual(keysOf(5000).sort());
    if (size === 1) expect(runs.length).toBeGreaterThan(2);
    if (size > 5000) expect(runs).toHaveLength(1);
  });

  test('are counted up to a bound', () => {
    const keys = BigUint64Array.of(3n, 5n, 2n ** 63n);
    expect(
      [0n, 3n, 4n, 5n, 2n ** 63n - 1n, 2n ** 63n, 2n ** 64n - 1n].map((bound) => countUpTo(keys, bound)),
    ).toEqual([0, 1, 1, 2, 2, 3, 3]);
    expect(countUpTo(new BigUint64Array(0), 1n)).toBe(0);
  });
});
