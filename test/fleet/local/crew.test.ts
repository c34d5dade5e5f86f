import { EventEmitter } from 'node:events';
import { expect, onTestFinished, test, vi } from 'vitest';
import type { Client } from '../../../src/library/client/client.js';

vi.mock('node:child_process', () => ({
  spawn: () => Object.assign(new EventEmitter(), { unref: () => {}, exitCode: null }),
}));
const { MachineCrew } = await import('../../../src/fleet/local/crew.js');

test('a PS has its time to join when the clock of the machine is set', async () => {
  const clock = vi.spyOn(Date, 'now');
  onTestFinished(() => clock.mockRestore());
  const now = Date.now();
  let asked = 0;
  const status = async () => {
    clock.mockImplementation(() => now + 3_600_000);
    return { nodes: asked++ === 0 ? [] : [{ name: `ps-by-${process.pid}-0`, alive: true }] };
  };
  const client = { status } as unknown as Client;
  const flags = { reach: [], psFlags: [], workerFlags: undefined, known: () => [] };
  await new MachineCrew({ client, ...flags }).startPs();
  expect(asked).toBe(2);
});
