/** A role that met a broken invariant ends its process with a code, so that a supervisor restarts it. */
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { record, start } from './support.js';

const fixture = (name: string): string => fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url));
const BROKEN = fixture('broken-owner.mjs');
const BROKEN_AT_SIGTERM = fixture('broken-at-sigterm.mjs');

it('a PS that throws while it follows a map exits with 1, one line, and its state in the log', async () => {
  const scheduler = start(['scheduler', '--listen', '127.0.0.1:0', '--ps', '1', '--code', 'none']);
  onTestFinished(() => void scheduler.process.kill('SIGKILL'));
  const { address } = await record(scheduler, 'scheduler.ready');
  const ps = start(['ps', '--scheduler', `${address}`, '--name', 'ps-0', '--log-format', 'json'], {
    NODE_OPTIONS: `--import=${BROKEN}`,
  });
  onTestFinished(() => void ps.process.kill('SIGKILL'));
  const failed = await record(ps, 'ps.failed');
  expect(failed).toMatchObject({ message: 'planted', state: { epoch: expect.any(Number) } });
  expect(JSON.stringify(failed.state)).toContain('"phase":"ACTIVE"');
  const { code, said } = await ps.ended;
  expect([code, said]).toEqual([1, ['kintsugi: INTERNAL: the ps has ended: planted']]);
});

it('a PS that throws while it is drained exits with 1 at once', async () => {
  const scheduler = start(['scheduler', '--listen', '127.0.0.1:0', '--ps', '1', '--code', 'none']);
  onTestFinished(() => void scheduler.process.kill('SIGKILL'));
  const { address } = await record(scheduler, 'scheduler.ready');
  const ps = start(['ps', '--scheduler', `${address}`, '--name', 'ps-0'], {
    NODE_OPTIONS: `--import=${BROKEN_AT_SIGTERM}`,
  });
  onTestFinished(() => void ps.process.kill('SIGKILL'));
  await record(ps, 'ps.ready');
  // A stopped scheduler does not answer the PS that wants to leave.
  scheduler.process.kill('SIGSTOP');
  ps.process.kill('SIGTERM');
  const { code, said } = await ps.ended;
  expect([code, said]).toEqual([1, ['kintsugi: INTERNAL: the ps has ended: planted']]);
});
