// Rows that make room for others, in real jobs: through the loss of a PS, a checkpoint, a restore with
// another code, and on a replica.
import { expect, it, onTestFinished } from 'vitest';
import { poolsFor } from '../../../src/core/placement/job.js';
import type { Table } from '../../../src/library/client/options.js';
import { setSavePlan } from '../../../src/library/tools/checkpoints.js';
import { digest } from '../../../src/library/tools/digest.js';
import { checkParity } from '../../../src/library/tools/parity.js';
import { showTable } from '../../../src/library/tools/tables.js';
import { shardCount } from '../../../src/protocol/map.js';
import { startReplica } from '../../../src/roles/replica/replica.js';
import {
  COUNTING,
  client,
  cluster,
  keysFrom,
  keysIn,
  noticed,
  ps,
  redundant,
  scheduler,
  silent,
  temporaryDirectory,
} from '../../roles/support.js';

const DIM = COUNTING.dim;
const MOST = 100;

async function pushed(table: Table, from: number, count: number): Promise<void> {
  await table.push(keysFrom(from, count), new Float32Array(count * DIM).fill(1));
}

/** Pushes of keys that nobody has seen. */
async function pushedMany(table: Table, from: number, pushes: number): Promise<void> {
  for (let step = 0; step < pushes; step++) await pushed(table, from + step * 20, 20);
}

it('new rows make others go, in all places where the rows are', async () => {
  const running = await cluster({ code: '2+1', ps: 3, groups: 2 });
  const job = await client(running.address);
  const table = await job.createTable({ name: 'items', ...COUNTING, policy: { maxRows: MOST } });
  const url = temporaryDirectory();
  await setSavePlan(job, 'checkpoint', { url, everyMs: 0, keep: 100, rate: 0, kind: 'full job' });
  const replica = await startReplica({ scheduler: running.address, name: 'replica', log: silent });
  onTestFinished(() => replica.close());
  await pushedMany(table, 0, 30);
  expect(await keysIn(job, 'items')).toHaveLength(MOST);
  expect((await showTable(job, 'items')).table).toMatchObject({
    rows: MOST,
    life: { displaced: 600 - MOST, expired: 0, refused: 0 },
  });
  // A push that brings more than its shards may have makes none of its own rows go.
  await pushed(table, 1000, 300);
  expect(await keysIn(job, 'items')).toEqual([...keysFrom(1000, 300)]);
  await running.kill(1);
  await noticed(job, 'ps-1');
  await pushedMany(table, 2000, 10);
  await running.restart(1);
  await redundant(job, 3);
  await pushedMany(table, 3000, 10);
  const keys = await keysIn(job, 'items');
  expect(keys).toHaveLength(MOST);
  expect(keys.slice(-20)).toEqual([...keysFrom(3180, 20)]);
  expect(await checkParity(job)).toMatchObject({ blocksUnprotected: 0, mismatched: 0 });
  const reader = await client(running.address, { replica: true });
  const asked = [...keysFrom(0, 600), ...keysFrom(1000, 300), ...keysFrom(2000, 200), ...keysFrom(3000, 200)];
  const expected = asked.map((key) => (keys.includes(key) ? 1 : 0));
  for (;;) {
    const rows = await reader.table('items').pull(BigUint64Array.from(asked));
    if (expected.every((value, i) => value === rows[i * DIM])) break;
  }
  expect(await job.checkpoint()).toMatchObject({ number: 1, rows: MOST });
  const before = await digest(job);
  await reader.close();
  await replica.close();
  await job.close();
  await running.close();
  // Other shards have other parts.
  const restored = await scheduler({ nodes: 4, pools: poolsFor({ k: 3, r: 1 }, 4), restore: { url } });
  for (const name of ['a', 'b', 'c', 'd']) await ps({ scheduler: restored.address, name });
  const after = await client(restored.address);
  expect(await digest(after)).toEqual(before);
  const shards = shardCount(after.clusterMap.pools[0]!);
  expect(shards).not.toBe(4);
  await pushedMany(after.table('items'), 4000, 30);
  expect(await keysIn(after, 'items')).toHaveLength(shards * Math.ceil(MOST / shards));
});
