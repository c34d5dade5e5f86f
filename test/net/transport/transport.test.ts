/** Links over both servers: the same behaviour, whichever library is below. */
import { networkInterfaces } from 'node:os';
import { afterEach, describe, expect, it } from 'vitest';
import { KintsugiError } from '../../../src/common/errors.js';
import {
  type DialOptions,
  dial,
  type Link,
  type ListenOptions,
  listen,
  type ServerKind,
  TRANSPORT_LIMITS,
} from '../../../src/net/transport/index.js';
import { listenUws } from '../../../src/net/transport/uws-server.js';
import { encodeFrame } from '../../../src/protocol/frame.js';
import { HOST, RawClient, Recorder, rejection, serveFor, stalledClient } from './support.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const serve = (server: ServerKind, options: Partial<ListenOptions> = {}) =>
  serveFor(cleanups, { server, ...options });

async function join(port: number, options: Partial<DialOptions> = {}): Promise<[Link, Recorder]> {
  const handlers = new Recorder();
  const link = await dial({ host: HOST, port, handlers, ...options });
  expect((await handlers.take('open')).link).toBe(link);
  return [link, handlers];
}

describe.each<ServerKind>(['uws', 'ws'])('server %s', (kind) => {
  it('carries frames both ways, in order', async () => {
    const [listener, served] = await serve(kind);
    expect(listener.kind).toBe(kind);
    expect(listener.port).toBeGreaterThan(0);
    const [link, received] = await join(listener.port);
    const back = (await served.take('open')).link;
    expect([link.outgoing, back.outgoing]).toEqual([true, false]);
    expect(link.id).not.toBe(back.id);
    expect(link.remote).toBe(`${HOST}:${listener.port}`);
    expect(back.remote).toContain(HOST);
    for (let i = 0; i < 100; i++) {
      // All messages share one buffer, so send has to copy.
      const part = new Uint8Array(i * 700).fill(i);
      expect(link.send({ t: 'there', i }, [part, Uint8Array.of(i)])).toBe(true);
      part.fill(255);
    }
    for (let i = 0; i < 100; i++) {
      const { header, parts } = await served.take('message');
      expect(header).toEqual({ t: 'there', i });
      expect(parts.length).toBe(2);
      // Bytes are compared at once, because element by element takes seconds.
      expect(Buffer.compare(parts[0]!, Buffer.alloc(i * 700, i))).toBe(0);
      expect(parts[1]).toEqual(Uint8Array.of(i));
      const part = Uint8Array.of(i);
      expect(back.send({ t: 'back', i }, [part])).toBe(true);
      part[0] = 255;
    }
    for (let i = 0; i < 100; i++) {
      const { header, parts } = await received.take('message');
      expect([header, parts]).toEqual([{ t: 'back', i }, [Uint8Array.of(i)]]);
    }
  });

  it('keeps large and small frames whole that share what the kernel hands over', async () => {
    const [listener, served] = await serve(kind);
    const [link, received] = await join(listener.port);
    const back = (await served.take('open')).link;
    // Sizes are around that of a read, far above it, and between, so that frames end in the middle of a read.
    const sizes = Array.from(
      { length: 60 },
      (_, i) => [65_536, 3, 65_490, 1_000_000, 131_072, 40_000][i % 6]! + i,
    );
    const bytesOf = (i: number, salt: number) => Buffer.alloc(sizes[i]!, (i + salt) % 251 || 1);
    for (const [i] of sizes.entries()) {
      link.send({ t: 'there', i }, [bytesOf(i, 0)]);
      back.send({ t: 'back', i }, [bytesOf(i, 100)]);
    }
    for (const [events, salt] of [
      [served, 0],
      [received, 100],
    ] as const) {
      for (const [i] of sizes.entries()) {
        const { header, parts } = await events.take('message');
        expect([header.i, Buffer.compare(parts[0]!, bytesOf(i, salt))]).toEqual([i, 0]);
      }
    }
  });

  it('sends one encoded frame to every link, small or large, and never writes to its memory', async () => {
    for (const bytes of [10, 100_000]) {
      const [listener, served] = await serve(kind);
      const links = [await join(listener.port), await join(listener.port), await join(listener.port)];
      const back = [];
      for (const _ of links) back.push((await served.take('open')).link);
      const frame = encodeFrame({ t: 'all' }, [new Uint8Array(bytes).fill(7)]);
      const copy = frame.slice();
      for (const link of back) {
        link.send({ t: 'before' }, [new Uint8Array(bytes)]);
        expect(link.sendEncoded(frame)).toBe(true);
        link.send({ t: 'after' }, [new Uint8Array(bytes)]);
      }
      for (const [, received] of links) {
        expect((await received.take('message')).header).toEqual({ t: 'before' });
        const { header, parts } = await received.take('message');
        expect([header, parts[0]!.every((byte) => byte === 7)]).toEqual([{ t: 'all' }, true]);
        expect((await received.take('message')).header).toEqual({ t: 'after' });
      }
      // A client masks its frames.
      expect(links[0]![0].sendEncoded(frame)).toBe(true);
      expect((await served.take('message')).header).toEqual({ t: 'all' });
      expect(Buffer.compare(frame, copy)).toBe(0);
      back[0]!.close();
      expect(back[0]!.sendEncoded(frame)).toBe(false);
    }
    const [listener, served] = await serve(kind, { maxFrameBytes: 4096 });
    await join(listener.port);
    const { link } = await served.take('open');
    expect(() => link.sendEncoded(new Uint8Array(4097))).toThrow(KintsugiError);
  });

  it('closes from either side, with the reason, once', async () => {
    const [listener, served] = await serve(kind);
    const [first, firstEvents] = await join(listener.port);
    await served.take('open');
    first.close('enough');
    expect(firstEvents.events).toEqual([]);
    first.close('again');
    expect(first.send({ t: 'late' })).toBe(false);
    expect(first.bufferedBytes).toBe(0);
    expect((await firstEvents.take('close')).reason).toBe('enough');
    expect((await served.take('close')).reason).toBe('enough');

    const [, secondEvents] = await join(listener.port);
    const { link } = await served.take('open');
    link.close('go away');
    expect((await secondEvents.take('close')).reason).toBe('go away');
    expect((await served.take('close')).reason).toBe('go away');
    await listener.close();
    expect([served.events, firstEvents.events, secondEvents.events]).toEqual([[], [], []]);
  });

  it('sends what is buffered before a close', async () => {
    const [listener, served] = await serve(kind);
    const [, received] = await join(listener.port);
    const { link } = await served.take('open');
    const part = new Uint8Array(1 << 20);
    let sent = 0;
    do link.send({ t: 'x', n: sent++ }, [part]);
    while (link.bufferedBytes < 4 << 20);
    link.close('done');
    for (let n = 0; n < sent; n++) expect((await received.take('message')).header.n).toBe(n);
    expect((await received.take('close')).reason).toBe('done');
  });

  it('sends the answers of a handler that then closes', async () => {
    const handlers = new Recorder();
    handlers.onMessage = (link) => {
      for (let i = 0; i < 10; i++) link.send({ t: 'answer', i }, [new Uint8Array(i * 100_000)]);
      link.close('answered');
      expect(link.send({ t: 'late' })).toBe(false);
    };
    const [listener] = await serve(kind, { handlers });
    const [link, received] = await join(listener.port);
    link.send({ t: 'ask' });
    link.send({ t: 'ask' });
    for (let i = 0; i < 10; i++) {
      const { header, parts } = await received.take('message');
      expect([header.i, parts[0]!.length]).toEqual([i, i * 100_000]);
    }
    expect((await received.take('close')).reason).toBe('answered');
    await handlers.take('open');
    await handlers.take('close');
  });

  it('tells both sides when the listener closes, and frees the port', async () => {
    const [listener, served] = await serve(kind);
    const [, received] = await join(listener.port);
    await served.take('open');
    await listener.close();
    expect((await served.take('close')).reason).toBe('shutting down');
    expect((await received.take('close')).reason).toBe('shutting down');
    expect((await rejection(join(listener.port))).code).toBe('UNREACHABLE');
    const [again] = await serve(kind, { port: listener.port });
    expect(again.port).toBe(listener.port);
  });

  it('reports a peer that vanishes', async () => {
    const [listener, served] = await serve(kind);
    const raw = await new RawClient(listener.port).prove();
    await served.take('open');
    raw.ws.terminate();
    expect((await served.take('close')).reason).toBe('connection lost');
  });

  it('closes a link with BAD_FRAME on garbage, and lives on', async () => {
    const [listener, served] = await serve(kind);
    const garbage: [string, Uint8Array | string][] = [
      ['no frame', Uint8Array.of(1, 2, 3)],
      ['empty', new Uint8Array(0)],
      ['noise', new Uint8Array(100).fill(0x91)],
      ['text', 'hello'],
    ];
    for (const [, bytes] of garbage) {
      const raw = await new RawClient(listener.port).prove();
      await served.take('open');
      raw.ws.send(bytes);
      expect(await raw.closed).toEqual({ code: 1002, reason: 'BAD_FRAME' });
      expect((await served.take('close')).reason).toMatch(/^BAD_FRAME/);
    }
    const [link] = await join(listener.port);
    link.send({ t: 'fine' });
    await served.take('open');
    expect((await served.take('message')).header.t).toBe('fine');
  });

  it('closes a link whose handler finds BAD_FRAME, and reports any other error of a handler', async () => {
    const errors = [new KintsugiError('BAD_FRAME', 'no such message'), new Error('a bug')];
    const served = new Recorder();
    served.onMessage = (_, header) => {
      throw errors[header.i as number];
    };
    const [listener] = await serve(kind, { handlers: served });
    for (const [i, code, reason] of [
      [0, 1002, 'BAD_FRAME'],
      [1, 1011, 'INTERNAL'],
    ] as const) {
      const raw = await new RawClient(listener.port).prove();
      await served.take('open');
      raw.send({ t: 'x', i });
      if (i === 1) expect((await served.take('error')).error).toBe(errors[1]);
      expect(await raw.closed).toEqual({ code, reason });
      expect((await served.take('close')).reason).toBe(i === 0 ? 'BAD_FRAME: no such message' : 'a bug');
    }
  });

  it('refuses to send a frame above the limit, and closes a link that receives one', async () => {
    const [listener, served] = await serve(kind, { maxFrameBytes: 10_000 });
    const [link] = await join(listener.port, { maxFrameBytes: 20_000 });
    const back = (await served.take('open')).link;
    expect(() => back.send({ t: 'x' }, [new Uint8Array(10_000)])).toThrow(
      expect.objectContaining({ code: 'LIMIT' }),
    );
    link.send({ t: 'x' }, [new Uint8Array(9_900)]);
    expect((await served.take('message')).parts[0]!.length).toBe(9_900);
    link.send({ t: 'x' }, [new Uint8Array(10_000)]);
    expect((await served.take('close')).link).toBe(back);
    expect(served.events).toEqual([]);
  });

  it('closes a link that receives more than the client accepts', async () => {
    const [listener, served] = await serve(kind);
    const [, received] = await join(listener.port, { maxFrameBytes: 10_000 });
    (await served.take('open')).link.send({ t: 'x' }, [new Uint8Array(20_000)]);
    expect((await received.take('close')).reason).toMatch(/payload size/i);
    await served.take('close');
  });

  it('closes a link that buffers too much, from the server', async () => {
    const [listener, served] = await serve(kind, { maxBufferedBytes: 3 << 20 });
    const socket = stalledClient(listener.port);
    cleanups.push(() => socket.destroy());
    const { link } = await served.take('open');
    const part = new Uint8Array(1 << 20);
    let sent = 0;
    while (link.send({ t: 'x' }, [part])) {
      expect(link.bufferedBytes).toBeLessThanOrEqual(3 << 20);
      expect(++sent).toBeLessThan(100);
    }
    expect(sent).toBeGreaterThan(2);
    expect(served.events).toEqual([]);
    const { reason } = await served.take('close');
    expect(reason).toMatch(/bytes wait to be sent \(maxBufferedBytes = 3145728\)/);
    expect([link.send({ t: 'x' }), link.bufferedBytes]).toEqual([false, 0]);
  });

  it('gives up a close for which the other side does not read', async () => {
    const [listener, served] = await serve(kind, { limits: { closeMs: 50 } });
    const socket = stalledClient(listener.port);
    cleanups.push(() => socket.destroy());
    const { link } = await served.take('open');
    const part = new Uint8Array(1 << 20);
    do link.send({ t: 'x' }, [part]);
    while (link.bufferedBytes < 4 << 20);
    // This resolves only when the server's socket is gone, though its peer neither reads nor closes.
    await listener.close();
    expect((await served.take('close')).reason).toBe('shutting down');
  });

  it('keeps 1 MiB replies whole when the socket buffer is full', async () => {
    const [listener] = await serve(kind, { handlers: flood });
    expect(await flooded(listener.port)).toBe('all replies are whole');
  });

  it('rejects a port in use', async () => {
    const [listener] = await serve(kind);
    for (const second of ['uws', 'ws'] as const) {
      const { code, message } = await rejection(serve(second, { port: listener.port }));
      expect([code, message]).toEqual(['PORT_IN_USE', `port ${listener.port} on ${HOST} is in use`]);
    }
  });

  it('listens and dials on IPv6', async ({ skip }) => {
    if (!Object.values(networkInterfaces()).some((list) => list?.some((it) => it.address === '::1'))) skip();
    const [listener] = await serve(kind, { host: '::1' });
    expect((await join(listener.port, { host: '::1' }))[0].remote).toBe(`::1:${listener.port}`);
  });

  it('rejects what is no port', async () => {
    for (const port of [-1, 65_536, 1.5, Number.NaN]) {
      expect((await rejection(serve(kind, { port }))).code).toBe('BAD_ARGUMENT');
    }
  });

  it('rejects an address that is not ours', async () => {
    // 192.0.2.0/24 is reserved for documentation.
    expect((await rejection(serve(kind, { host: '192.0.2.1', token: 'x' }))).code).toBe('BAD_ARGUMENT');
  });

  it('answers WebSocket upgrades of browsers with an HTTP error', async () => {
    const [listener] = await serve(kind);
    expect(await new RawClient(listener.port, { Origin: 'http://example.org' }).refused).toBe(403);
  });
});

/**
 * Answers each request by 1 MiB replies until the socket buffer is full, and then by a reply with their
 * number.
 */
const flood = {
  onOpen() {},
  onClose() {},
  onMessage(link: Link) {
    const part = new Uint8Array(1 << 20).fill(7);
    let n = 0;
    do link.send({ t: 'reply', n: n++ }, [part]);
    while (link.bufferedBytes === 0);
    for (let more = 0; more < 3; more++) link.send({ t: 'reply', n: n++ }, [part]);
    link.send({ t: 'end', n });
  },
};

/** Asks 20 times over one connection for a flood. Returns the first problem with the replies. */
async function flooded(port: number): Promise<string> {
  const [link, received] = await join(port);
  const [empty, whole] = [new Uint8Array(0), new Uint8Array(1 << 20).fill(7)];
  for (let round = 0; round < 20; round++) {
    link.send({ t: 'more' });
    for (let n = 0; ; n++) {
      const event = await received.next();
      if (event.kind !== 'message') return `${event.kind} instead of reply ${n}`;
      const { header, parts } = event;
      if (header.n !== n) return `reply ${header.n} instead of ${n}`;
      if (header.t === 'end') break;
      if (Buffer.compare(parts[0] ?? empty, whole) !== 0) return `reply ${n} is damaged`;
    }
  }
  link.close();
  return 'all replies are whole';
}

describe('uWebSockets.js', () => {
  it('damages the stream without the workaround, so the test above tests it', async () => {
    const listener = await listenUws({ host: HOST, port: 0, handlers: flood }, TRANSPORT_LIMITS, false);
    cleanups.push(() => listener.close());
    expect(await flooded(listener.port)).not.toBe('all replies are whole');
  });
});

describe('the choice of the server', () => {
  const choose = async (value: string): Promise<ServerKind> => {
    const before = process.env.KINTSUGI_TRANSPORT;
    process.env.KINTSUGI_TRANSPORT = value;
    cleanups.push(() => {
      if (before === undefined) delete process.env.KINTSUGI_TRANSPORT;
      else process.env.KINTSUGI_TRANSPORT = before;
    });
    const listener = await listen({ host: HOST, port: 0, handlers: new Recorder() });
    cleanups.push(() => listener.close());
    return listener.kind;
  };

  it('follows KINTSUGI_TRANSPORT, and prefers uws', async () => {
    expect(await choose('ws')).toBe('ws');
    expect(await choose('uws')).toBe('uws');
    expect(await choose('')).toBe('uws');
    expect((await rejection(choose('tcp'))).code).toBe('BAD_ARGUMENT');
  });
});
