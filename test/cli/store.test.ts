/** A scheduler whose store fails ends with code 1, so that a supervisor starts it again. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { RawClient } from '../net/transport/support.js';
import { temporaryDirectory } from '../roles/support.js';
import { type Running, start } from './support.js';

/** `fileBytes` limits the size of every file that the process writes. */
async function scheduler(fileBytes?: number): Promise<{ running: Running; port: number; directory: string }> {
  const directory = join(temporaryDirectory(), 'job');
  const args = ['scheduler', '--listen', '127.0.0.1:0', '--dir', directory, '--log-format', 'json'];
  const running = start(args, {}, 'ignore', fileBytes);
  onTestFinished(() => void running.process.kill('SIGKILL'));
  const ready = await running.line((line) => line.includes('"scheduler.ready"'));
  const { address } = JSON.parse(ready) as { address: string };
  return { running, port: Number(address.split(':').at(-1)), directory };
}

/** Joins with a label of the greatest length. The scheduler writes a node before it answers it. */
async function joined(port: number, name: string): Promise<boolean> {
  const peer = await new RawClient(port).prove();
  peer.send({ t: 'join', name, host: 'h'.repeat(4096), address: '127.0.0.1:1', standby: false });
  const answered = await Promise.race([peer.next().then(() => true), peer.closed.then(() => false)]);
  peer.ws.terminate();
  return answered;
}

/** The exit code, and the lines in which the process says why it ends. */
async function ended(running: Running): Promise<[code: number | null, said: string[]]> {
  const { code, said } = await running.ended;
  return [code, said.filter((line) => line.startsWith('kintsugi: '))];
}

it('its directory is removed', async () => {
  const { running, port, directory } = await scheduler();
  expect(await joined(port, 'a')).toBe(true);
  rmSync(directory, { recursive: true });
  expect(await joined(port, 'b')).toBe(false);
  expect(await ended(running)).toEqual([
    1,
    [expect.stringMatching(/^kintsugi: STORE_FAILED: .* was removed or replaced/)],
  ]);
});

it('the disk is full', async () => {
  const { running, port } = await scheduler(256 << 10);
  let count = 0;
  while (await joined(port, `n${count}`)) count++;
  expect(await ended(running)).toEqual([1, [expect.stringMatching(/^kintsugi: STORE_FAILED: /)]]);
  expect(count).toBeGreaterThan(2);
});
