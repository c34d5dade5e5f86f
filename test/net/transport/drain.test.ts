// A server counts what a socket has not taken, tells when it is taken, and frees it when the link closes.
import { setImmediate as turn } from 'node:timers/promises';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { dial, type Link, type ListenOptions, PartMemory } from '../../../src/net/transport/index.js';
import { hasOpenssl, makeCertificates } from './certificates.js';
import { HOST, Recorder, serveFor } from './support.js';

/** More than the kernel takes at once. */
const LARGE = 24 << 20;

const certificates = hasOpenssl ? makeCertificates() : undefined;
afterAll(() => certificates?.remove());
const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const ways: { name: string; options: Partial<ListenOptions> }[] = [
  { name: 'uws', options: { server: 'uws' } },
  { name: 'ws', options: { server: 'ws' } },
  ...(certificates ? [{ name: 'TLS', options: { tls: certificates.tls } }] : []),
];

describe.each(ways)('a link that was accepted over $name', ({ options }) => {
  async function connected() {
    const [listener, server] = await serveFor(cleanups, options);
    const client = new Recorder();
    const tls = options.tls && certificates && { caFile: certificates.tls.caFile };
    const dialed = await dial({ host: HOST, port: listener.port, handlers: client, tls });
    cleanups.push(() => dialed.abandon('the test is over'));
    const { link } = await server.take('open');
    await client.take('open');
    const drained = new Promise<Link>((resolve) => Object.assign(server, { onDrain: resolve }));
    return { link, server, client, drained };
  }

  it('counts what the kernel has not taken, and tells when it has', async () => {
    const { link, client, drained } = await connected();
    link.send({ t: 'rows' }, [new Uint8Array(LARGE)]);
    expect(link.bufferedBytes).toBeGreaterThan(LARGE / 4);
    expect(await drained).toBe(link);
    await client.take('message');
    expect(link.bufferedBytes).toBe(0);
  });

  it('gives the memory of its frames back when it closes, whatever was not sent', async () => {
    const { link, server } = await connected();
    const memory = new PartMemory();
    for (let i = 0; i < 3; i++) {
      const buffer = memory.open(LARGE);
      const part = buffer.memory.subarray(buffer.at, buffer.at + LARGE);
      buffer.took(part);
      link.send({ t: 'rows' }, [part]);
      buffer.close();
    }
    expect(link.bufferedBytes).toBeGreaterThan(0);
    link.abandon('it does not read');
    await server.take('close');
    expect(link.bufferedBytes).toBe(0);
    while (memory.lentBytes > 0) await turn();
  });
});
