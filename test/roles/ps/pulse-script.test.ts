/** The thread for pulses before a scheduler that is slow to answer. */
import { once } from 'node:events';
import { type AddressInfo, createServer, connect as dial } from 'node:net';
import { Worker } from 'node:worker_threads';
import { expect, onTestFinished, test } from 'vitest';
import { createLogger } from '../../../src/net/log.js';
import { listen } from '../../../src/net/transport/index.js';
import { PulseThread } from '../../../src/roles/ps/pulse-thread.js';

const SCRIPT = new URL('../../../dist/src/roles/ps/pulse-script.js', import.meta.url);
const LATE_MS = 1500;

/** Each connection is carried to `port`, but late; their number. */
async function late(port: number): Promise<{ port: number; connections: () => number }> {
  let connections = 0;
  const server = createServer((outer) => {
    connections++;
    outer.pause().on('error', () => {});
    setTimeout(() => {
      const inner = dial(port, '127.0.0.1').on('error', () => {});
      outer.pipe(inner).pipe(outer);
    }, LATE_MS);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => void server.close());
  return { port: (server.address() as AddressInfo).port, connections: () => connections };
}

test('a scheduler that answers late hears the pulse on the first connection', async () => {
  let hear: (header: unknown) => void = () => {};
  const heard = new Promise((resolve) => {
    hear = resolve;
  });
  const scheduler = await listen({
    ...{ host: '127.0.0.1', port: 0 },
    handlers: { onOpen: () => {}, onMessage: (_, header) => hear(header), onClose: () => {} },
  });
  onTestFinished(() => scheduler.close());
  const before = await late(scheduler.port);
  const address = `127.0.0.1:${before.port}`;
  const make = (_: URL, options: object) => new Worker(SCRIPT, options);
  const route = { scheduler: address, token: undefined, tls: undefined };
  const pulses = new PulseThread(route, createLogger('none', {}), make);
  onTestFinished(() => pulses.close());
  pulses.tell({ node: 3, inc: 7, job: 'job', scheduler: address });
  expect(await heard).toMatchObject({ t: 'pulse', node: 3, inc: 7, job: 'job' });
  expect(before.connections()).toBe(1);
});
