/** Several PS of one machine under one process: real processes, real signals. */
import { readFileSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';
import { type Client, connect } from '../../src/library/client/client.js';
import { digest } from '../../src/library/tools/digest.js';
import { drain } from '../../src/library/tools/scaling.js';
import { fill, redundancy } from '../library/tools/support.js';
import { kintsugi, type Running, record, start } from './support.js';

function role(args: string[]): Running {
  const running = start([...args, '--log-format', 'json']);
  onTestFinished(() => void running.process.kill('SIGKILL'));
  return running;
}

/** Resolves with the first record that matches, now or later. */
async function recordOf(running: Running, fits: (fields: Record<string, unknown>) => boolean) {
  const line = await running.line((text) => text.startsWith('{') && fits(JSON.parse(text)));
  return JSON.parse(line) as Record<string, unknown>;
}

const ready = (running: Running, name: string, after = 0) =>
  recordOf(running, (each) => each.event === 'ps.ready' && each.name === name && Number(each.mono) > after);
const pidOf = async (running: Running, process: string, after = 0) =>
  recordOf(
    running,
    (each) => each.event === 'process.started' && each.process === process && Number(each.mono) > after,
  ).then(({ pid }) => Number(pid));

async function startScheduler(code: string, ps: number): Promise<string> {
  const scheduler = role(['scheduler', '--listen', '127.0.0.1:0', '--code', code, '--ps', String(ps)]);
  return String((await record(scheduler, 'scheduler.ready')).address);
}

async function open(address: string): Promise<Client> {
  const client = await connect(address, { connectTimeoutMs: 60_000 });
  onTestFinished(() => client.close());
  return client;
}

/** Whether a process with this id runs. A zombie does not. */
function runs(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

async function gone(pids: readonly number[]): Promise<void> {
  while (pids.some(runs)) await new Promise((resolve) => setImmediate(resolve));
}

const flags = (address: string, n: number, host: string, timeout = '60s') => [
  ...['ps', '--scheduler', address, '--processes', String(n), '--name', host, '--host-label', host],
  ...['--connect-timeout', timeout],
];

test('a PS that is killed is started again, and nothing is lost; SIGTERM drains all', async () => {
  const address = await startScheduler('1+1', 4);
  const [a, b] = ['a', 'b'].map((host) => role(flags(address, 2, host))) as [Running, Running];
  const client = await open(address);
  await fill(client);
  const before = await digest(client);
  const { nodes, groups } = client.clusterMap;
  expect(nodes.map(({ name, host }) => `${name} ${host}`).sort()).toEqual([
    'a-0 a',
    'a-1 a',
    'b-0 b',
    'b-1 b',
  ]);
  // There are two machines, so members of a group are on different ones.
  const hostOf = (id: number) => nodes.find((node) => node.id === id)?.host;
  for (const { data, sinks } of groups) {
    const hosts = [...data, ...sinks].map(({ node }) => hostOf(node));
    expect(new Set(hosts).size).toBe(hosts.length);
  }
  const { mono } = await ready(a, 'a-1');
  process.kill(await pidOf(a, 'a-1'), 'SIGKILL');
  const ended = await recordOf(a, (each) => each.event === 'process.ended');
  expect(ended).toMatchObject({ process: 'a-1', signal: 'SIGKILL', ending: 'crashed', pauseMs: 100 });
  await ready(a, 'a-1', Number(mono));
  expect(await digest(client)).toEqual(before);
  await redundancy(client, 'full');
  const drained = (name: string) => recordOf(a, (each) => each.event === 'ps.drained' && each.name === name);
  a.process.kill('SIGTERM');
  await Promise.all([drained('a-0'), drained('a-1')]);
  expect((await a.ended).code).toBe(0);
  expect(await digest(client)).toEqual(before);
  b.process.kill('SIGINT');
  expect((await b.ended).code).toBe(0);
}, 120_000);

test('one that the job told to leave is not started again; the last one ends the supervisor', async () => {
  const address = await startScheduler('none', 1);
  const other = role(flags(address, 1, 'b'));
  await ready(other, 'b-0');
  const a = role(flags(address, 2, 'a'));
  await Promise.all([ready(a, 'a-0'), ready(a, 'a-1')]);
  const client = await open(address);
  await drain(client, 'a-0');
  const left = await recordOf(a, (each) => each.event === 'process.ended');
  expect(left).toMatchObject({ process: 'a-0', code: 0, ending: 'left' });
  await drain(client, 'a-1');
  expect((await a.ended).code).toBe(0);
}, 120_000);

test('kintsugi restart: each is emptied, and started again by the supervisor', async () => {
  const address = await startScheduler('1+1', 3);
  const a = role(flags(address, 3, 'a'));
  const client = await open(address);
  await fill(client, 30);
  const before = await digest(client);
  const { stdout, code } = await kintsugi(['restart', 'a-1', 'a-0', '--scheduler', address]);
  expect([code, stdout]).toEqual([0, expect.stringMatching(/^a-1: .*\na-0: .*\n2 PS were restarted\n$/)]);
  for (const name of ['a-0', 'a-1']) {
    const ended = await recordOf(a, (each) => each.event === 'process.ended' && each.process === name);
    expect(ended).toMatchObject({ code: 75, ending: 'restart' });
  }
  expect(await digest(client)).toEqual(before);
}, 120_000);

test('none survives the SIGKILL of the supervisor', async () => {
  const address = await startScheduler('none', 1);
  const a = role(flags(address, 2, 'a'));
  const pids = [await pidOf(a, 'a-0'), await pidOf(a, 'a-1')];
  await Promise.all([ready(a, 'a-0'), ready(a, 'a-1')]);
  expect(pids.map(runs)).toEqual([true, true]);
  a.process.kill('SIGKILL');
  await gone(pids);
}, 120_000);

test('what one refuses at its start ends all, with its code', async () => {
  const a = await role(flags('127.0.0.1:1', 2, 'a', '1s')).ended;
  expect(a.code).toBe(2);
  expect(a.said.join()).toMatch(/^kintsugi: UNREACHABLE: a-[01]: /);
  const b = await role([...flags('127.0.0.1:1', 2, 'b'), '--listen', '127.0.0.1:65535']).ended;
  expect(b.code).toBe(2);
  expect(b.said.join()).toMatch(/^kintsugi: BAD_ARGUMENT: --listen 127.0.0.1:65535 leaves no port/);
}, 120_000);

test('one that crashes again and again is said to fail and comes back; the others serve on', async () => {
  const address = await startScheduler('1+1', 2);
  const others = role(flags(address, 2, 'b'));
  await Promise.all([ready(others, 'b-0'), ready(others, 'b-1')]);
  const a = role(flags(address, 2, 'a'));
  await Promise.all([ready(a, 'a-0'), ready(a, 'a-1')]);
  let after = 0;
  for (let i = 0; i <= 5; i++) {
    const begun = await recordOf(a, (each) => {
      return each.event === 'process.started' && each.process === 'a-1' && Number(each.mono) > after;
    });
    after = Number(begun.mono);
    process.kill(Number(begun.pid), 'SIGKILL');
  }
  const failing = await recordOf(a, (each) => each.event === 'process.failing' && each.crashes === 6);
  expect(failing).toMatchObject({ process: 'a-1', pauseMs: 3200 });
  expect(failing.message).toMatch(/^a-1 was ended by SIGKILL/);
  await ready(a, 'a-1', after);
  a.process.kill('SIGTERM');
  expect((await a.ended).code).toBe(0);
  const drained = (name: string) => recordOf(a, (each) => each.event === 'ps.drained' && each.name === name);
  await Promise.all([drained('a-0'), drained('a-1')]);
}, 120_000);
