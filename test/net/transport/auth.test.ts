/** Tokens: which peers may open a link, and which callers may read over HTTP. */
import { request } from 'node:http';
import { afterEach, describe, expect, it } from 'vitest';
import {
  bearerMatches,
  clientHandshake,
  GATE_HEADER,
  gateOpens,
  gatePass,
  isLoopback,
  serverHandshake,
} from '../../../src/net/transport/auth.js';
import {
  dial,
  type HttpAnswer,
  type ListenOptions,
  type ServerKind,
} from '../../../src/net/transport/index.js';
import { HOST, RawClient, Recorder, rejection, serveFor } from './support.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const serve = (server: ServerKind, options: Partial<ListenOptions> = {}) =>
  serveFor(cleanups, { server, ...options });

/** A pass that was seen on an unencrypted network and is repeated: it opens the gate, and nothing else. */
const PASS = { [GATE_HEADER]: gatePass('secret') };

/** As short as a token may be that others can see proofs of. */
const LONG = '16 secret bytes.';

const join = (port: number, token?: string) => dial({ host: HOST, port, token, handlers: new Recorder() });

describe('handshake', () => {
  /** Runs both state machines against each other; `tamper` may change messages on the wire. */
  function run(
    serverToken: string | undefined,
    clientToken: string | undefined,
    tamper: (header: Record<string, unknown>) => object = (header) => header,
  ): { server: boolean; client: boolean } {
    const server = serverHandshake(serverToken);
    const client = clientHandshake(clientToken);
    const wire = (header: object): Record<string, unknown> =>
      tamper(header as Record<string, unknown>) as Record<string, unknown>;
    expect(client.start()).toBeUndefined();
    const proof = client.step(wire(server.start()!));
    const ready = server.step(wire(proof.send!));
    return { server: ready.done, client: client.step(wire(ready.send!)).done };
  }
  const code = (value: string) => expect.objectContaining({ code: value });

  it('succeeds with the same token, and without any', () => {
    expect(run('secret', 'secret')).toEqual({ server: true, client: true });
    expect(run(undefined, undefined)).toEqual({ server: true, client: true });
    expect(run('', undefined)).toEqual({ server: true, client: true });
  });

  it('fails with different tokens, and with one on either side only', () => {
    for (const [server, client] of [
      ['a', 'b'],
      ['a', undefined],
      [undefined, 'b'],
    ] as const) {
      expect(() => run(server, client)).toThrow(code('UNAUTHORIZED'));
    }
  });

  it('notices every change of a nonce or a mac', () => {
    for (const t of ['challenge', 'proof', 'ready']) {
      for (const field of ['nonce', 'mac']) {
        if ((t === 'challenge' && field === 'mac') || (t === 'ready' && field === 'nonce')) continue;
        const flip = (header: Record<string, unknown>): object => {
          if (header.t !== t) return header;
          const bytes = Uint8Array.from(header[field] as Uint8Array);
          bytes[7]! ^= 1;
          return { ...header, [field]: bytes };
        };
        expect(() => run('secret', 'secret', flip), `${t}.${field}`).toThrow(code('UNAUTHORIZED'));
        const drop = (header: Record<string, unknown>): object =>
          header.t === t ? { ...header, [field]: undefined } : header;
        expect(() => run('secret', 'secret', drop), `${t} without ${field}`).toThrow(
          code(field === 'mac' ? 'UNAUTHORIZED' : 'BAD_FRAME'),
        );
      }
    }
  });

  it('knows which of two tokens was used, and answers with the same', () => {
    const prove = (token: string) => {
      const server = serverHandshake('of clients', 'of nodes');
      const client = clientHandshake(token);
      const proof = client.step(server.start() as Record<string, unknown>);
      const ready = server.step(proof.send as Record<string, unknown>);
      expect(client.step(ready.send as Record<string, unknown>).done).toBe(true);
      return ready.proved;
    };
    expect([prove('of nodes'), prove('of clients')]).toEqual(['node', 'client']);
    expect(() => prove('of others')).toThrow(code('UNAUTHORIZED'));
    // A server with the token of clients only cannot serve a node: its answer is no mac of the right token.
    const dialing = clientHandshake('of nodes');
    const taken = serverHandshake('of clients');
    const proof = dialing.step(taken.start() as Record<string, unknown>);
    expect(() => taken.step(proof.send as Record<string, unknown>)).toThrow(code('UNAUTHORIZED'));
  });

  it('does not take the own proof back, and does not put the token on the wire', () => {
    let proof: Record<string, unknown> | undefined;
    const reflect = (header: Record<string, unknown>): object => {
      expect(JSON.stringify(header)).not.toContain('secret');
      if (header.t === 'proof') proof = header;
      return header.t === 'ready' ? { ...header, mac: proof!.mac } : header;
    };
    expect(() => run('secret', 'secret', reflect)).toThrow(code('UNAUTHORIZED'));
  });
});

describe.each<ServerKind>(['uws', 'ws'])('server %s', (kind) => {
  it('opens a link for the right token', async () => {
    const [listener, served] = await serve(kind, { token: 'secret' });
    const link = await join(listener.port, 'secret');
    await served.take('open');
    link.send({ t: 'hello' });
    expect((await served.take('message')).header).toEqual({ t: 'hello' });
  });

  it('says which of two tokens opened a link', async () => {
    const [listener, served] = await serve(kind, { token: 'of clients', nodeToken: 'of nodes' });
    const proved = async (token: string) => {
      const dialed = await join(listener.port, token);
      expect(dialed.proved).toBeUndefined();
      return (await served.take('open')).link.proved;
    };
    expect(await proved('of nodes')).toBe('node');
    expect(await proved('of clients')).toBe('client');
    expect((await rejection(join(listener.port, 'of others'))).code).toBe('UNAUTHORIZED');
  });

  it.each([
    ['without a token of clients', { nodeToken: 'n' }],
    ['that is the token of clients', { token: 'n', nodeToken: 'n' }],
    ['that is the token of metrics', { token: 't', nodeToken: 'n', metricsToken: 'n' }],
  ])('refuses a token of nodes %s', async (_, options) => {
    expect((await rejection(serve(kind, options))).code).toBe('BAD_ARGUMENT');
  });

  it('refuses a wrong, a missing and an unwanted token', async () => {
    const [listener, served] = await serve(kind, { token: 'secret' });
    expect((await rejection(join(listener.port, 'wrong'))).code).toBe('UNAUTHORIZED');
    expect((await rejection(join(listener.port))).code).toBe('UNAUTHORIZED');
    const [open, openEvents] = await serve(kind);
    expect((await rejection(join(open.port, 'secret'))).code).toBe('UNAUTHORIZED');
    await Promise.all([listener.close(), open.close()]);
    expect([served.events, openEvents.events]).toEqual([[], []]);
  });

  it('lets nobody without the token as far as the handshake', async () => {
    const [listener, served] = await serve(kind, { token: 'secret' });
    const passes = [undefined, '', 'secret', gatePass('wrong'), gatePass('secret').slice(1)];
    for (const pass of passes) {
      const raw = new RawClient(listener.port, pass === undefined ? {} : { [GATE_HEADER]: pass });
      expect(await raw.refused).toBe(401);
    }
    await listener.close();
    expect(served.events).toEqual([]);
  });

  it('closes with 4401 on a bad proof', async () => {
    const [listener] = await serve(kind, { token: 'secret' });
    for (const mac of [undefined, new Uint8Array(32), new Uint8Array(3), 'text']) {
      const raw = new RawClient(listener.port, PASS);
      expect(await raw.next()).toMatchObject({ t: 'challenge', auth: true });
      raw.send({ t: 'proof', nonce: new Uint8Array(32), ...(mac === undefined ? {} : { mac }) });
      expect(await raw.closed).toEqual({ code: 4401, reason: 'UNAUTHORIZED' });
    }
  });

  it('takes nothing else before the proof, and nothing long', async () => {
    const [listener, served] = await serve(kind, { token: 'secret' });
    for (const [header, parts] of [
      [{ t: 'pull' }, []],
      [{ t: 'proof', nonce: new Uint8Array(31) }, []],
      [{ t: 'proof', nonce: new Uint8Array(32) }, [new Uint8Array(5000)]],
    ] as [object, Uint8Array[]][]) {
      const raw = new RawClient(listener.port, PASS);
      await raw.next();
      raw.send(header, parts);
      expect(await raw.closed).toEqual({ code: 1002, reason: 'BAD_FRAME' });
    }
    await listener.close();
    expect(served.events).toEqual([]);
  });

  it('closes a connection that does not prove itself in time', async () => {
    const [listener] = await serve(kind, { limits: { handshakeMs: 50 } });
    expect((await new RawClient(listener.port).closed).code).toBe(4408);
  });

  it('limits connections that have not proved themselves, and only those', async () => {
    const [listener] = await serve(kind, { limits: { maxUnauthenticated: 2 } });
    const links = [await join(listener.port), await join(listener.port), await join(listener.port)];
    const waiting = [new RawClient(listener.port), new RawClient(listener.port)];
    await Promise.all(waiting.map((raw) => raw.next()));
    expect(await new RawClient(listener.port).refused).toBe(503);
    const { code, message } = await rejection(join(listener.port));
    expect(code).toBe('UNREACHABLE');
    expect(message).toMatch(/too many connections/);
    // A connection that goes makes room for another one.
    waiting[0]!.send({ t: 'nonsense' });
    await waiting[0]!.closed;
    expect((await join(listener.port)).outgoing).toBe(true);
    expect(links.every((link) => link.send({ t: 'x' }))).toBe(true);
  });

  it('limits links', async () => {
    const [listener] = await serve(kind, { limits: { maxLinks: 2 } });
    const [first] = [await join(listener.port), await join(listener.port)];
    expect((await rejection(join(listener.port))).code).toBe('UNREACHABLE');
    expect(first.send({ t: 'x' })).toBe(true);
  });

  it('needs a token beyond loopback', async () => {
    for (const host of ['0.0.0.0', '::', '', '192.0.2.1']) {
      expect((await rejection(serve(kind, { host }))).code).toBe('TOKEN_REQUIRED');
      expect((await rejection(serve(kind, { host, token: '' }))).code).toBe('TOKEN_REQUIRED');
    }
    const [listener] = await serve(kind, { host: '0.0.0.0', token: LONG });
    expect((await join(listener.port, LONG)).outgoing).toBe(true);
  });

  it('needs tokens that cannot be guessed beyond loopback', async () => {
    const short = LONG.slice(1);
    for (const tokens of [
      { token: short },
      { token: short, nodeToken: LONG },
      { token: LONG, nodeToken: 'é' },
    ]) {
      const { code, message } = await rejection(serve(kind, { host: '0.0.0.0', ...tokens }));
      expect([code, message]).toEqual(['BAD_ARGUMENT', expect.stringMatching(/must have at least 16 bytes/)]);
      expect(message).not.toContain(short);
      const [listener] = await serve(kind, tokens);
      expect((await join(listener.port, tokens.token)).outgoing).toBe(true);
    }
    await serve(kind, { host: '0.0.0.0', token: 'é'.repeat(8) });
  });

  describe('HTTP', () => {
    const answers: Record<string, () => Promise<HttpAnswer>> = {
      '/healthz': async () => ({ status: 200, type: 'text/plain', body: 'ok\n' }),
      '/readyz': async () => ({ status: 200, type: 'text/plain', body: 'ok\n' }),
      '/metrics': async () => ({ status: 200, type: 'text/plain; version=0.0.4', body: 'x 1\n' }),
      '/late': () => new Promise((resolve) => setImmediate(resolve, { status: 503, type: 'a/b', body: '' })),
      '/broken': async () => Promise.reject(new Error('a bug')),
    };
    const http = (path: string) => answers[path]?.();

    it('answers what the handler knows', async () => {
      const [listener] = await serve(kind, { http });
      const get = (path: string, method?: string) => fetchRaw(listener.port, path, {}, method);
      expect(await get('/healthz')).toEqual({ status: 200, type: 'text/plain', body: 'ok\n' });
      expect(await get('/metrics?x=1')).toEqual({
        status: 200,
        type: 'text/plain; version=0.0.4',
        body: 'x 1\n',
      });
      expect(await get('/late')).toEqual({ status: 503, type: 'a/b', body: '' });
      expect((await get('/nothing')).status).toBe(404);
      expect((await get('/link')).status).toBe(404);
      expect((await get('/healthz', 'POST')).status).toBe(405);
      expect(await get('/broken')).toMatchObject({ status: 500, body: 'a bug\n' });
    });

    it('answers 404 without a handler', async () => {
      const [listener] = await serve(kind);
      expect((await fetchRaw(listener.port, '/healthz')).status).toBe(404);
    });

    it('needs the token of metrics for all that tells of the job', async () => {
      const [listener] = await serve(kind, { http, token: 'secret', metricsToken: 'another' });
      const get = async (path: string, authorization?: string): Promise<number> =>
        (await fetchRaw(listener.port, path, authorization === undefined ? {} : { authorization })).status;
      expect(await get('/healthz')).toBe(200);
      expect(await get('/readyz')).toBe(200);
      expect(await get('/metrics')).toBe(401);
      expect(await get('/metrics', 'Bearer wrong')).toBe(401);
      expect(await get('/metrics', 'another')).toBe(401);
      expect(await get('/metrics', 'Bearer secret')).toBe(401);
      expect(await get('/metrics', 'Bearer another')).toBe(200);
      expect(await get('/nothing')).toBe(401);
    });

    it('without that token tells of the job on loopback only', async () => {
      for (const token of [undefined, 'secret']) {
        const [near] = await serve(kind, { http, token });
        expect((await fetchRaw(near.port, '/metrics')).status).toBe(200);
      }
      const [far] = await serve(kind, { http, token: LONG, host: '0.0.0.0' });
      for (const headers of [{}, { authorization: `Bearer ${LONG}` }])
        expect((await fetchRaw(far.port, '/metrics', headers)).status).toBe(403);
      expect((await fetchRaw(far.port, '/healthz')).status).toBe(200);
    });

    it('takes no token of metrics that is the token of the job', async () => {
      const same = { http, token: 'secret', metricsToken: 'secret' };
      expect((await rejection(serve(kind, same))).code).toBe('BAD_ARGUMENT');
    });

    it('survives a client that leaves before the answer', async () => {
      let left = (): void => {};
      const gone = new Promise<void>((resolve) => {
        left = resolve;
      });
      const client: { abort?: () => void } = {};
      const [listener] = await serve(kind, {
        http: (path) => {
          if (path !== '/slow') return http(path);
          client.abort!();
          return gone.then(() => ({ status: 200, type: 'text/plain', body: 'too late' }));
        },
      });
      const slow = request({ host: HOST, port: listener.port, path: '/slow' });
      client.abort = () => slow.destroy();
      slow.on('error', () => {});
      const closed = new Promise<void>((resolve) => slow.on('close', () => resolve()));
      slow.end();
      await closed;
      left();
      expect((await fetchRaw(listener.port, '/healthz')).status).toBe(200);
    });
  });
});

describe('small checks', () => {
  it('knows loopback addresses', () => {
    for (const host of ['127.0.0.1', '127.8.9.10', '::1', 'localhost', 'LOCALHOST'])
      expect(isLoopback(host)).toBe(true);
    for (const host of [
      '0.0.0.0',
      '',
      '::',
      '10.0.0.1',
      '127.0.0.1.example.org',
      '128.0.0.1',
      'localhost.org',
    ]) {
      expect(isLoopback(host)).toBe(false);
    }
  });

  it('has a gate only with a token', () => {
    expect(gateOpens(gatePass('secret'), 'secret')).toBe(true);
    for (const wrong of [undefined, '', 'secret', gatePass('Secret')])
      expect(gateOpens(wrong, 'secret')).toBe(false);
    for (const any of [undefined, '', gatePass('secret')]) expect(gateOpens(any, undefined)).toBe(true);
    expect(gatePass('secret')).not.toContain('secret');
  });

  it('compares bearer tokens', () => {
    expect(bearerMatches('Bearer secret', 'secret')).toBe(true);
    for (const wrong of [
      undefined,
      '',
      'secret',
      'Bearer',
      'Bearer secret ',
      'bearer secret',
      'Bearer secre',
    ]) {
      expect(bearerMatches(wrong, 'secret')).toBe(false);
    }
  });
});

function fetchRaw(
  port: number,
  path: string,
  headers: Record<string, string> = {},
  method = 'GET',
): Promise<{ status: number; type: string; body: string }> {
  return new Promise((resolve, reject) => {
    const sent = request({ host: HOST, port, path, headers, method, agent: false }, (response) => {
      let body = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => {
        body += chunk;
      });
      response.on('end', () =>
        resolve({ status: response.statusCode!, type: response.headers['content-type'] ?? '', body }),
      );
    });
    sent.on('error', reject);
    sent.end();
  });
}
