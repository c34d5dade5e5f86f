import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { renderStatus } from '../../src/cli/status.js';
import { connect } from '../../src/library/client/client.js';
import type { JobStatus } from '../../src/protocol/messages.js';
import { type LocalCluster, startLocalCluster } from '../../src/roles/cluster.js';
import { kintsugi } from './support.js';

let cluster: LocalCluster;
let directory = '';

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-status-'));
  cluster = await startLocalCluster({ code: '2+1', ps: 3 });
  const client = await connect(cluster.address);
  const table = await client.createTable({ name: 'items', dim: 4 });
  await table.push(BigUint64Array.of(1n, 2n), new Float32Array(8).fill(1));
  await client.close();
});
afterAll(async () => {
  await cluster.close();
  rmSync(directory, { recursive: true, force: true });
});

test('scrub counts the blocks that it checked', async () => {
  const { code, stdout } = await kintsugi(['scrub', '--scheduler', cluster.address]);
  expect(stdout).toMatch(/^(\d+) of \1 blocks checked, 0 wrong, 0 unprotected\n$/);
  expect(code).toBe(0);
});

test('status shows nodes, pools and tables, and as JSON all of it', async () => {
  const text = await kintsugi(['status', '--scheduler', cluster.address]);
  // The labels of its PS are the launcher's own.
  expect(text.stdout).not.toContain('warning');
  expect(text).toMatchObject({ code: 0, stderr: '' });
  expect(text.stdout).toMatch(/redundancy full/);
  for (const name of ['ps-0', 'ps-1', 'ps-2', 'host-1', 'embedding', '2+1', 'items'])
    expect(text.stdout).toContain(name);
  const json = await kintsugi(['status', '--json', '--scheduler', cluster.address]);
  const status = JSON.parse(json.stdout) as JobStatus;
  expect(status.redundancy).toBe('full');
  expect(status.nodes.map((node) => node.name)).toEqual(['ps-0', 'ps-1', 'ps-2']);
});

test('save and load go through the command line', async () => {
  const saved = join(directory, 'saved');
  expect(await kintsugi(['save', saved, '--scheduler', cluster.address])).toMatchObject({
    code: 0,
    stderr: '',
  });
  const other = await startLocalCluster({ code: '1+1' });
  try {
    expect(await kintsugi(['load', saved, '--scheduler', other.address])).toMatchObject({
      code: 0,
      stderr: '',
    });
    const client = await connect(other.address);
    const rows = await client.table('items').pull(BigUint64Array.of(1n));
    const before = await connect(cluster.address);
    expect(rows).toEqual(await before.table('items').pull(BigUint64Array.of(1n)));
    await before.close();
    await client.close();
  } finally {
    await other.close();
  }
});

test('recoveries, dead nodes and losses are told', () => {
  const node = {
    id: 1,
    name: 'ps-0',
    host: 'h',
    address: 'a:1',
    standby: false,
    inc: 1,
    dataShards: 1,
    parityShards: 0,
  };
  const text = renderStatus({
    job: 'j',
    epoch: 7,
    redundancy: 'recovering',
    reasons: ['embedding group 0: recovering'],
    warnings: [],
    nodes: [{ ...node, alive: false, life: 'gone', bytes: 2048, rows: 3 }],
    pools: [],
    tables: [],
    recoveries: [
      { g: 1, m: 2, gen: 3, blocksLost: 10, blocksPresent: 4, blocksOnDemand: 1 },
      { g: 1, m: 3, gen: 3, blocksLost: 10, blocksPresent: 10, blocksOnDemand: 1 },
    ],
    unrecoverable: [{ g: 0, m: 1, blocks: 5, rows: 7 }],
    scaling: { wanted: 3, serving: 3, changes: [] },
  });
  expect(text).toContain('recovering group 1 shard 2: 40 % of 10 blocks, 1 on demand');
  expect(text).not.toContain('shard 3');
  expect(text).toContain('beyond repair: group 0 shard 1, 5 blocks, 7 rows');
  expect(text).toMatch(/ps-0 .* dead +gone .* 2\.0 KiB/);
});

test('a replica whose flags fit no table is not ready, and it is said why', () => {
  const plain = { name: 'plain', pool: 'embedding', dim: 4, optimizer: 'sgd' };
  const replica = {
    ...{ id: 1, address: 'r:1', shards: 12, complete: 12, lagMs: 3, behind: 0 },
    share: [1, 1] as [number, number],
  };
  const rendered = (more: object) =>
    renderStatus({
      ...{ job: 'j', epoch: 7, redundancy: 'full', reasons: [], warnings: [], nodes: [], pools: [] },
      ...{
        tables: [{ ...plain, name: 'items', policy: { ttl: 5 } }, plain],
        recoveries: [],
        unrecoverable: [],
      },
      scaling: { wanted: 3, serving: 3, changes: [] },
      replicas: [{ ...replica, ...more }],
    });
  for (const more of [{}, { tables: ['items'] }, { tables: ['items', 'plain'], served: { maxAge: 5 } }]) {
    expect(rendered(more)).toMatch(/^r:1 .* 12 +12 +3 ms/m);
    expect(rendered(more)).not.toContain('not ready');
  }
  for (const [more, why] of [
    [{ tables: ['items', 'typo'] }, 'the job has no table "typo"'],
    [{ served: { maxAgeSeconds: 9 } }, 'an age of 9 seconds fits no table: those with a policy count steps'],
    [
      { tables: ['plain'], served: { minFrequency: 3 } },
      'a frequency of 3 fits no table, as none of these has a policy: plain',
    ],
  ] as const) {
    expect(rendered(more)).toMatch(/^r:1 .* 0 +12 +3 ms/m);
    expect(rendered(more)).toContain(`replica r:1 is not ready: ${why}\n`);
  }
});
