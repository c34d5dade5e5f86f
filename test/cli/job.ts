/** Before each test of a file: a job of three PS with a table of 500 rows, and a client of it. */
import { afterEach, beforeEach } from 'vitest';
import { type Client, connect } from '../../src/library/client/client.js';
import { type LocalCluster, startLocalCluster } from '../../src/roles/cluster.js';
import { kintsugi, type Output, type Running, record, start } from './support.js';

export let cluster: LocalCluster;
export let client: Client;
const joined: Running[] = [];

beforeEach(async () => {
  cluster = await startLocalCluster({ code: '2+1', ps: 3, groups: 3 });
  client = await connect(cluster.address);
  const table = await client.createTable({ name: 'items', dim: 4 });
  const keys = BigUint64Array.from({ length: 500 }, (_, i) => BigInt(i));
  await table.push(keys, new Float32Array(2000).fill(1));
});
afterEach(async () => {
  for (const running of joined.splice(0)) running.process.kill('SIGKILL');
  await client.close();
  await cluster.close();
});

/** Runs a command against the job. */
export const run = (...args: string[]): Promise<Output> =>
  kintsugi([...args, '--scheduler', cluster.address]);

/** Starts another PS, and resolves when it has joined. */
export async function join(name: string, ...flags: string[]): Promise<Running> {
  const args = ['ps', '--scheduler', cluster.address, '--name', name, '--log-format', 'json', ...flags];
  const running = start(args);
  joined.push(running);
  await record(running, 'ps.ready');
  return running;
}
