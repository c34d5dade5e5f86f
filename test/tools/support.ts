/** A job with a table per optimizer, filled by pushes that are the same for every shape of the job. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { type Client, type ConnectOptions, connect } from '../../src/client/client.js';
import { OPTIMIZER_KINDS, type OptimizerSpec, optimizerOf } from '../../src/optimizers.js';
import { type LocalCluster, type LocalClusterOptions, startLocalCluster } from '../../src/runtime/cluster.js';

/** Every optimizer, with accumulators that do not begin at zero. */
const ALL = OPTIMIZER_KINDS.map((kind): OptimizerSpec => {
  const spec = optimizerOf(kind, 0.1);
  return 'initialAccumulator' in spec ? { ...spec, initialAccumulator: 0.1 } : spec;
});

export function temporaryDirectory(): string {
  const path = mkdtempSync(join(tmpdir(), 'kintsugi-tools-'));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

export interface Job {
  cluster: LocalCluster;
  client: Client;
}

export async function startJob(options: LocalClusterOptions, connection: ConnectOptions = {}): Promise<Job> {
  const cluster = await startLocalCluster(options);
  onTestFinished(() => cluster.close());
  const client = await connect(cluster.address, connection);
  onTestFinished(() => client.close());
  return { cluster, client };
}

/** Keys that look random, the largest legal one among them, the same every time. */
export function keysOf(count: number): BigUint64Array {
  const keys = BigUint64Array.from({ length: count }, (_, i) => BigInt(i) * 0x9e3779b97f4a7c15n);
  keys[count - 1] = 0xfffffffffffffffen;
  return keys;
}

/** One table per optimizer in the embedding pool, one in the mirrored pool; some rows are pushed twice. */
export async function fill(client: Client, rows = 300): Promise<void> {
  const tables = ALL.map((optimizer, i) => ({
    name: `t/${optimizer.kind}`,
    dim: 3 + i,
    optimizer,
    seed: 7,
  }));
  await client.createTables([
    ...tables,
    { name: 'copied', dim: 5, pool: 'mirrored', optimizer: optimizerOf('adagrad', 0.1) },
  ]);
  const keys = keysOf(rows);
  for (const part of [keys, keys.subarray(0, rows / 3), keys.subarray(rows / 2)]) {
    await client.push(
      client.tables().map(({ name, dim }) => ({
        table: name,
        keys: part,
        gradients: Float32Array.from({ length: part.length * dim }, (_, i) => Math.fround(Math.sin(i + dim))),
      })),
    );
  }
}

/** Resolves when the scheduler reports this redundancy. */
export async function redundancy(client: Client, wanted: string): Promise<void> {
  for (let status = await client.status(); status.redundancy !== wanted; status = await client.status()) {
    await new Promise((resolve) => setImmediate(resolve));
  }
}
