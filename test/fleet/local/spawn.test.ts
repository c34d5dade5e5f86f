/** The system refuses to start a process: for want of memory, or of descriptors. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, onTestFinished, test, vi } from 'vitest';
import { EventLog } from '../../roles/support.js';

const FIXTURES = new URL('../../fixtures/', import.meta.url);
let refusals = 0;

vi.mock('node:child_process', async (original) => {
  const real = await original<typeof import('node:child_process')>();
  const spawn = (...args: Parameters<typeof real.spawn>) => {
    // As Node does when the system has no memory for a process.
    if (refusals-- > 0) throw Object.assign(new Error('spawn ENOMEM'), { code: 'ENOMEM', syscall: 'spawn' });
    return real.spawn(...args);
  };
  return { ...real, spawn };
});
const { Child } = await import('../../../src/fleet/local/child.js');
const { Supervisor } = await import('../../../src/fleet/local/supervisor.js');

const cliPath = fileURLToPath(new URL('crash-or-live.mjs', FIXTURES));

test('a PS that cannot be started is started later, and the others live on', async () => {
  const log = new EventLog();
  let beReady = (): void => {};
  const ready = new Promise<void>((resolve) => {
    beReady = resolve;
  });
  const supervisor = new Supervisor({
    processes: ['a', 'b'].map((name) => ({ name, args: ['live'] })),
    ...{ cliPath, log, onLine: () => {} },
    onEvent: ({ source }) => source === 'a' && beReady(),
  });
  onTestFinished(() => supervisor.stop('SIGINT'));
  await ready;
  const pid = log.events.find(({ fields }) => fields.process === 'a')?.fields.pid;
  const again = log.next('process.started');
  refusals = 2;
  process.kill(Number(pid), 'SIGKILL');
  await again;
  const crashed = { ending: 'crashed', code: null };
  expect(log.events.map(({ event, fields }) => ({ event, ...fields }))).toMatchObject([
    { event: 'process.started', process: 'a' },
    { event: 'process.started', process: 'b' },
    { event: 'process.ended', process: 'a', ...crashed, signal: 'SIGKILL', pauseMs: 100 },
    { event: 'process.ended', process: 'a', ...crashed, signal: null, pauseMs: 200 },
    { event: 'process.ended', process: 'a', ...crashed, signal: null, pauseMs: 400 },
    { event: 'process.started', process: 'a' },
  ]);
  expect(log.events[3]!.fields.message).toBe('a cannot be started: spawn ENOMEM');
});

test('a process that cannot be started has ended, and may be told to end', async () => {
  refusals = 1;
  const child = new Child({ name: 'ps-0', args: [], cliPath, onEvent: () => {} });
  expect([child.alive, child.pid]).toEqual([false, undefined]);
  await expect(child.event('ps.ready')).rejects.toMatchObject({ code: 'INTERNAL' });
  child.kill();
  child.signal('SIGTERM');
  await child.stop();
  const missing = new Child({ name: 'ps-1', args: [], prefix: ['/nowhere/program'], onEvent: () => {} });
  const death = missing.deathOf(await missing.exited);
  expect(death.message).toMatch(/^ps-1 cannot be started: .*ENOENT/);
});

test('without a descriptor left it is tried again, too', async () => {
  const script = fileURLToPath(new URL('no-descriptors.mjs', FIXTURES));
  const limited = ['-c', 'ulimit -n 128; exec "$@"', 'sh', process.execPath, script];
  const { stdout } = await promisify(execFile)('/bin/sh', limited);
  expect(JSON.parse(stdout)).toMatchObject([
    { event: 'process.started' },
    { event: 'process.ended', signal: 'SIGKILL', pauseMs: 100 },
    { event: 'process.ended', code: null, signal: null, pauseMs: 200 },
    { event: 'process.started' },
  ]);
});
