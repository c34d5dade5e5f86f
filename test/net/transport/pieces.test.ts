/** Frames that come in pieces and within credits: what honest sides get through, and what others do not. */
import { afterEach, describe, expect, it } from 'vitest';
import { PIECE_BYTES, ReceivedBytes } from '../../../src/core/shared/received-bytes.js';
import { openingOf } from '../../../src/net/transport/inbound.js';
import { CloseCode, dial, type ServerKind } from '../../../src/net/transport/index.js';
import { LINK_PATH, SMALL_LINK_PATH } from '../../../src/net/transport/types.js';
import { encodeFrame } from '../../../src/protocol/frame.js';
import { HOST, RawClient, Recorder, serveFor } from './support.js';

const MIB = 1 << 20;
const LIMIT = 64 * MIB;

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** Bytes whose period is no size of a piece. */
const PERIOD = Uint8Array.from({ length: 4099 }, (_, i) => (i * 31 + (i >> 9)) & 255);
const bytes = (length: number, seed: number): Uint8Array =>
  Buffer.alloc(
    length,
    PERIOD.map((byte) => byte ^ seed),
  );

describe.each<ServerKind>(['uws', 'ws'])('server %s', (server) => {
  async function serve(limit = LIMIT) {
    const received = new ReceivedBytes(limit);
    const [{ port }, served] = await serveFor(cleanups, { server, received });
    return { received, served, port };
  }

  /** A client with a small window. */
  async function raw(port: number): Promise<RawClient> {
    const client = new RawClient(port, {}, SMALL_LINK_PATH);
    cleanups.push(() => client.ws.terminate());
    return client.prove();
  }

  it('frames of all sizes arrive whole and in order, whatever the windows are', async () => {
    const { received, served, port } = await serve();
    const link = await dial({ host: HOST, port, handlers: new Recorder() });
    cleanups.push(() => link.close());
    await served.take('open');
    const sizes = [0, 1, PIECE_BYTES - 40, PIECE_BYTES, PIECE_BYTES + 1, 3 * MIB, 7, 20 * MIB, 1000, 5 * MIB];
    for (const [i, size] of sizes.entries()) expect(link.send({ t: 'm', i }, [bytes(size, i)])).toBe(true);
    for (const [i, size] of sizes.entries()) {
      const { header, parts } = await served.take('message');
      expect([header.i, parts[0]!.byteLength]).toEqual([i, size]);
      expect(Buffer.from(parts[0]!).equals(bytes(size, i))).toBe(true);
    }
    expect(link.bufferedBytes).toBe(0);
    expect(received.held).toBe(0);
  });

  it('a link that finds no large window has a small one, and is as right', async () => {
    const { received, served, port } = await serve();
    const large: RawClient[] = [];
    while (received.hasLarge()) {
      const client = new RawClient(port, {}, LINK_PATH);
      cleanups.push(() => client.ws.terminate());
      large.push(await client.prove());
      await served.take('open');
    }
    expect(large.length).toBe(8);
    const link = await dial({ host: HOST, port, handlers: new Recorder() });
    cleanups.push(() => link.close());
    await served.take('open');
    for (const size of [10, PIECE_BYTES, 3 * MIB]) link.send({ t: 'm' }, [bytes(size, 3)]);
    for (const size of [10, PIECE_BYTES, 3 * MIB]) {
      const { parts } = await served.take('message');
      expect(Buffer.from(parts[0]!).equals(bytes(size, 3))).toBe(true);
    }
    // A large window has messages of half of it, and none that is larger.
    large[0]!.ws.send(encodeFrame({ t: 'm' }, [new Uint8Array(MIB - 100)]));
    expect((await served.take('message')).parts[0]!.byteLength).toBe(MIB - 100);
    large[0]!.ws.send(encodeFrame({ t: 'm' }, [new Uint8Array(MIB)]));
    expect((await large[0]!.closed).code).not.toBe(CloseCode.NORMAL);
  });

  it('many links at once share the room for large frames', async () => {
    const { received, served, port } = await serve(32 * MIB);
    const count = 8;
    const links = await Promise.all(
      Array.from({ length: count }, () => dial({ host: HOST, port, handlers: new Recorder() })),
    );
    for (const link of links) {
      cleanups.push(() => link.close());
      await served.take('open');
    }
    for (let n = 0; n < 2; n++) for (const link of links) link.send({ t: 'm' }, [bytes(10 * MIB, n)]);
    for (let n = 0; n < 2 * count; n++) {
      const { parts } = await served.take('message');
      expect(parts[0]!.byteLength).toBe(10 * MIB);
      expect(received.held).toBeLessThanOrEqual(32 * MIB);
    }
    expect(received.held).toBe(0);
  });

  it('a side that dials and counts gets pieces too, without a window', async () => {
    const { served, port } = await serve();
    const received = new ReceivedBytes(LIMIT);
    const handlers = new Recorder();
    const link = await dial({ host: HOST, port, handlers, received });
    cleanups.push(() => link.close());
    await handlers.take('open');
    const { link: theirs } = await served.take('open');
    const content = bytes(30 * MIB, 5);
    theirs.send({ t: 'large' }, [content]);
    theirs.send({ t: 'small' });
    const { parts } = await handlers.take('message');
    expect(Buffer.from(parts[0]!).equals(content)).toBe(true);
    expect((await handlers.take('message')).header).toEqual({ t: 'small' });
    expect(received.held).toBe(0);
  });

  it('frames to a side that dials keep their bytes, however many wait', async () => {
    const { served, port } = await serve();
    const handlers = new Recorder();
    const link = await dial({ host: HOST, port, handlers, received: new ReceivedBytes(LIMIT) });
    cleanups.push(() => link.close());
    await handlers.take('open');
    const { link: theirs } = await served.take('open');
    // Each has several pieces, and fits the memory that a server builds its frames in.
    for (let i = 0; i < 8; i++) theirs.send({ t: 'm', i }, [bytes(3 * MIB, i)]);
    for (let i = 0; i < 8; i++) {
      const { header, parts } = await handlers.take('message');
      expect(header.i).toBe(i);
      expect(Buffer.from(parts[0]!).equals(bytes(3 * MIB, i))).toBe(true);
    }
  });

  it('a limit of any size has windows that links can be opened with', async () => {
    const { served, port } = await serve(62_500_000);
    const link = await dial({ host: HOST, port, handlers: new Recorder() });
    cleanups.push(() => link.close());
    await served.take('open');
    link.send({ t: 'm' }, [bytes(3 * MIB, 1)]);
    expect(Buffer.from((await served.take('message')).parts[0]!).equals(bytes(3 * MIB, 1))).toBe(true);
  });

  it('a link without limit sends frames that a client may not', async () => {
    const { served, port } = await serve();
    const link = await dial({ host: HOST, port, handlers: new Recorder() });
    cleanups.push(() => link.close());
    (await served.take('open')).link.lift();
    link.send({ t: 'large' }, [bytes(40 * MIB, 5)]);
    expect((await served.take('message')).parts[0]!.byteLength).toBe(40 * MIB);
  });

  it('a client that sends beyond its window is hung up with LIMIT, and its bytes are free', async () => {
    const { received, served, port } = await serve();
    const client = await raw(port);
    await served.take('open');
    const before = await raw(port);
    await served.take('open');
    // A frame takes all room, so that the next one has to wait.
    before.ws.send(openingOf(LIMIT / 3));
    await before.heard();
    client.ws.send(openingOf(LIMIT / 4));
    for (let sent = 0; sent <= MIB; sent += PIECE_BYTES) client.ws.send(new Uint8Array(PIECE_BYTES));
    const { code, reason } = await client.closed;
    expect([code, reason]).toEqual([
      CloseCode.LIMIT,
      `more bytes than were granted (receiveWindowBytes = ${MIB})`,
    ]);
    expect((await served.take('close')).reason).toContain('receiveWindowBytes');
    expect(received.held).toBe(0);
  });

  it('a frame that no client needs is refused at its opening', async () => {
    const { port } = await serve();
    const client = await raw(port);
    client.ws.send(openingOf(25 * MIB));
    expect(await client.closed).toMatchObject({ code: CloseCode.LIMIT });
    const other = await raw(port);
    other.ws.send(openingOf(0));
    expect(await other.closed).toMatchObject({ code: CloseCode.BAD_FRAME });
  });

  it('a message larger than a piece is not put together', async () => {
    const { port } = await serve();
    const client = await raw(port);
    client.ws.send(encodeFrame({ t: 'm' }, [new Uint8Array(PIECE_BYTES)]));
    expect((await client.closed).code).not.toBe(CloseCode.NORMAL);
  });

  it.each([
    ['too many bytes', 100_001],
    ['an empty piece', 0],
  ])('%s in a frame are no frame', async (_, size) => {
    const { received, port } = await serve();
    const client = await raw(port);
    client.ws.send(openingOf(100_000));
    client.ws.send(new Uint8Array(50_000));
    client.ws.send(new Uint8Array(Math.min(size, PIECE_BYTES)));
    expect((await client.closed).code).toBe(CloseCode.BAD_FRAME);
    expect(received.held).toBe(0);
  });

  it('half a frame of a link that closes leaves nothing', async () => {
    const { received, served, port } = await serve();
    const client = await raw(port);
    await served.take('open');
    client.ws.send(openingOf(20 * MIB));
    client.ws.send(new Uint8Array(PIECE_BYTES));
    await client.heard();
    expect(received.held).toBe(PIECE_BYTES);
    client.ws.terminate();
    await served.take('close');
    expect(received.held).toBe(0);
  });

  it('an idle link makes room for a new one, and no other does', async () => {
    const { received, port } = await serve(2 * MIB);
    const idle: RawClient[] = [];
    while (!received.isFull()) idle.push(await raw(port));
    expect(await new RawClient(port).refused).toBe(307);
    expect(await new RawClient(port, {}, SMALL_LINK_PATH).refused).toBe(503);
    for (let now = 0; now <= 20_000; now += 100) received.tick(now);
    for (const client of idle.slice(1)) {
      client.send({ t: 'm' });
      await client.heard();
    }
    await raw(port);
    expect(await idle[0]!.closed).toMatchObject({ code: CloseCode.LIMIT });
  });
});
