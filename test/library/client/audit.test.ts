// Audits: rows that say how often the pushes of a client were applied, whatever the protocol's own books say.
import { describe, expect, it } from 'vitest';
import { loadNative } from '../../../src/engine/native.js';
import { auditKeys, auditTable, isAuditTable } from '../../../src/library/client/audit.js';
import type { Client } from '../../../src/library/client/client.js';
import { resumeTables } from '../../../src/library/client/connected.js';
import { poolOf, shardCount } from '../../../src/protocol/map.js';
import {
  COUNTING,
  client,
  cluster,
  firstKeys,
  noticed,
  Pusher,
  redundant,
  rejection,
} from '../../roles/support.js';

const native = loadNative();
const pool = { name: 'embedding', k: 3, r: 1, firstGroup: 0, groups: 5 };

/** The audit rows of a client, one per shard. */
async function counted(from: Client, of: Client, name: string): Promise<number[]> {
  const keys = auditKeys(native, poolOf(from.clusterMap, name)!, of.id);
  const [rows] = await from.pull([{ table: `__audit/${name}`, keys }]);
  return [...rows!];
}

describe('audit keys', () => {
  it('lie one in each shard, and no two clients share one', () => {
    const seen = new Set<bigint>();
    for (const id of [1, 2, 3, 1000]) {
      const keys = auditKeys(native, pool, id);
      const { order, starts } = native.partition(keys, shardCount(pool));
      for (let shard = 0; shard < shardCount(pool); shard++) {
        expect([...order.subarray(starts[shard], starts[shard + 1])]).toEqual([shard]);
      }
      for (const key of keys) seen.add(key);
    }
    expect(seen.size).toBe(4 * shardCount(pool));
  });

  it('belong to a table of their pool that users do not see', () => {
    expect(isAuditTable(auditTable(pool).name)).toBe(true);
    expect(isAuditTable('user')).toBe(false);
  });
});

describe('names of audit tables', () => {
  it('are refused for new tables of others', async () => {
    const one = await client((await cluster({ code: '1+1' })).address);
    const refused = { code: 'BAD_ARGUMENT', message: expect.stringContaining('__audit/') };
    for (const name of ['__audit/', '__audit/mine', '__audit/embedding']) {
      expect(await rejection(one.createTable({ name, ...COUNTING }))).toMatchObject(refused);
      const asked = { name, ...COUNTING, set: [] };
      expect(await rejection(resumeTables(one, [asked]))).toMatchObject(refused);
    }
    await one.createTable({ name: '_audit/mine', ...COUNTING });
    expect(one.tables().map(({ name }) => name)).toEqual(['_audit/mine']);
  });
});

describe('an audited client', () => {
  it('finds as many applied pushes as it saw acknowledged, also after a failure', async () => {
    const job = await cluster({ code: '2+1' });
    const [a, b] = [await client(job.address, { audit: true }), await client(job.address, { audit: true })];
    await a.createTable({ name: 't', ...COUNTING });
    await b.createTable({ name: 't', ...COUNTING });
    expect(a.tables().map((table) => table.name)).toEqual(['t']);
    const pushers = [new Pusher(a, 't', 200, 0), new Pusher(b, 't', 200, 3)];
    await pushers[0]!.more(5);
    await job.kill(0);
    await noticed(a, 'ps-0');
    await pushers[1]!.more(5);
    await job.restart(0);
    await redundant(a, 3);
    for (const pusher of pushers) await pusher.stop();
    for (const [of, from] of [
      [a, b],
      [b, a],
    ] as const) {
      const rows = await counted(from, of, 'embedding');
      const counts = of.pushCounts();
      expect(counts.length).toBeGreaterThan(0);
      for (const { shard, sent, acknowledged, refused } of counts) {
        expect({ shard, applied: rows[shard], refused }).toEqual({ shard, applied: sent, refused: 0 });
        expect(acknowledged).toBe(sent);
      }
      expect(rows.reduce((sum, row) => sum + row, 0)).toBe(counts.reduce((sum, { sent }) => sum + sent, 0));
    }
    expect(await counted(a, a, 'mirrored')).toEqual([0, 0, 0]);
  });

  it('does not count what was refused', async () => {
    const job = await cluster({ code: '1+1' });
    const trainer = await client(job.address, { audit: true });
    const table = await trainer.createTable({ name: 't', ...COUNTING });
    const reserved = BigUint64Array.of(2n ** 64n - 1n);
    expect((await rejection(table.push(reserved, new Float32Array(2)))).code).toBe('KEY_RESERVED');
    await table.push(firstKeys(50), new Float32Array(100));
    const rows = await counted(trainer, trainer, 'embedding');
    const counts = trainer.pushCounts();
    expect(counts.some((count) => count.refused === 1)).toBe(true);
    for (const { shard, acknowledged } of counts) expect(rows[shard]).toBe(acknowledged);
  });

  it('cannot assign rows', async () => {
    const job = await cluster({ code: '1+1' });
    const trainer = await client(job.address, { audit: true });
    const table = await trainer.createTable({ name: 't', ...COUNTING });
    const assigned = trainer.assign([{ table, keys: firstKeys(1), gradients: new Float32Array(2) }]);
    expect((await rejection(assigned)).code).toBe('BAD_ARGUMENT');
  });
});
