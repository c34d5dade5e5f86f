/** Signals to a PS that has not joined yet: real processes. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { writeDemoData } from '../../src/training/loop/demo-data.js';
import { CLI, record, start } from './support.js';

/** Nobody listens at this port. */
const SCHEDULER = ['--scheduler', '127.0.0.1:9', '--connect-timeout', '10m'];

test.each(['SIGTERM', 'SIGINT'] as const)('a PS that looks for its scheduler ends at %s', async (signal) => {
  const ps = start(['ps', ...SCHEDULER, '--log-format', 'json']);
  onTestFinished(() => void ps.process.kill('SIGKILL'));
  await record(ps, 'ps.listening');
  ps.process.kill(signal);
  expect(await ps.ended).toMatchObject({ code: 0, said: [] });
});

test('PS under a supervisor that look for their scheduler end with it at SIGTERM', async () => {
  const all = start(['ps', '--processes', '2', ...SCHEDULER, '--log-format', 'json']);
  onTestFinished(() => void all.process.kill('SIGKILL'));
  await record(all, 'ps.listening');
  all.process.kill('SIGTERM');
  expect(await all.ended).toMatchObject({ code: 0, said: [] });
});

test('a worker whose scheduler is gone ends at SIGINT, and says why', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-stop-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const data = join(directory, 'train.tsv');
  await writeDemoData({
    train: data,
    test: join(directory, 't'),
    rows: 1000,
    testRows: 10,
    keys: 500,
    seed: 1,
  });
  const begin = (args: string[]) => {
    const running = start([...args, '--log-format', 'json']);
    onTestFinished(() => void running.process.kill('SIGKILL'));
    return running;
  };
  const scheduler = begin(['scheduler', '--listen', '127.0.0.1:0', '--ps', '1', '--code', 'none']);
  const to = ['--scheduler', String((await record(scheduler, 'scheduler.ready')).address)];
  await record(begin(['ps', ...to]), 'ps.ready');
  const worker = begin(['worker', ...to, '--data', data, '--follow', '--model', 'examples/logistic.mjs']);
  await record(worker, 'worker.range');
  scheduler.process.kill('SIGKILL');
  await scheduler.ended;
  worker.process.kill('SIGINT');
  const { code, said } = await worker.ended;
  expect(said).toEqual([expect.stringMatching(/^kintsugi: UNREACHABLE: stopped, and no scheduler .*/)]);
  expect(code).toBe(2);
});

/** Sends the process SIGTERM when it begins to take it. */
const AT_ONCE = `process.on('newListener', (name) => name === 'SIGTERM' && process.kill(process.pid, name));`;

async function endOf(command: string[]): Promise<{ how: unknown; said: string }> {
  const [program = '', ...before] = command;
  const args = [...before, `--import=data:text/javascript,${AT_ONCE}`, CLI, 'ps', ...SCHEDULER];
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  let said = '';
  child.stderr.on('data', (part: Buffer) => {
    said += part.toString('utf8');
  });
  const [code, signal] = await once(child, 'close');
  return { how: signal ?? code, said };
}

test('SIGTERM ends a program that still loads', async () => {
  expect(await endOf([process.execPath])).toEqual({ how: 'SIGTERM', said: '' });
});

const ALONE = ['unshare', '--pid', '--fork', '--kill-child'];
const canBeAlone = spawnSync('unshare', [...ALONE.slice(1), 'true']).status === 0;
if (!canBeAlone) console.error('LEFT OUT: the first process of a container: unshare needs root');
test.skipIf(!canBeAlone)('also when it is the first process of a container', async () => {
  expect(await endOf([...ALONE, process.execPath])).toEqual({ how: 128 + 15, said: '' });
});
