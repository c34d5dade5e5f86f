/**
 * A PS that was killed comes back to a job that has just k+r PS, with programs: it gets its share of data and
 * parity by swaps (rule 48) while a client pushes, and the next loss loses nothing.
 */
import { expect, onTestFinished, test } from 'vitest';
import { connect } from '../../src/index.js';
import { noticed, redundant, statusWhere } from '../roles/support.js';
import { type Running, record, start } from './support.js';

const KEYS = BigUint64Array.from({ length: 3000 }, (_, i) => BigInt(i * 17));
const DIM = 8;
const ONES = new Float32Array(KEYS.length * DIM).fill(1);

test('data and parity are spread again, and a second loss finds every push', async () => {
  const scheduler = start(['scheduler', '--listen', '127.0.0.1:0', '--ps', '3', '--code', '2+1']);
  const address = `${(await record(scheduler, 'scheduler.ready')).address}`;
  const serve = (i: number): Running =>
    start([
      'ps',
      '--name',
      `ps-${i}`,
      '--host-label',
      `h${i}`,
      '--scheduler',
      address,
      '--log-format',
      'json',
    ]);
  const nodes = [0, 1, 2].map(serve);
  const client = await connect(address, { connectTimeoutMs: 60_000 });
  onTestFinished(async () => {
    await client.close();
    for (const { process } of [...nodes, scheduler]) process.kill('SIGKILL');
    await Promise.all([...nodes, scheduler].map(({ ended }) => ended));
  });
  const optimizer = { kind: 'sgd', lr: -1 } as const;
  const table = await client.createTable({ name: 't', dim: DIM, optimizer, initializer: { kind: 'zeros' } });
  let pushes = 0;
  const push = async () => {
    await table.push(KEYS, ONES);
    pushes++;
  };
  await push();

  nodes[1]!.process.kill('SIGKILL');
  await noticed(client, 'ps-1');
  await push();
  nodes.push(serve(1));
  await statusWhere(client, 'the share of the PS that came back', ({ nodes: seen }) =>
    seen.some(({ name, alive, parityShards }) => name === 'ps-1' && alive && parityShards > 0),
  );
  const balanced = async () => {
    await push();
    const { redundancy, scaling } = await client.status();
    return redundancy === 'full' && scaling.changes.some(({ state }) => state === 'done');
  };
  while (!(await balanced()));
  // Data shards are 15; their loads just now decide about the last ones.
  for (const { dataShards } of (await client.status()).nodes) expect(dataShards).toBeGreaterThanOrEqual(3);

  nodes[0]!.process.kill('SIGKILL');
  await noticed(client, 'ps-0');
  await push();
  expect([...new Set(await table.pull(KEYS))]).toEqual([pushes]);
  nodes.push(serve(0));
  await redundant(client, 3);
  expect([...new Set(await table.pull(KEYS))]).toEqual([pushes]);
}, 120_000);
