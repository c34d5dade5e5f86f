/** A running job that is looked at: counters of its nodes are what was asked of them. */
import { afterEach, expect, it } from 'vitest';
import { connect } from '../../../src/library/client/client.js';
import type { JobSnapshot } from '../../../src/library/client/observe.js';
import { Observer } from '../../../src/library/observe/observer.js';
import { ratesBetween } from '../../../src/library/observe/rates.js';
import type { Histogram } from '../../../src/protocol/telemetry.js';
import { startLocalCluster } from '../../../src/roles/cluster.js';

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function job() {
  const cluster = await startLocalCluster({ ps: 3, code: '2+1', memoryBytes: 64 << 20 });
  closing.push(() => cluster.close());
  const client = await connect(cluster.address);
  closing.push(() => client.close());
  const table = await client.createTable({ name: 'items', dim: 4, optimizer: { kind: 'sgd', lr: 0.1 } });
  return { cluster, client, table };
}

const total = ({ counts }: Histogram) => counts.reduce((a, b) => a + b);
const sum = (snapshot: JobSnapshot, of: (node: JobSnapshot['nodes'][number]['telemetry']) => number) =>
  snapshot.nodes.reduce((total, { telemetry }) => total + of(telemetry), 0);

it('observe counts requests, rows and durations of every node', async () => {
  const { client, table } = await job();
  const keys = BigUint64Array.from({ length: 1000 }, (_, i) => BigInt(i + 1));
  await table.push(keys, new Float32Array(4000).fill(1));
  const before = await client.observe();
  for (let i = 0; i < 3; i++) await table.pull(keys);
  await table.push(keys, new Float32Array(4000).fill(1));
  const after = await client.observe({ shards: true });

  expect(after.missing).toEqual([]);
  expect(after.nodes.map(({ name }) => name)).toEqual(['ps-0', 'ps-1', 'ps-2']);
  expect(after.scheduler.cpuSeconds).toBeGreaterThan(0);
  const more = (of: (node: JobSnapshot['nodes'][number]['telemetry']) => number) =>
    sum(after, of) - sum(before, of);
  // A request that is answered late is asked again, and counts again. A push is committed once.
  const [pulled, pushed] = [more(({ ops }) => ops.pull.rows), more(({ ops }) => ops.push.rows)];
  expect(pulled).toBeGreaterThanOrEqual(3000);
  expect(pushed).toBeGreaterThanOrEqual(1000);
  expect(more(({ commit }) => total(commit))).toBe(sum(before, ({ commit }) => total(commit)));
  const items = after.nodes.flatMap(({ telemetry }) => telemetry.tables);
  expect(items.reduce((rows, { rows: more }) => rows + more, 0)).toBe(1000);
  expect(items.reduce((rows, { pulledRows }) => rows + pulledRows, 0)).toBe(pulled);
  for (const { telemetry } of after.nodes) {
    const { ops, memory, shards = [] } = telemetry;
    const durations = [total(ops.pull.duration), total(ops.push.duration)];
    expect(durations).toEqual([ops.pull.requests, ops.push.requests]);
    expect(shards.reduce((all, { requests }) => all + requests, 0)).toBe(
      ops.pull.requests + ops.push.requests,
    );
    const { data, parity } = memory.partBytes;
    expect(data + parity).toBeGreaterThan(0);
    expect(memory.usedBytes).toBeGreaterThanOrEqual(data + parity);
    expect(memory.limitBytes).toBe(64 << 20);
    expect(telemetry.sentBytes.deltas).toBeGreaterThan(0);
  }

  const { job: all, tables, shards, nodes } = ratesBetween(before, after);
  const seconds = (after.at - before.at) / 1000;
  expect(all.pull.rowsPerSecond * seconds).toBeCloseTo(pulled);
  expect(all.push.rowsPerSecond * seconds).toBeCloseTo(pushed);
  expect(all.pull.p99Seconds).toBeGreaterThan(0);
  expect(all.commitP99Seconds).toBeGreaterThan(0);
  expect(tables.map(({ name, rows }) => [name, rows])).toEqual([['items', 1000]]);
  expect(nodes.length).toBe(3);
  expect(shards.length).toBeGreaterThan(0);
});

it('refused requests are counted by code', async () => {
  const { client, table } = await job();
  await expect(table.push(BigUint64Array.of(2n ** 64n - 1n), new Float32Array(4))).rejects.toMatchObject({
    code: 'KEY_RESERVED',
  });
  const snapshot = await client.observe();
  expect(sum(snapshot, ({ ops }) => ops.push.failed.KEY_RESERVED ?? 0)).toBe(1);
});

it('a node that is gone is not asked, and the others answer', async () => {
  const { cluster, client } = await job();
  await cluster.kill(1);
  for (;;) {
    const { status, nodes, missing } = await client.observe({ timeoutMs: 5000 });
    expect(nodes.length + missing.length).toBe(status.nodes.filter(({ alive }) => alive).length);
    if (nodes.length === 2 && missing.length === 0) break;
  }
});

it('a listener that throws hides nothing from the others, and its error is its own', async () => {
  const { client } = await job();
  const failures: unknown[] = [];
  const thrown: unknown[] = [];
  const onError = (error: unknown) => failures.push(error);
  const observer = new Observer(client, { onError });
  const mistake = new Error('of a listener');
  let heard = 0;
  observer.on(() => {
    throw mistake;
  });
  observer.on(() => heard++);
  const others = process.listeners('uncaughtException');
  process.removeAllListeners('uncaughtException');
  process.once('uncaughtException', (error) => thrown.push(error));
  try {
    await observer.look();
    await new Promise((resolve) => setImmediate(resolve));
  } finally {
    process.removeAllListeners('uncaughtException');
    for (const other of others) process.on('uncaughtException', other);
  }
  expect({ heard, failures, thrown }).toEqual({ heard: 1, failures: [], thrown: [mistake] });
});

it('an observer keeps so many snapshots, and tells whoever listens', async () => {
  const { client } = await job();
  const observer = new Observer(client, { intervalMs: 5, keep: 3 });
  let heard = 0;
  await new Promise<void>((resolve) => {
    observer.on(() => {
      if (++heard === 5) resolve();
    });
    observer.start();
  });
  await observer.stop();
  const { history } = observer;
  expect(history.length).toBe(3);
  expect(history[0]!.at).toBeLessThan(history[2]!.at);
  expect(observer.newest).toBe(history[2]);
});
