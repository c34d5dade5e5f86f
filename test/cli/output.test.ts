/** Standard output that its reader closes, and one that cannot be written. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, openSync } from 'node:fs';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { type LocalCluster, startLocalCluster } from '../../src/roles/cluster.js';
import { CLI } from './support.js';

let cluster: LocalCluster;
beforeAll(async () => {
  cluster = await startLocalCluster({ code: '1+1' });
});
afterAll(() => cluster.close());

test.each([
  ['top', ['--interval', '100ms', '--json']],
  ['top', ['--interval', '100ms']],
])('%s %s ends without a word when nobody reads on', async (command, flags) => {
  const child = spawn(process.execPath, [CLI, command, '--scheduler', cluster.address, ...flags], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  let said = '';
  child.stderr.on('data', (part: Buffer) => {
    said += part.toString('utf8');
  });
  child.stdout.once('data', () => child.stdout.destroy());
  expect([...(await once(child, 'close')), said]).toEqual([0, null, '']);
});

test.skipIf(!existsSync('/dev/full'))('what cannot be written is an error', async () => {
  const full = openSync('/dev/full', 'w');
  const child = spawn(process.execPath, [CLI, 'status', '--scheduler', cluster.address], {
    stdio: ['ignore', full, 'pipe'],
  });
  let said = '';
  child.stderr!.on('data', (part: Buffer) => {
    said += part.toString('utf8');
  });
  const [code] = await once(child, 'close');
  expect([code, said]).toEqual([
    1,
    expect.stringMatching(/^kintsugi: SYSTEM_LIMIT: standard output cannot be written: ENOSPC.*\n$/),
  ]);
});
