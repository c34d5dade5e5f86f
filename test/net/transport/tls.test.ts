/**
 * TLS on a listener and through a whole cluster: encrypted when asked for, refused with a wrong certificate.
 */
import { readFileSync } from 'node:fs';
import { request } from 'node:https';
import { connect as connectTcp, createServer } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { connect } from '../../../src/library/client/client.js';
import { type DialOptions, dial, type Link, type ListenOptions } from '../../../src/net/transport/index.js';
import { startLocalCluster } from '../../../src/roles/cluster.js';
import { type Certificates, hasOpenssl, makeCertificates } from './certificates.js';
import { HOST, Recorder, rejection, serveFor } from './support.js';

let certificates: Certificates;
beforeAll(() => {
  if (hasOpenssl) certificates = makeCertificates();
});
afterAll(() => certificates?.remove());
const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const serve = (options: Partial<ListenOptions> = {}) =>
  serveFor(cleanups, { tls: certificates.tls, ...options });

async function join(port: number, options: Partial<DialOptions> = {}): Promise<[Link, Recorder]> {
  const handlers = new Recorder();
  const tls = { caFile: certificates.tls.caFile };
  const link = await dial({ host: HOST, port, handlers, tls, ...options });
  await handlers.take('open');
  return [link, handlers];
}

/** Status and body of a GET over https. */
function get(port: number, path: string, ca: string): Promise<[number, string]> {
  return new Promise((resolve, reject) => {
    const sent = request({ host: HOST, port, path, ca, agent: false }, (response) => {
      let body = '';
      response.on('data', (chunk: Buffer) => {
        body += chunk.toString();
      });
      response.on('end', () => resolve([response.statusCode!, body]));
    });
    sent.on('error', reject);
    sent.end();
  });
}

describe.skipIf(!hasOpenssl)('a listener with TLS', () => {
  it('carries small and large frames both ways', async () => {
    const [listener, served] = await serve({ token: 'secret' });
    expect(listener.kind).toBe('ws');
    const [link, received] = await join(listener.port, { token: 'secret' });
    const back = (await served.take('open')).link;
    const sizes = [0, 1, 16_383, 16_384, 100_000, 5 << 20];
    for (const from of [link, back])
      for (const size of sizes) from.send({ t: 'x', size }, [new Uint8Array(size).fill(size)]);
    for (const to of [served, received]) {
      for (const size of sizes) {
        const { header, parts } = await to.take('message');
        expect(header.size).toBe(size);
        expect(Buffer.compare(parts[0]!, Buffer.alloc(size, size))).toBe(0);
      }
    }
    link.close('done');
    expect((await served.take('close')).reason).toBe('done');
  });

  it('carries large frames both ways at once', async () => {
    const [listener, served] = await serve();
    const [link, received] = await join(listener.port);
    const back = (await served.take('open')).link;
    for (let i = 0; i < 100; i++)
      for (const from of [link, back]) expect(from.send({ t: 'x', i }, [new Uint8Array(100_000)])).toBe(true);
    for (const to of [served, received])
      for (let i = 0; i < 100; i++) expect((await to.take('message')).header.i).toBe(i);
  });

  it('is not to be had with the server uws', async () => {
    const { code, message } = await rejection(serve({ server: 'uws' }));
    expect([code, message]).toEqual(['BAD_ARGUMENT', expect.stringMatching(/use "ws"/)]);
  });

  it('puts nothing readable on the wire', async () => {
    const [listener] = await serve();
    const seen: Buffer[] = [];
    const tap = createServer((socket) => {
      const onward = connectTcp(listener.port, HOST);
      socket.on('data', (chunk) => seen.push(chunk)).pipe(onward);
      onward.on('data', (chunk) => seen.push(chunk)).pipe(socket);
      for (const each of [socket, onward]) each.on('error', () => {});
    });
    await new Promise<void>((resolve) => tap.listen(0, HOST, resolve));
    cleanups.push(() => tap.close());
    const [link, received] = await join((tap.address() as { port: number }).port);
    link.send({ t: 'a readable kind' }, [Buffer.from('a readable payload')]);
    link.close();
    await received.take('close');
    const wire = Buffer.concat(seen).toString('latin1');
    expect(wire.length).toBeGreaterThan(500);
    for (const text of ['readable', 'challenge', 'nonce', 'HTTP', '/link']) expect(wire).not.toContain(text);
  });

  it('is verified: authority, name, and nothing in the environment switches that off', async () => {
    const [listener, served] = await serve();
    const { caFile } = certificates.tls;
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0');
    cleanups.push(() => vi.unstubAllEnvs());
    for (const tls of [{ caFile: certificates.otherCa }, {}, { caFile, serverName: 'elsewhere.test' }]) {
      const { code, message } = await rejection(join(listener.port, { tls }));
      expect([code, message]).toEqual(['UNAUTHORIZED', expect.stringMatching(/not to be trusted/)]);
    }
    for (const tls of [
      { caFile, serverName: 'node.test' },
      { caFile, serverName: HOST },
    ])
      (await join(listener.port, { tls }))[0].close();
    (await join(listener.port, { host: 'localhost' }))[0].close();
    await listener.close();
    expect(served.events.filter((event) => event.kind === 'open').length).toBe(3);
  });

  it('refuses peers that do not speak it, and lives on', async () => {
    const [listener, served] = await serve();
    const [link] = await join(listener.port);
    await served.take('open');
    const plain = await rejection(join(listener.port, { tls: undefined }));
    expect([plain.code, plain.message]).toEqual(['UNREACHABLE', expect.stringMatching(/TLS/)]);
    const garbage = connectTcp(listener.port, HOST);
    garbage.on('error', () => {});
    const cut = new Promise<void>((resolve) => garbage.on('close', () => resolve()));
    garbage.resume().write('SSH-2.0-x\r\n'.repeat(100));
    await cut;
    link.send({ t: 'still here' });
    expect((await served.take('message')).header).toEqual({ t: 'still here' });

    const [open] = await serve({ tls: undefined });
    const secured = await rejection(join(open.port));
    expect([secured.code, secured.message]).toEqual(['UNREACHABLE', expect.stringMatching(/TLS/)]);
  });

  it('answers /healthz and /metrics over https, and not over http', async () => {
    const http = async (path: string) => ({ status: 200, type: 'text/plain', body: `at ${path}` });
    const [listener] = await serve({ http });
    const ca = readFileSync(certificates.tls.caFile, 'utf8');
    expect(await get(listener.port, '/healthz', ca)).toEqual([200, 'at /healthz']);
    expect(await get(listener.port, '/metrics', ca)).toEqual([200, 'at /metrics']);
    await expect(fetch(`http://${HOST}:${listener.port}/healthz`)).rejects.toThrow();
  });

  it('says which file is wrong', async () => {
    const { certFile, keyFile, caFile } = certificates.tls;
    for (const [tls, text] of [
      [{ certFile: '/nowhere.pem', keyFile }, /certificate cannot be read/],
      [{ certFile, keyFile: '/nowhere.key' }, /key cannot be read/],
      [{ certFile: caFile, keyFile }, /cannot be used/],
      [{ certFile: keyFile, keyFile }, /cannot be used/],
    ] as const) {
      const { code, message } = await rejection(serve({ tls }));
      expect([code, message]).toEqual(['BAD_ARGUMENT', expect.stringMatching(text)]);
    }
    const [listener] = await serve();
    for (const file of ['/nowhere.pem', keyFile])
      expect((await rejection(join(listener.port, { tls: { caFile: file } }))).code).toBe('BAD_ARGUMENT');
  });

  it('does not replace the token', async () => {
    expect((await rejection(serve({ host: '0.0.0.0' }))).code).toBe('TOKEN_REQUIRED');
    // Nobody sees a proof from which a short one could be guessed.
    await serve({ host: '0.0.0.0', token: 'secret' });
    const [listener] = await serve({ token: 'secret' });
    for (const token of [undefined, 'wrong'])
      expect((await rejection(join(listener.port, { token }))).code).toBe('UNAUTHORIZED');
  });
});

describe.skipIf(!hasOpenssl)('a cluster', () => {
  it('trains with TLS on every connection', async () => {
    const { tls, otherCa } = certificates;
    const cluster = await startLocalCluster({ code: '2+1', token: 'secret', tls });
    cleanups.push(() => cluster.close());
    const client = await connect(cluster.address, { token: 'secret', tls: { caFile: tls.caFile } });
    cleanups.push(() => client.close());
    const table = await client.createTable({
      name: 'items',
      dim: 2,
      optimizer: { kind: 'sgd', lr: 1 },
      initializer: { kind: 'zeros' },
    });
    const keys = BigUint64Array.from({ length: 1000 }, (_, i) => BigInt(i));
    await table.push(keys, new Float32Array(2000).fill(-1));
    expect(await table.pull(keys)).toEqual(new Float32Array(2000).fill(1));
    // Every role listens with TLS only, so a plain dial must fail.
    for (const { address } of [cluster, ...cluster.nodes]) {
      const port = Number(address.split(':')[1]);
      const options = { host: HOST, port, token: 'secret', handlers: new Recorder() };
      expect((await rejection(dial(options))).message).toMatch(/TLS/);
    }
    const strange = connect(cluster.address, { token: 'secret', tls: { caFile: otherCa } });
    expect((await rejection(strange)).code).toBe('UNAUTHORIZED');
    await cluster.kill(0);
    expect(await table.pull(keys)).toEqual(new Float32Array(2000).fill(1));
  });
});
