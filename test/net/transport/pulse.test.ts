/** The pulse of connections, with every server and at either end. */
import { afterEach, describe, expect, it } from 'vitest';
import { dial, type Link } from '../../../src/net/transport/index.js';
import { hasOpenssl, makeCertificates } from './certificates.js';
import { HOST, Recorder, serveFor } from './support.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** Resolves when the pulse of the connection is known. */
async function known(link: Link): Promise<number> {
  while (link.unacknowledgedMs === undefined) await new Promise((resolve) => setTimeout(resolve, 5));
  return link.unacknowledgedMs;
}

describe.runIf(process.platform === 'linux')('the pulse of a link', () => {
  it.each(['uws', 'ws', 'tls'] as const)('is known at both ends (%s)', async (kind) => {
    if (kind === 'tls' && !hasOpenssl) return;
    const made = kind === 'tls' ? makeCertificates() : undefined;
    cleanups.push(() => made?.remove());
    const tls = made && { server: made.tls, client: { caFile: made.tls.caFile } };
    const [listener, served] = await serveFor(cleanups, {
      server: kind === 'uws' ? 'uws' : 'ws',
      ...(tls && { tls: tls.server }),
    });
    const pairs: Link[] = [];
    for (let i = 0; i < 3; i++) {
      const { port } = listener;
      const handlers = new Recorder();
      const link = await dial({ host: HOST, port, handlers, ...(tls && { tls: tls.client }) });
      cleanups.push(() => link.close());
      pairs.push(link, (await served.take('open')).link);
    }
    expect(pairs.map(({ unacknowledgedMs }) => unacknowledgedMs)).toEqual(pairs.map(() => undefined));
    for (const link of pairs) link.watch(10);
    expect(await Promise.all(pairs.map(known))).toEqual(pairs.map(() => 0));
  });

  it('abandons a link at once, whatever waits to be sent', async () => {
    const [listener, served] = await serveFor(cleanups, {});
    const handlers = new Recorder();
    const link = await dial({ host: HOST, port: listener.port, handlers });
    await served.take('open');
    await handlers.take('open');
    link.send({ t: 'x' }, [new Uint8Array(8 << 20)]);
    link.abandon('its machine is gone');
    expect((await handlers.take('close')).reason).toBe('its machine is gone');
    let closed = await served.next();
    while (closed.kind === 'message') closed = await served.next();
    expect(closed.kind).toBe('close');
  });
});
