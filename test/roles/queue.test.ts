/**
 * A message that waits for a connection is a copy: the sender may reuse or free its memory as soon as `send`
 * has returned.
 */
import { expect, it, onTestFinished } from 'vitest';
import { Peers } from '../../src/net/peers.js';
import { listen, release } from '../../src/net/transport/index.js';
import { packItems } from '../../src/protocol/items.js';
import { EventLog } from './support.js';

it('a message that waits for a connection keeps its payload when the sender frees it', async () => {
  let arrived: (payload: number[]) => void = () => {};
  const payload = new Promise<number[]>((resolve) => {
    arrived = resolve;
  });
  const listener = await listen({
    host: '127.0.0.1',
    port: 0,
    handlers: {
      onOpen: () => {},
      onMessage: (_, header, parts) => {
        if (header.t === 'pull') arrived([parts[0]!.byteLength, parts[0]![0]!, parts[0]!.at(-1)!]);
      },
      onClose: () => {},
    },
  });
  const peers = new Peers({
    self: () => ({ peer: 1, inc: 1, job: 'a job' }),
    resolve: () => ({ host: '127.0.0.1', port: listener.port, inc: 1 }),
    onMessage: () => {},
    onUp: () => {},
    log: new EventLog(),
  });
  onTestFinished(async () => {
    peers.close();
    await listener.close();
  });
  const section = new Uint8Array(100_000).fill(7);
  peers.send(2, { t: 'pull', epoch: 1, id: 1, items: packItems('pull', [[0, 0, section.byteLength]]) }, [
    section,
  ]);
  release([section]);
  expect(section.byteLength).toBe(0);
  expect(await payload).toEqual([100_000, 7, 7]);
});
