// A worker's process answers over HTTP.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { writeDemoData } from '../../src/training/loop/demo-data.js';
import { ps, scheduler } from '../roles/support.js';
import { record, start } from './support.js';

test('a worker lives before it serves, and serves when it has joined the job', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-worker-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const [train, other] = [join(directory, 'train.tsv'), join(directory, 'test.tsv')];
  await writeDemoData({ train, test: other, rows: 300, testRows: 10, keys: 50, seed: 1 });
  const { address } = await scheduler();
  // With --follow the worker goes on until it is told to stop.
  const flags = ['--data', train, '--follow', '--dim', '4', '--batch', '32', '--connect-timeout', '10m'];
  const worker = start(['worker', '--scheduler', address, ...flags, '--log-format', 'json']);
  onTestFinished(() => void worker.process.kill('SIGKILL'));
  const own = `http://${(await record(worker, 'worker.ready')).address}`;
  const get = async (path: string) => {
    const answer = await fetch(own + path);
    return { status: answer.status, body: (await answer.json()) as object };
  };
  const waiting = { ready: false, reason: 'this worker is not connected to the job' };
  expect(await get('/healthz')).toMatchObject({ status: 200, body: { role: 'worker', alive: true } });
  expect(await get('/readyz')).toMatchObject({ status: 503, body: waiting });
  await ps({ scheduler: address });
  await record(worker, 'worker.training');
  expect(await get('/readyz')).toMatchObject({ status: 200, body: { role: 'worker', ready: true } });
  worker.process.kill('SIGTERM');
  expect((await worker.ended).signal).toBe('SIGTERM');
});
