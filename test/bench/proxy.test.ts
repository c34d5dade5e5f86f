/** The proxies of bench chaos. */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { TcpProxy } from '../../bench/chaos/proxy.js';
import { freePort } from '../free-port.js';

/** Bytes that passed would have come in this time. */
const HELD_MS = 200;
const SCRIPT = new URL('../../dist/bench/chaos/proxy-process.js', import.meta.url);

async function proxyTo(port?: number, patient = false): Promise<TcpProxy> {
  const proxy = await TcpProxy.start(patient, SCRIPT);
  onTestFinished(() => proxy.close());
  if (port !== undefined) proxy.aim(port);
  return proxy;
}

/** Answers what it hears. */
async function echo(): Promise<number> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.pipe(socket);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

/** A connection that is joined through. */
async function through(proxy: TcpProxy): Promise<Socket> {
  const socket = connect(proxy.port, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  socket.write('hello');
  expect(String(await once(socket, 'data'))).toBe('hello');
  return socket;
}

test('what is cut ends with a reset, the rest goes on', async () => {
  const proxy = await proxyTo(await echo());
  const [first, second] = [await through(proxy), await through(proxy)];
  expect(proxy.connections).toBe(2);
  proxy.cut([0]);
  const [error] = (await once(first, 'error')) as [NodeJS.ErrnoException];
  expect(error.code).toBe('ECONNRESET');
  second.write('still here');
  expect(String(await once(second, 'data'))).toBe('still here');
  expect(proxy.connections).toBe(1);
});

test('no byte passes while it is held, and all do after', async () => {
  const proxy = await proxyTo(await echo());
  const before = await through(proxy);
  proxy.hold();
  const after = connect(proxy.port, '127.0.0.1');
  onTestFinished(() => void after.destroy());
  const heard: string[] = [];
  for (const [name, socket] of Object.entries({ before, after })) {
    socket.on('data', (data) => heard.push(`${name} ${data}`));
    socket.write('held');
  }
  await pause(HELD_MS);
  expect(heard).toEqual([]);
  proxy.release();
  await expect.poll(() => heard.toSorted()).toEqual(['after held', 'before held']);
});

test('a port without a process refuses, or has connections wait for one, as asked', async () => {
  const port = await echo();
  const patient = await proxyTo(undefined, true);
  const waiting = through(patient);
  const impatient = await proxyTo();
  await expect(through(impatient)).rejects.toThrow(/ECONNRESET|EPIPE/);
  patient.aim(port);
  const socket = await waiting;
  patient.close();
  await once(socket, 'close');
  await expect.poll(() => through(patient).then(String, (failed) => failed.code)).toBe('ECONNREFUSED');
});

test('a process that is busy keeps nobody from a connection', async () => {
  const port = await freePort();
  const proxy = await proxyTo(port);
  const program = `
    const net = require('node:net');
    net.createServer((socket) => socket.pipe(socket)).listen(${port}, '127.0.0.1', () => {
      net.connect(${proxy.port}, '127.0.0.1').on('data', () => process.exit(0)).write('hello');
    });`;
  // The event loop of this process does not turn until that one ends.
  const { status } = spawnSync(process.execPath, ['-e', program], { timeout: 20_000 });
  expect(status).toBe(0);
});
