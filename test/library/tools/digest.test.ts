import { createHash } from 'node:crypto';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { internalsOf } from '../../../src/library/client/connected.js';
import { digest, interleave } from '../../../src/library/tools/digest.js';
import { FIRST_TABLES, fill, keysOf, redundancy, startJob } from './support.js';

describe('digest', () => {
  test('depends on rows, not on nodes, code or groups', async () => {
    const digests = [];
    for (const options of [
      { ps: 3, code: '2+1' },
      { ps: 3, code: '2+1', groups: 1 },
      { ps: 2, code: '1+1', groups: 5 },
      { ps: 1, code: 'none' },
    ]) {
      const { client } = await startJob(options);
      await fill(client, 300, FIRST_TABLES);
      digests.push(await digest(client));
    }
    expect(digests[0]).toMatchObject({ rows: 6 * 300, tables: 6 });
    // As it was in the versions before: digests of different versions are compared.
    expect(digests[0]!.sha256).toBe('bb64461049d27cf5396250fcfc6138d201e3f469267584bf1beecd97ff33be31');
    for (const other of digests) expect(other).toEqual(digests[0]);
  });

  test('is SHA-256 over the layout that it documents', async () => {
    const { client } = await startJob({ ps: 2, code: '1+1' });
    await client.createTable({
      name: 'é',
      dim: 2,
      optimizer: { kind: 'momentum', lr: 1, momentum: 0 },
      initializer: { kind: 'zeros' },
    });
    await client.push([
      { table: 'é', keys: BigUint64Array.of(2n ** 63n, 5n), gradients: Float32Array.of(1, 2, 3, 4) },
    ]);
    const expected = Buffer.alloc(4 + 2 + 12 + 2 * 24);
    expected.writeUInt32LE(2, 0);
    expected.write('é', 4);
    expected.writeUInt32LE(4, 6);
    expected.writeBigUInt64LE(2n, 10);
    let at = 18;
    for (const [key, row] of [
      [5n, [-3, -4, 3, 4]],
      [2n ** 63n, [-1, -2, 1, 2]],
    ] as const) {
      at = expected.writeBigUInt64LE(key, at);
      for (const value of row) at = expected.writeFloatLE(value, at);
    }
    expect((await digest(client)).sha256).toBe(createHash('sha256').update(expected).digest('hex'));
  });

  test('changes with one bit of one optimizer state, not with audits', async () => {
    const { cluster, client } = await startJob({ ps: 3, code: '2+1' }, { audit: true });
    await client.createTable({
      name: 'a',
      dim: 2,
      optimizer: { kind: 'adagrad', lr: 0, eps: 1e-8, initialAccumulator: 0 },
    });
    await client.push([{ table: 'a', keys: keysOf(100), gradients: new Float32Array(200).fill(1) }]);
    const before = await digest(client);
    const quiet = await startJob({ ps: 3, code: '2+1' });
    await quiet.client.createTable({
      name: 'a',
      dim: 2,
      optimizer: { kind: 'adagrad', lr: 0, eps: 1e-8, initialAccumulator: 0 },
    });
    await quiet.client.push([{ table: 'a', keys: keysOf(100), gradients: new Float32Array(200).fill(1) }]);
    expect(await digest(quiet.client)).toEqual(before);
    // lr 0: the values stay, only the accumulator of one row changes.
    await quiet.client.push([
      { table: 'a', keys: keysOf(100).subarray(50, 51), gradients: Float32Array.of(0, 1) },
    ]);
    expect(await digest(quiet.client)).not.toEqual(before);
    expect(cluster.nodes).toHaveLength(3);
  });

  test('an empty job and an empty table differ', async () => {
    const { client } = await startJob({ ps: 2, code: '1+1' });
    const empty = await digest(client);
    expect(empty).toMatchObject({ rows: 0, tables: 0 });
    await client.createTable({ name: 'a', dim: 2 });
    expect((await digest(client)).sha256).not.toBe(empty.sha256);
  });

  test('is the same after a node was lost and recovered', async () => {
    const { cluster, client } = await startJob({ ps: 3, code: '2+1' });
    await fill(client);
    const before = await digest(client);
    await cluster.kill(0);
    await cluster.restart(0);
    expect(await digest(client)).toEqual(before);
    await redundancy(client, 'full');
    expect(await digest(client)).toEqual(before);
  });

  /** After each count of rows there is one more, `times` times. */
  async function growing(times: number) {
    const { client } = await startJob({ ps: 1, code: 'none', groups: 1 });
    const table = await client.createTable({ name: 'a', dim: 2 });
    const keys = keysOf(100);
    await table.push(keys.subarray(0, 50), new Float32Array(100));
    const { session } = internalsOf(client);
    const query = session.query.bind(session);
    const spy = vi.spyOn(session, 'query');
    onTestFinished(() => spy.mockRestore());
    let grown = 0;
    spy.mockImplementation(async (asked, read, options) => {
      const answer = await query(asked, read, options);
      if (asked.message.t === 'shardStats' && grown < times) {
        const next = keys.subarray(50 + grown, 51 + grown);
        grown++;
        await table.push(next, new Float32Array(2));
      }
      return answer as never;
    });
    return { client, spy };
  }

  test('begins a table again that became longer while it was read', async () => {
    const { client, spy } = await growing(2);
    const first = await digest(client);
    expect(first.rows).toBe(52);
    spy.mockRestore();
    expect(await digest(client)).toEqual(first);
  });

  test('gives up a table that becomes longer again and again', async () => {
    const { client } = await growing(50);
    await expect(digest(client)).rejects.toMatchObject({
      code: 'LIMIT',
      message: expect.stringContaining('"a"'),
    });
  });

  test('interleaving keeps the bits of NaNs', () => {
    const rows = new Float32Array(2);
    const bits = new Uint32Array(rows.buffer);
    bits.set([0x7fa00001, 0xffc12345]);
    const out = interleave({ keys: BigUint64Array.of(1n, 0x1_0000_0002n), rows }, 1);
    expect([...out]).toEqual([1, 0, 0x7fa00001, 2, 1, 0xffc12345]);
  });
});
