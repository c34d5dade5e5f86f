/** A job of real processes is looked at: whole, and with a PS that was killed. */
import { expect, onTestFinished, test } from 'vitest';
import { renderFindings } from '../../src/cli/doctor.js';
import type { Finding } from '../../src/library/observe/findings/index.js';
import { client, noticed, redundant } from '../roles/support.js';
import { kintsugi, record, start } from './support.js';

const PS = ['--connect-timeout', '60s', '--log-format', 'json'];

test('nothing is wrong; then a PS is killed, and it says what is and what to do', async () => {
  const scheduler = start(['scheduler', '--listen', '127.0.0.1:0', '--ps', '3', '--code', '2+1']);
  const address = `${(await record(scheduler, 'scheduler.ready')).address}`;
  const nodes = [0, 1, 2, 3].map((i) =>
    start(['ps', '--name', `ps-${i}`, '--host-label', `h${i}`, '--scheduler', address, ...PS]),
  );
  onTestFinished(async () => {
    for (const { process } of [...nodes, scheduler]) process.kill('SIGKILL');
    await Promise.all([...nodes, scheduler].map(({ ended }) => ended));
  });
  await Promise.all(nodes.map((node) => record(node, 'ps.ready')));
  const watcher = await client(address);
  await redundant(watcher, 4);
  const asked = ['--for', '400ms', '--scheduler', address];
  const whole = await kintsugi(['doctor', ...asked, '--json']);
  expect([whole.code, JSON.parse(whole.stdout)]).toEqual([0, { findings: [] }]);
  nodes[0]!.process.kill('SIGKILL');
  await noticed(watcher, 'ps-0');
  const { code, stdout } = await kintsugi(['doctor', ...asked]);
  expect(code).toBe(1);
  expect(stdout).toContain('warning  no-spare  job\n  seen: 3 PS are alive, and a group lies on 3: ');
}, 180_000);

test('what is found is shown with evidence and advice, and nothing is said as well', () => {
  const finding: Finding = {
    ...{ code: 'memory', severity: 'error', subject: 'ps-1' },
    ...{ evidence: 'it is full', advice: 'add one' },
  };
  expect(renderFindings([finding], 1000)).toBe('error  memory  ps-1\n  seen: it is full\n  do:   add one\n');
  expect(renderFindings([], 2000)).toBe('nothing found in 2.00 s\n');
});
