/** Signals to a PS that has not joined yet: real processes. */
import { expect, onTestFinished, test } from 'vitest';
import { record, start } from './support.js';

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
