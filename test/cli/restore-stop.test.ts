/** Signals to roles of a job that begins with a checkpoint whose place hangs: real processes. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { connect } from '../../src/library/client/client.js';
import { save } from '../../src/library/tools/save.js';
import { startLocalCluster } from '../../src/roles/cluster.js';
import { type Behaviour, hangingStore, PLACE } from './hanging.js';
import { type Running, record, start } from './support.js';

async function saved(): Promise<string> {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-hanging-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const cluster = await startLocalCluster({ code: 'none', ps: 1, groups: 1 });
  const client = await connect(cluster.address);
  const table = await client.createTable({ name: 'items', dim: 4 });
  await table.push(BigUint64Array.of(1n, 2n), new Float32Array(8).fill(1));
  await save(client, directory);
  await client.close();
  await cluster.close();
  return directory;
}

function role(args: string[], env: NodeJS.ProcessEnv): Running {
  const running = start([...args, '--log-format', 'json'], env);
  onTestFinished(() => void running.process.kill('SIGKILL'));
  return running;
}

const SCHEDULER = ['scheduler', '--listen', '127.0.0.1:0', '--code', 'none', '--ps', '1', '--restore', PLACE];

test.each(['SIGTERM', 'SIGINT'] as const)(
  'a scheduler that looks for its checkpoint ends at %s',
  async (signal) => {
    const store = await hangingStore('/nowhere', () => 'nothing');
    const scheduler = role(SCHEDULER, store.env);
    await store.hung;
    scheduler.process.kill(signal);
    expect(await scheduler.ended).toMatchObject({ code: 0, said: [] });
  },
);

test.each(['nothing', 'begin'] as const)('roles of a job that is loaded end at SIGTERM: %s', async (does) => {
  const of = (name: string): Behaviour => (name.endsWith('.safetensors') ? does : 'answer');
  const store = await hangingStore(await saved(), of);
  const scheduler = role(SCHEDULER, store.env);
  const { address } = await record(scheduler, 'scheduler.ready');
  const ps = role(['ps', '--scheduler', String(address), '--drain-timeout', '0s'], store.env);
  await store.hung;
  ps.process.kill('SIGTERM');
  expect(await ps.ended).toMatchObject({ code: 0, said: [] });
  scheduler.process.kill('SIGTERM');
  expect(await scheduler.ended).toMatchObject({ code: 0, said: [] });
});
