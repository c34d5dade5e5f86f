/** Streams: sent as fast as the receiver reads, ended by either side, limited in number. */
import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { afterEach, describe, expect, it } from 'vitest';
import type { HttpAnswer, ListenOptions, ServerKind } from '../../../src/net/transport/index.js';
import { MAX_STREAMS, Streams } from '../../../src/net/transport/streams.js';
import { HOST, serveFor } from './support.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const serve = (server: ServerKind, options: Partial<ListenOptions> = {}) =>
  serveFor(cleanups, { server, ...options });

/** A source of pieces that counts how often it is asked. */
class Source {
  queue: string[] = [];
  asked = 0;
  ended = 0;
  private wake = (): void => {};
  private waiting: (() => void) | undefined;

  get answer(): HttpAnswer {
    const stream = {
      open: (wake: () => void) => {
        this.wake = wake;
        return () => {
          this.ended++;
          this.waiting?.();
        };
      },
      next: () => {
        this.asked++;
        return this.queue.shift() ?? '';
      },
    };
    return { status: 200, type: 'text/event-stream', body: 'first\n', stream };
  }

  say(...texts: string[]): void {
    this.queue.push(...texts);
    this.wake();
  }

  over(): Promise<void> {
    if (this.ended > 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.waiting = resolve;
    });
  }
}

async function get(port: number, path = '/stream', headers = {}): Promise<[IncomingMessage, ClientRequest]> {
  const asked = request({ host: HOST, port, path, headers });
  asked.on('error', () => {});
  const answered = new Promise<IncomingMessage>((resolve) => asked.on('response', resolve));
  asked.end();
  const response = await answered;
  response.on('error', () => {});
  return [response, asked];
}

async function read(response: IncomingMessage, bytes: number): Promise<string> {
  let text = '';
  for await (const chunk of response.iterator({ destroyOnReturn: false })) {
    text += String(chunk);
    if (text.length >= bytes) break;
  }
  return text;
}

describe.each<ServerKind>(['uws', 'ws'])('%s', (kind) => {
  it('sends what comes, and ends when the reader leaves', async () => {
    const source = new Source();
    const [listener] = await serve(kind, { http: async () => source.answer });
    const [response, asked] = await get(listener.port);
    expect([response.statusCode, response.headers['content-type']]).toEqual([200, 'text/event-stream']);
    expect(await read(response, 6)).toBe('first\n');
    source.say('second\n', 'third\n');
    expect(await read(response, 13)).toBe('second\nthird\n');
    asked.destroy();
    await source.over();
    source.say('nobody is there\n');
    expect(source.queue).toHaveLength(1);
  });

  it('asks for no more than a slow reader takes', async () => {
    const source = new Source();
    const [listener] = await serve(kind, { http: async () => source.answer });
    const [response, asked] = await get(listener.port);
    const piece = 'x'.repeat(1 << 20);
    source.say(...Array.from({ length: 200 }, () => piece));
    // Only pieces that the kernel takes are asked for.
    expect(source.queue.length).toBeGreaterThan(100);
    expect((await read(response, 6 + 200 * piece.length)).length).toBeGreaterThanOrEqual(
      6 + 200 * piece.length,
    );
    expect(source.queue).toEqual([]);
    asked.destroy();
    await source.over();
  });

  it('sends the rest of the last piece, too, to a reader that comes late', async () => {
    const source = new Source();
    const [listener] = await serve(kind, { http: async () => source.answer });
    const [response, asked] = await get(listener.port);
    // This is more than the kernel takes, and nothing follows it.
    const piece = 'x'.repeat(32 << 20);
    source.say(piece);
    expect((await read(response, 6 + piece.length)).slice(0, 6 + piece.length)).toBe(`first\n${piece}`);
    asked.destroy();
    await source.over();
  });

  it('ends with the listener', async () => {
    const source = new Source();
    const [listener] = await serve(kind, { http: async () => source.answer });
    const [response] = await get(listener.port);
    const ended = new Promise<void>((resolve) => response.on('close', () => resolve()));
    response.resume();
    await listener.close();
    await ended;
    expect(source.ended).toBe(1);
  });

  it('has so many at most', async () => {
    const [listener] = await serve(kind, { http: async () => new Source().answer });
    const open: ClientRequest[] = [];
    for (let i = 0; i < MAX_STREAMS; i++) open.push((await get(listener.port))[1]);
    expect((await get(listener.port))[0].statusCode).toBe(503);
    for (const asked of open) asked.destroy();
  });

  it('without a token answers to names of this machine only', async () => {
    const http = async () => ({ status: 200, type: 'text/plain', body: 'x' });
    const [open] = await serve(kind, { http });
    const status = async (host: string, port = open.port, headers = {}) => {
      const [response] = await get(port, '/status', { host, ...headers });
      response.resume();
      return response.statusCode;
    };
    for (const host of ['localhost', 'localhost:7077', '127.0.0.1:7077', '[::1]:7077'])
      expect(await status(host)).toBe(200);
    for (const host of ['evil.example', 'localhost.evil.example:7077', '10.0.0.1'])
      expect(await status(host)).toBe(403);
    const [closed] = await serve(kind, { http, token: 'secret', metricsToken: 'another' });
    const headers = { authorization: 'Bearer another' };
    expect(await status('scheduler.cluster', closed.port, headers)).toBe(200);
    expect(await status('scheduler.cluster', closed.port)).toBe(401);
  });
});

it('a stream that has ended asks for nothing', () => {
  const source = new Source();
  const streams = new Streams();
  const written: string[] = [];
  const stream = streams.add(source.answer.stream!, {
    write: (text) => written.push(text) > 1,
    end: () => {},
  });
  source.queue.push('a', 'b', 'c');
  stream.begin();
  expect(written).toEqual(['a']);
  stream.drained();
  expect(written).toEqual(['a', 'b', 'c']);
  stream.closed();
  stream.closed();
  source.say('d');
  streams.close();
  expect([written.length, source.ended]).toEqual([3, 1]);
});
