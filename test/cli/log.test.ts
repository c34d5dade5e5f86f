/** Real processes whose standard error or output nobody reads any more, as when `tee` or `head` has ended. */
import { once } from 'node:events';
import { expect, onTestFinished, test } from 'vitest';
import type { Client } from '../../src/library/client/client.js';
import { digest } from '../../src/library/tools/digest.js';
import { fill } from '../library/tools/support.js';
import { client, cluster, redundant, statusWhere } from '../roles/support.js';
import { type Running, record, start } from './support.js';

function role(args: string[]): Running {
  const running = start([...args, '--log-format', 'json']);
  onTestFinished(() => void running.process.kill('SIGKILL'));
  return running;
}

/** Closes the log of the process, as a reader does that ends. */
async function unread({ process }: Running): Promise<void> {
  const closed = once(process.stderr!, 'close');
  process.stderr!.destroy();
  await closed;
}

async function open(address: string): Promise<Client> {
  return client(address, { connectTimeoutMs: 60_000 });
}

test('PS whose log nobody reads hand over what they hold, and the others serve on', async () => {
  const { address } = await cluster({ code: '1+1', ps: 2 });
  const names = [0, 1, 2].map((i) => `other-${i}`);
  const nodes = names.map((name) =>
    role(['ps', '--scheduler', address, '--name', name, '--host-label', name]),
  );
  await Promise.all(nodes.map((node) => record(node, 'ps.ready')));
  const from = await open(address);
  await fill(from);
  const before = await digest(from);
  await Promise.all(nodes.map(unread));
  // A PS logs the beginning and the end of its drain, and its own end.
  for (const node of nodes.slice(1)) {
    node.process.kill('SIGTERM');
    expect((await node.ended).code).toBe(0);
  }
  await redundant(from, 3);
  expect(await digest(from)).toEqual(before);
  expect(nodes[0]!.process.exitCode).toBeNull();
}, 120_000);

test('a supervisor whose log nobody reads starts a PS again', async () => {
  const { address } = await cluster({ code: '1+1', ps: 2 });
  const flags = ['--scheduler', address, '--processes', '2', '--name', 'a', '--host-label', 'a'];
  const supervisor = role(['ps', ...flags]);
  const ready = (name: string) =>
    supervisor.line((text) => /"event":"ps.ready"/.test(text) && text.includes(`"name":"${name}"`));
  await Promise.all([ready('a-0'), ready('a-1')]);
  const { pid } = await record(supervisor, 'process.started');
  const from = await open(address);
  const { nodes } = await from.status();
  const before = nodes.find(({ name }) => name === 'a-0')!;
  await unread(supervisor);
  process.kill(Number(pid), 'SIGKILL');
  const back = statusWhere(from, 'a-0 again', (status) =>
    status.nodes.some(({ name, alive, inc }) => name === 'a-0' && alive && inc > before.inc),
  );
  const died = supervisor.ended.then(({ code }) => Promise.reject(new Error(`it ended with ${code}`)));
  await Promise.race([back, died]);
  supervisor.process.kill('SIGTERM');
  expect((await supervisor.ended).code).toBe(0);
}, 120_000);

test('a command whose output nobody reads ends', async () => {
  const { address } = await cluster({ code: 'none', ps: 1 });
  const from = await open(address);
  const follower = start(['events', '--follow', '--scheduler', address]);
  onTestFinished(() => void follower.process.kill('SIGKILL'));
  await once(follower.process.stdout!, 'data');
  const closed = once(follower.process.stdout!, 'close');
  follower.process.stdout!.destroy();
  await closed;
  await from.tellEvent('autoscale.decided', { action: 'scale' });
  expect((await follower.ended).code).toBe(0);
}, 120_000);
