/** PS of one machine that say that each is a failure domain of its own: the scheduler warns. */
import { expect, it, onTestFinished } from 'vitest';
import { kintsugi, type Running, start } from './support.js';

function role(args: string[]): Running {
  const running = start([...args, '--log-format', 'json']);
  onTestFinished(() => void running.process.kill('SIGKILL'));
  return running;
}

it('names the labels to give', async () => {
  const scheduler = role(['scheduler', '--listen', '127.0.0.1:0', '--code', '1+1']);
  const ready = await scheduler.line((line) => line.includes('"scheduler.ready"'));
  const { address } = JSON.parse(ready) as { address: string };
  // Addresses for documentation: nobody has them.
  for (const [index, host] of ['192.0.2.1', '192.0.2.2'].entries())
    role(['ps', '--scheduler', address, '--advertise', host, '--host-label', `container-${index}`]);
  const line = await scheduler.line((text) => text.includes('"hosts.warning"'));
  const { level, message } = JSON.parse(line) as { level: string; message: string };
  expect([level, message]).toEqual(['warn', expect.stringMatching(/^all PS run on one machine/)]);
  const { stdout } = await kintsugi(['status', '--scheduler', address]);
  expect(stdout).toContain(`  warning: ${message}`);
});
