// Probes: only the machine that ran a process can prove that it is gone.
import { createServer } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { hostOf, pauseAfter, probe, provesGone } from '../../src/net/probe.js';

const refused = (...addresses: string[]): Error => {
  const errors = addresses.map((address) =>
    Object.assign(new Error('connect'), { code: 'ECONNREFUSED', address }),
  );
  return errors.length === 1 ? errors[0]! : Object.assign(new Error('all'), { errors });
};

it('a process that listens, and one that has ended', async () => {
  const server = createServer();
  onTestFinished(() => void server.close());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  expect(await probe({ host: '127.0.0.1', port }, undefined)).toBe('listening');
  await new Promise((resolve) => server.close(resolve));
  expect(await probe({ host: '127.0.0.1', port }, undefined)).toBe('gone');
  expect(await probe({ host: 'localhost', port }, undefined)).toBe('gone');
  expect(await probe({ host: 'no-such-host.invalid', port }, undefined)).toBe('unclear');
});

it.each([
  ['this machine', refused('127.0.0.1'), undefined, true],
  ['this machine under both its names', refused('::1', '127.0.0.1'), undefined, true],
  ['the machine that the process called from', refused('10.0.0.7'), '10.0.0.7', true],
  ['the same, written as IPv6', refused('10.0.0.7'), '::ffff:10.0.0.7', true],
  ['the same, written out', refused('10.0.0.7'), '0000:0000:0000:0000:0000:ffff:0a00:0007', true],
  ['a machine of which nothing is known', refused('10.0.0.7'), undefined, false],
  ['another machine, a forwarder perhaps', refused('10.0.0.1'), '10.0.0.7', false],
  ['one of two machines', refused('10.0.0.7', '10.0.0.8'), '10.0.0.7', false],
])('a refusal by %s', (_, error, from, certain) => {
  expect(provesGone(error, from)).toBe(certain);
});

it('another error is no proof', () => {
  const error = Object.assign(new Error('connect'), { code: 'EHOSTUNREACH', address: '127.0.0.1' });
  expect(provesGone(error, undefined)).toBe(false);
});

it.each([
  ['10.0.0.7', '10.0.0.7'],
  ['10.0.0.7:4000', '10.0.0.7'],
  ['::1', '::1'],
  ['[::1]:4000', '::1'],
  ['[::ffff:10.0.0.7]:4000', '::ffff:10.0.0.7'],
])('the address in %s', (remote, host) => {
  expect(hostOf(remote)).toBe(host);
});

it('many are probed less often than one, and each before it would be given up', () => {
  const pauses = [1, 64, 640, 1000, 100_000].map((probed) => pauseAfter('listening', probed, 1000));
  expect(pauses).toEqual([25, 25, 250, 390.625, 475]);
  expect(pauseAfter('listening', 1000, 20)).toBe(25);
});
