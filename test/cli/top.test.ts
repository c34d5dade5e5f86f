import { once } from 'node:events';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { inPlace } from '../../src/cli/screen.js';
import { connect } from '../../src/library/client/client.js';
import { internalsOf } from '../../src/library/client/connected.js';
import type { WorkerReport } from '../../src/protocol/telemetry.js';
import { type LocalCluster, startLocalCluster } from '../../src/roles/cluster.js';
import { startReporting } from '../../src/training/worker/reporting.js';
import { kintsugi, start } from './support.js';

let cluster: LocalCluster;
beforeAll(async () => {
  cluster = await startLocalCluster({ code: '2+1', ps: 4 });
  const client = await connect(cluster.address);
  const table = await client.createTable({ name: 'items', dim: 4 });
  // The name of a table must not write on the terminals of others. The library refuses such a name, and the
  // scheduler does not.
  const { id: _, ...spec } = table.spec;
  const specs = [{ ...spec, name: 'evil\x1b[2J\n\x9b' }];
  await internalsOf(client).session.ask((id) => ({ t: 'createTables', id, specs }));
  await table.push(BigUint64Array.of(1n, 2n), new Float32Array(8).fill(1));
  await client.close();
});
afterAll(() => cluster.close());

test('one screen as plain text: PS, tables and the newest events', async () => {
  const { code, stdout, stderr } = await kintsugi([
    ...['top', '--once', '--interval', '200ms', '--scheduler', cluster.address],
  ]);
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(/^job \S+ {2}epoch \d+ {2}redundancy full {2}4 PS {2}0 workers\n/);
  for (const text of ['ps-3', 'host-2', 'items', 'node.joined', 'samples/s']) expect(stdout).toContain(text);
  expect(stdout).toContain('evil?[2J ?');
  expect(stdout).not.toContain('\x1b');
});

test('one that cannot be seen any more is not told as it was', async () => {
  const job = await startLocalCluster({ code: '1+1', ps: 2 });
  const running = start(['top', '--interval', '100ms', '--json', '--scheduler', job.address]);
  onTestFinished(() => void running.process.kill('SIGKILL'));
  await once(running.process.stdout!, 'data');
  await job.close();
  await running.line((line) => line.startsWith('not seen: '));
  running.process.kill('SIGINT');
  expect((await running.ended).code).toBe(0);
});

test('as JSON the status and the rates', async () => {
  const { stdout } = await kintsugi([
    ...['top', '--once', '--json', '--interval', '200ms', '--scheduler', cluster.address],
  ]);
  const { status, rates } = JSON.parse(stdout) as {
    status: { nodes: unknown[] };
    rates: { tables: unknown[] };
  };
  expect(status.nodes).toHaveLength(4);
  expect(rates.tables[0]).toMatchObject({ name: 'items', rows: 2 });
});

test('a terminal is written over in place, and no line is longer than it', () => {
  const text = inPlace(['a'.repeat(100), 'b', 'c'], 10, 3);
  expect(text).toBe(`\x1b[H${'a'.repeat(10)}\x1b[K\nb\x1b[K\x1b[J`);
});

test('one screen has what workers do: it is of the time between two of their reports', async () => {
  const job = await startLocalCluster({ code: '1+1', ps: 2 });
  onTestFinished(() => job.close());
  const trainer = await connect(job.address);
  onTestFinished(() => trainer.close());
  let upSeconds = 0;
  const report = (): WorkerReport => {
    upSeconds++;
    return {
      ...{ name: 'worker-0', run: 'train', samples: 1000 * upSeconds, batches: upSeconds, rssBytes: 1 },
      ...{ upSeconds, cpuSeconds: 1, phaseSeconds: { read: 0, pull: 0, compute: 0, push: 0 } },
      ...{ idleSeconds: 0, productiveSeconds: 0, stalenessBatches: 0 },
    };
  };
  const { end } = startReporting(trainer, report);
  const flags = ['--once', '--json', '--interval', '200ms', '--scheduler', job.address];
  const { stdout } = await kintsugi(['top', ...flags]);
  end();
  const { rates } = JSON.parse(stdout) as { rates: { workers: unknown[] } };
  expect(rates.workers).toMatchObject([{ name: 'worker-0', samplesPerSecond: 1000 }]);
});
