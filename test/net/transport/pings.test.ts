/** A ping is answered with its payload, although the memory that it arrived in may be freed. */
import type { Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { RawClient, serveFor } from './support.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** More bytes than the kernel keeps for a peer that does not read. */
const UNREAD = 16 << 20;
/** A message that arrives in several pieces, the first of which contains the pings. */
const MESSAGE = 1 << 20;
const PINGS = 20;

const payloadOf = (n: number): string => String(n).padEnd(120, '.');

describe('a server on ws', () => {
  it('answers the pings of a client that does not read for a while with what they carried', async () => {
    const [listener, served] = await serveFor(cleanups, { server: 'ws' });
    const client = await new RawClient(listener.port).prove();
    const { ws } = client;
    const { link } = await served.take('open');
    const pongs: string[] = [];
    const all = new Promise<void>((resolve) => {
      ws.on('pong', (data) => {
        if (pongs.push(data.toString()) === PINGS) resolve();
      });
    });
    ws.pause();
    link.send({ t: 'unread' }, [new Uint8Array(UNREAD)]);
    // The pings arrive in one piece, as a network may deliver them.
    const socket = (ws as unknown as { _socket: Socket })._socket;
    socket.cork();
    for (let n = 0; n < PINGS; n++) ws.ping(payloadOf(n));
    client.send({ t: 'large' }, [new Uint8Array(MESSAGE)]);
    socket.uncork();
    expect((await served.take('message')).header).toEqual({ t: 'large' });
    ws.resume();
    expect(await client.next()).toEqual({ t: 'unread' });
    await Promise.race([all, client.closed]);
    expect(pongs).toEqual(Array.from({ length: PINGS }, (_, n) => payloadOf(n)));
  });
});
