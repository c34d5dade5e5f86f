/** A job with a table per optimizer, filled by pushes that are the same for every shape of the job. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { OPTIMIZER_KINDS, type OptimizerSpec, optimizerOf } from '../../../src/engine/optimizers.js';
import { type Client, type ConnectOptions, connect } from '../../../src/library/client/client.js';
import {
  type LocalCluster,
  type LocalClusterOptions,
  startLocalCluster,
} from '../../../src/roles/cluster.js';

const tableOf = (name: string, spec: OptimizerSpec, i: number) => ({
  name: `t/${name}`,
  dim: 3 + i,
  // Accumulators do not begin at zero.
  optimizer: 'initialAccumulator' in spec ? { ...spec, initialAccumulator: 0.1 } : spec,
  seed: 7,
});

/** A table per optimizer, and one whose rows count steps for a schedule. */
const ALL = [
  ...OPTIMIZER_KINDS.map((kind, i) => tableOf(kind, optimizerOf(kind, 0.1), i)),
  tableOf(
    'scheduled',
    { ...optimizerOf('momentum', 0.1), clipNorm: 1, schedule: { kind: 'cosine', warmup: 1, steps: 5 } },
    0,
  ),
];

/** Number of tables that `fill` makes. */
export const TABLES = ALL.length + 1;

/** Tables of the first version, whose digest does not change. */
export const FIRST_TABLES = ALL.slice(0, 5);

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

/** These tables in the embedding pool, one in the mirrored pool; some rows are pushed twice. */
export async function fill(client: Client, rows = 300, tables = ALL): Promise<void> {
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
