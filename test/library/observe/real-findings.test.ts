/** Findings in real jobs: a shard that is hot, memory that will not last, a sink that hangs. */
import { expect, onTestFinished, test } from 'vitest';
import type { Client } from '../../../src/library/client/client.js';
import type { JobSnapshot } from '../../../src/library/client/observe.js';
import { findingsIn } from '../../../src/library/observe/findings/index.js';
import { record, start } from '../../cli/support.js';
import { client, cluster, firstKeys, keysOf, redundant } from '../../roles/support.js';

const DIM = 16;
const look = (job: Client): Promise<JobSnapshot> => job.observe({ shards: true });
const found = (history: readonly JobSnapshot[], code: string) =>
  findingsIn(history).filter((finding) => finding.code === code);

test('a shard that most requests are for is named, and it is that of the key', async () => {
  const job = await client((await cluster({ code: 'none', ps: 2 })).address);
  const table = await job.createTable({ name: 't', dim: DIM });
  const hot = keysOf(7);
  await table.push(hot, new Float32Array(DIM).fill(1));
  const before = await look(job);
  const { shards } = before.nodes
    .map(({ telemetry }) => telemetry)
    .find(({ tables }) => tables[0]!.rows > 0)!;
  const { g, m } = shards!.find(({ rows }) => rows > 0)!;
  for (let i = 0; i < 50; i++) {
    // All shards have some requests.
    await table.pull(firstKeys(200));
    await Promise.all(Array.from({ length: 40 }, () => table.pull(hot)));
  }
  // However busy this machine is.
  const after = { ...(await look(job)), at: before.at + 1000 };
  const [finding, ...others] = found([before, after], 'hot-shard');
  expect(others).toEqual([]);
  expect(finding).toMatchObject({
    subject: expect.stringMatching(new RegExp(`^shard ${g}/${m} on ps-[01]$`)),
  });
  expect(finding!.evidence).toMatch(/of all, \d+\.\d times the median shard$/);
  expect(found([before, before], 'hot-shard')).toEqual([]);
}, 120_000);

test('memory that grows towards its limit is told before it is used up', async () => {
  const running = await cluster({ code: 'none', ps: 1, memoryBytes: 64 << 20 });
  const job = await client(running.address);
  const table = await job.createTable({ name: 't', dim: DIM });
  const history: JobSnapshot[] = [];
  const rows = 10_000;
  for (let i = 0; i < 5; i++) {
    const keys = BigUint64Array.from({ length: rows }, (_, j) => BigInt(i * rows + j));
    await table.push(keys, new Float32Array(rows * DIM).fill(1));
    history.push(await look(job));
  }
  const [finding] = found(history, 'memory');
  expect(finding).toMatchObject({ severity: 'error', subject: 'ps-0' });
  expect(finding!.evidence).toMatch(
    /of 64 MiB are used, \d+ %; it grows by .* MiB\/s and lasts for \d+ minutes$/,
  );
  // As it is now it lasts for ever.
  const still = history.at(-1)!;
  expect(found([still, still, still, still], 'memory')).toEqual([]);
}, 120_000);

test('pushes that wait for a mirror that hangs are told of', async () => {
  const shape = ['--ps', '2', '--code', '1+1', '--limit', 'silentMs=120000'];
  const scheduler = start(['scheduler', '--listen', '127.0.0.1:0', ...shape]);
  const address = `${(await record(scheduler, 'scheduler.ready')).address}`;
  const nodes = [0, 1].map((i) =>
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
    ]),
  );
  onTestFinished(async () => {
    for (const { process } of [...nodes, scheduler]) process.kill('SIGKILL');
    await Promise.all([...nodes, scheduler].map(({ ended }) => ended));
  });
  await Promise.all(nodes.map((node) => record(node, 'ps.ready')));
  const job = await client(address);
  const table = await job.createTable({ name: 't', dim: DIM });
  await redundant(job, 2);
  const push = () => table.push(firstKeys(1000), new Float32Array(1000 * DIM).fill(1));
  await push();
  const before = await look(job);
  const hanging = nodes[1]!.process;
  for (let i = 0; i < 3; i++) {
    hanging.kill('SIGSTOP');
    const pushed = push();
    // Pushes that the other node has applied are durable when this one has them, too.
    await new Promise((resolve) => setTimeout(resolve, 2500));
    hanging.kill('SIGCONT');
    await pushed;
  }
  const subjects = found([before, await look(job)], 'slow-sink').map(({ subject }) => subject);
  expect(subjects).toContain('ps-0');
}, 180_000);
