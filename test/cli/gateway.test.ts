// `kintsugi gateway` as a process: it says when it listens, and leaves nothing behind.
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { temporaryDirectory } from '../roles/support.js';
import { Program } from '../training/gateway/program.js';
import { kintsugi, record, start } from './support.js';

it('a gateway that was killed is replaced at its path, and one that ends leaves nothing', async () => {
  const path = join(temporaryDirectory(), 'gateway.sock');
  const args = ['gateway', '--scheduler', '127.0.0.1:1', '--socket', path, '--log-format', 'json'];
  const killed = start(args);
  await record(killed, 'gateway.ready');
  killed.process.kill('SIGKILL');
  await killed.ended;
  expect(existsSync(path)).toBe(true);
  const second = start(args);
  await record(second, 'gateway.ready');
  const program = await Program.at(path);
  expect(await program.value({ op: 'hello', version: 1, timeoutMs: 100 })).toBe('UNREACHABLE');
  second.process.kill('SIGTERM');
  const { code, stdout } = await second.ended;
  expect([code, stdout]).toEqual([0, `${path}\n`]);
  expect(readdirSync(join(path, '..'))).toEqual([]);
});

it('flags are checked', async () => {
  const { code, stderr } = await kintsugi(['gateway']);
  expect([code, stderr]).toEqual([2, expect.stringContaining('--socket')]);
  const nowhere = await kintsugi(['gateway', '--socket', '/nowhere/gateway.sock']);
  expect(nowhere.stderr).toContain('kintsugi: BAD_ARGUMENT: --socket /nowhere/gateway.sock');
});
