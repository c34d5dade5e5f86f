/**
 * Dialing: servers that refuse, stay silent or speak another protocol, and the client's bytes on the wire.
 */
import type { Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { WebSocketServer } from 'ws';
import { type DialOptions, dial, type Link } from '../../../src/net/transport/index.js';
import { encodeFrame } from '../../../src/protocol/frame.js';
import { HOST, Recorder, rejection, silentServer } from './support.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function join(port: number, options: Partial<DialOptions> = {}): Promise<[Link, Recorder]> {
  const handlers = new Recorder();
  const link = await dial({ host: HOST, port, handlers, ...options });
  expect((await handlers.take('open')).link).toBe(link);
  return [link, handlers];
}

describe('dial', () => {
  it('rejects what is no address', async () => {
    expect((await rejection(join(0))).code).toBe('BAD_ARGUMENT');
    expect((await rejection(join(1, { host: 'a b' }))).code).toBe('BAD_ARGUMENT');
  });

  it('notices a server that is silent, by pings', async () => {
    const server = new WebSocketServer({ port: 0, host: HOST, autoPong: false });
    cleanups.push(() => server.close());
    await new Promise((resolve) => server.once('listening', resolve));
    server.on('connection', (ws) => {
      ws.send(encodeFrame({ t: 'challenge', nonce: new Uint8Array(32), auth: false }));
      ws.once('message', () => ws.send(encodeFrame({ t: 'ready' })));
    });
    const { port } = server.address() as { port: number };
    const [, received] = await join(port, { limits: { pingMs: 200 } });
    expect((await received.take('close')).reason).toBe('no message and no answer to a ping within 200 ms');
  });

  it('says who refused the connection', async () => {
    const { port, close } = await silentServer();
    close();
    const { code, message } = await rejection(join(port));
    expect([code, message]).toEqual(['UNREACHABLE', `${HOST}:${port}: connection refused`]);
  });

  it('takes its pass to no other place than was dialed', async () => {
    const asked: string[] = [];
    const answer = (location: string) => (socket: Socket) => {
      socket.on('data', (bytes) => {
        asked.push(bytes.toString());
        socket.end(`HTTP/1.1 307 Temporary Redirect\r\nLocation: ${location}\r\n\r\n`);
      });
    };
    const other = await silentServer((socket) => socket.on('data', (bytes) => asked.push(bytes.toString())));
    cleanups.push(other.close);
    const places = [`ws://${HOST}:${other.port}/link/small`, '/elsewhere', '/link/small', '/link'];
    for (const place of places) {
      const server = await silentServer(answer(place));
      cleanups.push(server.close);
      const { code, message } = await rejection(join(server.port, { token: 'a long enough token' }));
      expect([code, message]).toEqual(['UNREACHABLE', expect.stringMatching(/redirect/i)]);
    }
    const paths = asked.map((text) => text.split(' ')[1]);
    expect(paths).toEqual(['/link', '/link', '/link', '/link/small', '/link', '/link']);
  });

  it('gives up on a server that does not answer, or not our protocol', async () => {
    const mute = await silentServer();
    cleanups.push(mute.close);
    const { code, message } = await rejection(join(mute.port, { timeoutMs: 50 }));
    expect([code, message]).toEqual(['UNREACHABLE', `${HOST}:${mute.port} did not answer within 50 ms`]);

    const other = await silentServer((socket) => socket.end('HTTP/1.1 404 Not Found\r\n\r\n'));
    cleanups.push(other.close);
    expect(await rejection(join(other.port))).toEqual({
      code: 'UNREACHABLE',
      message: `${HOST}:${other.port}: not a port of this system (HTTP 404)`,
    });
  });

  it('gives up on a WebSocket server that sends no challenge', async () => {
    const server = new WebSocketServer({ port: 0, host: HOST });
    cleanups.push(() => server.close());
    await new Promise((resolve) => server.once('listening', resolve));
    const { port } = server.address() as { port: number };
    const connected = new Promise<void>((resolve) => server.once('connection', () => resolve()));
    expect((await rejection(join(port, { timeoutMs: 200 }))).code).toBe('UNREACHABLE');
    await connected;
    server.once('connection', (ws) => ws.send(Uint8Array.of(1, 2, 3)));
    expect((await rejection(join(port))).code).toBe('BAD_FRAME');
  });

  it('can be aborted, before and during', async () => {
    const accepted = new AbortController();
    const { port, close } = await silentServer(() => accepted.abort());
    cleanups.push(close);
    expect((await rejection(join(port, { signal: accepted.signal }))).code).toBe('ABORTED');
    expect((await rejection(join(port, { signal: AbortSignal.abort() }))).code).toBe('ABORTED');
  });

  it('closes a link that buffers too much, from the client', async () => {
    const server = new WebSocketServer({ port: 0, host: HOST });
    cleanups.push(() => server.close());
    await new Promise((resolve) => server.once('listening', resolve));
    server.on('connection', (ws, request) => {
      ws.on('error', () => {});
      ws.send(encodeFrame({ t: 'challenge', nonce: new Uint8Array(32), auth: false }));
      ws.once('message', () => {
        ws.send(encodeFrame({ t: 'ready' }));
        request.socket.pause();
      });
      cleanups.push(() => ws.terminate());
    });
    const [link, received] = await join((server.address() as { port: number }).port, {
      maxBufferedBytes: 1 << 20,
    });
    const part = new Uint8Array(1 << 20);
    for (let sent = 0; link.send({ t: 'x' }, [part]); ) expect(++sent).toBeLessThan(100);
    expect((await received.take('close')).reason).toMatch(/bytes wait to be sent/);
  });

  it('masks with zeros, so that no pass over the payload is needed', async () => {
    const server = new WebSocketServer({ port: 0, host: HOST });
    cleanups.push(() => server.close());
    await new Promise((resolve) => server.once('listening', resolve));
    const chunks: Buffer[] = [];
    const ended = new Promise<void>((resolve) => {
      server.on('connection', (ws, request) => {
        request.socket.on('data', (chunk) => chunks.push(chunk));
        ws.once('close', () => resolve());
        ws.send(encodeFrame({ t: 'challenge', nonce: new Uint8Array(32), auth: false }));
        ws.once('message', () => ws.send(encodeFrame({ t: 'ready' })));
      });
    });
    const [link] = await join((server.address() as { port: number }).port);
    const frame = encodeFrame({ t: 'data' }, [new Uint8Array(1000).fill(0xab)]);
    link.send({ t: 'data' }, [new Uint8Array(1000).fill(0xab)]);
    link.close();
    await ended;
    // The frame is binary, final and masked, with 16 bits of length and a mask of four zeros.
    const head = Buffer.from([0x82, 0xfe, frame.length >> 8, frame.length & 255, 0, 0, 0, 0]);
    expect(Buffer.concat(chunks).includes(Buffer.concat([head, frame]))).toBe(true);
  });
});
