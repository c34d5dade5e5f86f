// Connections by identity: dialed when there is a message, and kept up while the map lists the peer.
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { Retry } from '../../src/core/shared/retry.js';
import type { PeerAddress } from '../../src/net/address-book.js';
import { Peers, type PeersOptions } from '../../src/net/peers.js';
import { dial, type Link, type Listener, listen } from '../../src/net/transport/index.js';
import type { Message } from '../../src/protocol/messages.js';
import { EventLog } from '../roles/support.js';

const JOB = 'a job';

/** A queue of received values, which can be awaited. */
class Inbox<T> {
  private readonly items: T[] = [];
  private readonly waiting: ((item: T) => void)[] = [];

  add(item: T): void {
    const next = this.waiting.shift();
    if (next) next(item);
    else this.items.push(item);
  }
  next(): Promise<T> {
    const item = this.items.shift();
    return item === undefined ? new Promise((resolve) => this.waiting.push(resolve)) : Promise.resolve(item);
  }
}

/** A port that can be closed and opened again, with the messages of its connections and their links. */
class Server {
  readonly heard = new Inbox<Message>();
  readonly links = new Inbox<Link>();
  readonly payloads = new Inbox<Uint8Array>();
  private listener: Listener | undefined;
  port = 0;

  async open(): Promise<this> {
    this.listener = await listen({
      host: '127.0.0.1',
      port: this.port,
      handlers: {
        onOpen: (link) => this.links.add(link),
        onMessage: (_, header, parts) => {
          this.heard.add(header as unknown as Message);
          for (const part of parts) this.payloads.add(part.slice());
        },
        onClose: () => {},
      },
    });
    this.port = this.listener.port;
    return this;
  }
  async close(): Promise<void> {
    await this.listener?.close();
  }
}

async function server(): Promise<Server> {
  const open = await new Server().open();
  onTestFinished(() => open.close());
  return open;
}

function peers(
  addresses: Map<number, PeerAddress>,
  self = { peer: 1, inc: 7, job: JOB },
  more: Partial<PeersOptions> = {},
) {
  const log = new EventLog();
  const inbox = new Inbox<[from: number, message: Message]>();
  const ups = new Inbox<number>();
  const asked = new Inbox<number>();
  const all = new Peers({
    self: () => self,
    resolve: (peer) => {
      asked.add(peer);
      return addresses.get(peer);
    },
    onMessage: (from, _, message) => inbox.add([from, message]),
    onUp: (peer) => ups.add(peer),
    log,
    ...more,
  });
  onTestFinished(() => all.close());
  return { all, log, inbox, ups, asked };
}

const ping = (expected: number): Message => ({ t: 'gap', g: 0, m: 0, expected });
/** Pauses before a peer is dialed again, in milliseconds. */
const PAUSES = [25, 50, 100, 200];
const HELLO = { t: 'hello', peer: 1, inc: 7, job: JOB };
const at = (port: number, inc = 1): PeerAddress => ({ host: '127.0.0.1', port, inc });

/** Two servers, 2 and 3, and a connection to each, so that no message waits for a connection. */
async function connectedToTwo() {
  const [one, other] = [await server(), await server()];
  const { all, log } = peers(
    new Map([
      [2, at(one.port)],
      [3, at(other.port)],
    ]),
  );
  for (const [peer, there] of [[2, one] as const, [3, other] as const]) {
    all.send(peer, ping(0), []);
    expect([await there.heard.next(), await there.heard.next()]).toEqual([HELLO, ping(0)]);
  }
  return { one, other, all, log };
}

describe('Peers', () => {
  it('sends what was queued while it dialed, in order, after a hello', async () => {
    const there = await server();
    const { all } = peers(new Map([[2, at(there.port)]]));
    for (let i = 0; i < 5; i++) all.send(2, ping(i), [Uint8Array.of(i)]);
    expect(await there.heard.next()).toEqual(HELLO);
    for (let i = 0; i < 5; i++) {
      expect(await there.heard.next()).toEqual(ping(i));
      expect(await there.payloads.next()).toEqual(Uint8Array.of(i));
    }
  });

  it('counts what links hold and have taken, over all connections to a node', async () => {
    const there = await server();
    const { all, ups } = peers(new Map([[2, at(there.port)]]));
    const part = new Uint8Array(10_000);
    all.post(2, ping(0), [part]);
    expect(all.outgoingBytes()).toEqual(new Map([[2, { held: 10_000, taken: 0 }]]));
    all.flush();
    const first = await there.links.next();
    await there.payloads.next();
    const { held, taken } = all.outgoingBytes().get(2)!;
    expect([held, taken > 10_000]).toEqual([0, true]);
    first.close('cut');
    await ups.next();
    all.send(2, ping(1), [part]);
    await there.payloads.next();
    const after = all.outgoingBytes().get(2)!;
    expect([after.held, after.taken > taken + 10_000, after.taken < taken + 11_000]).toEqual([0, true, true]);
  });

  it('says nothing to a peer that the map does not list', async () => {
    const there = await server();
    const { all } = peers(new Map([[2, at(there.port)]]));
    all.send(3, ping(0), []);
    all.send(2, ping(1), []);
    expect(await there.heard.next()).toEqual(HELLO);
    expect(await there.heard.next()).toEqual(ping(1));
  });

  it('connects again after the other side has cut the connection', async () => {
    const there = await server();
    const { all, ups } = peers(new Map([[2, at(there.port)]]));
    all.send(2, ping(0), []);
    const first = await there.links.next();
    expect([await there.heard.next(), await there.heard.next()]).toEqual([HELLO, ping(0)]);
    for (let round = 1; round < 4; round++) {
      (round === 1 ? first : await there.links.next()).close('cut');
      // There is no message to send, but messages under way may be lost, so the owner must be told.
      expect(await ups.next()).toBe(2);
      expect(await there.heard.next()).toEqual(HELLO);
      all.send(2, ping(round), []);
      expect(await there.heard.next()).toEqual(ping(round));
    }
  });

  it('dials one that refuses it after longer and longer pauses, until it is heard', async () => {
    const pauses: number[] = [];
    const { lengthen } = Retry.prototype;
    const spy = vi.spyOn(Retry.prototype, 'lengthen').mockImplementation(function (this: Retry) {
      pauses.push(this.waitMs);
      lengthen.call(this);
    });
    onTestFinished(() => spy.mockRestore());
    const there = await server();
    const { all } = peers(new Map([[2, at(there.port)]]));
    all.send(2, ping(0), []);
    for (let refused = 0; refused < PAUSES.length; refused++) {
      const link = await there.links.next();
      // The first time the ping comes after, because it waited for the connection.
      while ((await there.heard.next()).t !== 'hello');
      link.close('another job');
    }
    const taken = await there.links.next();
    expect(pauses).toEqual(PAUSES);
    while ((await there.heard.next()).t !== 'hello');
    taken.send(ping(1));
    taken.close('cut');
    await there.links.next();
    expect(pauses).toEqual([...PAUSES, PAUSES[0]]);
  });

  it('connects again when a server comes back on its port', async () => {
    const there = await server();
    const { all, ups, log } = peers(new Map([[2, at(there.port)]]));
    all.send(2, ping(0), []);
    expect([await there.heard.next(), await there.heard.next()]).toEqual([HELLO, ping(0)]);
    const unreachable = log.next('peer.unreachable');
    await there.close();
    expect(await unreachable).toEqual({ peer: 2, code: 'UNREACHABLE' });
    await there.open();
    expect(await ups.next()).toBe(2);
    all.send(2, ping(1), []);
    expect([await there.heard.next(), await there.heard.next()]).toEqual([HELLO, ping(1)]);
  });

  it('dials a peer whose connection need not be kept up only for a message', async () => {
    const there = await server();
    const looked = new Inbox<number>();
    const keepsUp = (peer: number): boolean => {
      looked.add(peer);
      return false;
    };
    const { all, log } = peers(new Map([[2, at(there.port)]]), undefined, { keepsUp });
    await there.close();
    const unreachable = log.next('peer.unreachable');
    all.send(2, ping(0), []);
    await unreachable;
    expect(await looked.next()).toBe(2);
    const { peers: known } = all as unknown as { peers: Map<number, { dialing: boolean; timer: unknown }> };
    expect(known.get(2)).toMatchObject({ dialing: false, timer: undefined });
    await there.open();
    all.send(2, ping(1), []);
    expect([await there.heard.next(), await there.heard.next()]).toEqual([HELLO, ping(1)]);
  });

  it('says once that a peer cannot be reached, and again when that is a change', async () => {
    const there = await server();
    const { all, log, asked, ups } = peers(new Map([[2, at(there.port)]]));
    await there.close();
    all.send(2, ping(0), []);
    for (let attempt = 0; attempt < 4; attempt++) await asked.next();
    const said = () => log.events.filter(({ event }) => event === 'peer.unreachable').length;
    expect(said()).toBe(1);
    await there.open();
    expect(await ups.next()).toBe(2);
    const again = log.next('peer.unreachable');
    await there.close();
    await again;
    expect(said()).toBe(2);
  });

  it('stops dialing when the map drops the peer', async () => {
    const there = await server();
    const addresses = new Map([[2, at(there.port)]]);
    const { all, log, asked } = peers(addresses);
    await there.close();
    const unreachable = log.next('peer.unreachable');
    all.send(2, ping(0), []);
    await unreachable;
    // The address was asked for by send, by the first attempt and by the second one, which gets none.
    addresses.delete(2);
    for (let i = 0; i < 3; i++) expect(await asked.next()).toBe(2);
    expect((all as unknown as { peers: Map<number, unknown> }).peers.has(2)).toBe(false);
    const events = log.events.length;
    await there.open();
    addresses.set(3, at(there.port));
    all.send(3, ping(3), []);
    expect([await there.heard.next(), await there.heard.next()]).toEqual([HELLO, ping(3)]);
    expect(log.events.length).toBe(events);
  });

  it('leaves an older process for the newer one of its name', async () => {
    const [older, newer] = [await server(), await server()];
    const addresses = new Map([[2, at(older.port, 1)]]);
    const { all } = peers(addresses);
    all.send(2, ping(0), []);
    expect([await older.heard.next(), await older.heard.next()]).toEqual([HELLO, ping(0)]);
    addresses.set(2, at(newer.port, 2));
    all.send(2, ping(1), []);
    expect([await newer.heard.next(), await newer.heard.next()]).toEqual([HELLO, ping(1)]);
  });

  it('answers on the connection that a peer has made', async () => {
    const listening = peers(new Map());
    const listener = await listen({ host: '127.0.0.1', port: 0, handlers: listening.all.incoming });
    onTestFinished(() => listener.close());
    const dialing = peers(new Map([[9, at(listener.port)]]), { peer: 5, inc: 0, job: JOB });
    dialing.all.send(9, ping(1), []);
    expect(await listening.inbox.next()).toEqual([5, ping(1)]);
    listening.all.send(5, ping(2), []);
    expect(await dialing.inbox.next()).toEqual([9, ping(2)]);
  });

  it('answers one that cannot be dialed on the newest of its connections, and closes the older', async () => {
    const listening = peers(new Map());
    const listener = await listen({ host: '127.0.0.1', port: 0, handlers: listening.all.incoming });
    onTestFinished(() => listener.close());
    const call = async (expected: number) => {
      const heard = new Inbox<Message>();
      const closed = new Inbox<string>();
      const link = await dial({
        host: '127.0.0.1',
        port: listener.port,
        handlers: {
          onOpen: () => {},
          onMessage: (_, header) => heard.add(header as unknown as Message),
          onClose: (_, reason) => closed.add(reason),
        },
      });
      onTestFinished(() => link.close());
      link.send({ t: 'hello', peer: 5, inc: 0, job: JOB });
      link.send(ping(expected));
      expect(await listening.inbox.next()).toEqual([5, ping(expected)]);
      return { heard, closed };
    };
    const older = await call(1);
    const newer = await call(2);
    expect(await older.closed.next()).toBe('replaced');
    listening.all.send(5, ping(3), []);
    expect(await newer.heard.next()).toEqual(ping(3));
    // The end of the older one is not the end of the peer.
    const newest = await call(4);
    listening.all.send(5, ping(5), []);
    expect(await newest.heard.next()).toEqual(ping(5));
  });

  it('is told what a connection that replaces a silent one may have lost', async () => {
    const { all, ups } = peers(new Map([[2, at(1)]]));
    /** Lets a node call on a link on which nothing was acknowledged for `unacknowledgedMs`. */
    const call = (id: number, unacknowledgedMs: number) => {
      const closed: string[] = [];
      const link = { id, unacknowledgedMs, remote: '127.0.0.1:1', outgoing: false, watch: () => {} };
      const close = (reason: string) => closed.push(reason);
      const whole = { ...link, sendAll: () => true, lift: () => {}, close };
      all.incoming.onMessage(whole as unknown as Link, { t: 'hello', peer: 2, inc: 1, job: JOB }, []);
      return closed;
    };
    const silent = call(-1, 1000);
    expect(silent).toEqual([]);
    call(-2, 0);
    expect(silent).toEqual(['replaced']);
    expect(await ups.next()).toBe(2);
  });

  it('works when two dial each other at once', async () => {
    const [mapA, mapB] = [new Map<number, PeerAddress>(), new Map<number, PeerAddress>()];
    const a = peers(mapA, { peer: 1, inc: 1, job: JOB });
    const b = peers(mapB, { peer: 2, inc: 1, job: JOB });
    for (const [own, map, id] of [
      [a, mapB, 1],
      [b, mapA, 2],
    ] as const) {
      const listener = await listen({ host: '127.0.0.1', port: 0, handlers: own.all.incoming });
      onTestFinished(() => listener.close());
      map.set(id, at(listener.port));
    }
    for (let i = 0; i < 50; i++) {
      a.all.send(2, ping(i), []);
      b.all.send(1, ping(100 + i), []);
    }
    for (let i = 0; i < 50; i++) {
      expect(await b.inbox.next()).toEqual([1, ping(i)]);
      expect(await a.inbox.next()).toEqual([2, ping(100 + i)]);
    }
  });

  it('holds what is posted until the flush, and sends it to each peer as one frame, in order', async () => {
    const { one, other, all } = await connectedToTwo();
    const frames = all.sentFrames;
    for (let i = 1; i < 6; i++) {
      all.post(2, ping(i), [Uint8Array.of(i)]);
      all.post(3, ping(10 + i), []);
    }
    expect([all.sentFrames - frames, all.anyPosted]).toEqual([0, true]);
    all.flush();
    expect([all.sentFrames - frames, all.anyPosted]).toEqual([2, false]);
    for (let i = 1; i < 6; i++) {
      expect(await one.heard.next()).toEqual(ping(i));
      expect(await one.payloads.next()).toEqual(Uint8Array.of(i));
      expect(await other.heard.next()).toEqual(ping(10 + i));
    }
  });

  it('does not hold back what is large, and keeps the order', async () => {
    const there = await server();
    const { all } = peers(new Map([[2, at(there.port)]]));
    all.send(2, ping(0), []);
    expect([await there.heard.next(), await there.heard.next()]).toEqual([HELLO, ping(0)]);
    all.post(2, ping(1), []);
    all.post(2, ping(2), [new Uint8Array(1 << 20)]);
    expect(all.anyPosted).toBe(false);
    all.post(2, ping(3), []);
    expect([await there.heard.next(), await there.heard.next()]).toEqual([ping(1), ping(2)]);
    all.flush();
    expect(await there.heard.next()).toEqual(ping(3));
  });

  it('sends at once what is posted before what is sent, in order', async () => {
    const there = await server();
    const { all } = peers(new Map([[2, at(there.port)]]));
    all.post(2, ping(1), []);
    all.send(2, ping(2), []);
    expect(all.anyPosted).toBe(false);
    expect([await there.heard.next(), await there.heard.next()]).toEqual([HELLO, ping(1)]);
    expect(await there.heard.next()).toEqual(ping(2));
  });

  it('does not let one message that no frame can hold take others with it', async () => {
    const there = await server();
    const { all, log } = peers(new Map([[2, at(there.port)]]));
    all.send(2, ping(0), []);
    expect([await there.heard.next(), await there.heard.next()]).toEqual([HELLO, ping(0)]);
    all.post(2, ping(1), []);
    all.post(2, ping(2), Array(20_000).fill(new Uint8Array(0)));
    all.post(2, ping(3), []);
    all.flush();
    expect([await there.heard.next(), await there.heard.next()]).toEqual([ping(1), ping(3)]);
    expect(log.events.some(({ event }) => event === 'peer.unsent')).toBe(true);
  });

  it('does not let one that is alone in its frame either', async () => {
    const { other, all, log } = await connectedToTwo();
    all.post(2, ping(1), Array(20_000).fill(new Uint8Array(0)));
    all.post(3, ping(2), []);
    // The flush is at the end of a turn of the event loop, where no caller catches an error.
    all.flush();
    expect(all.anyPosted).toBe(false);
    expect(await other.heard.next()).toEqual(ping(2));
    expect(log.events.some(({ event }) => event === 'peer.unsent')).toBe(true);
    // A message that was queued while the peer was dialed breaks the limit, too: those behind it are sent.
    const late = await server();
    const calling = peers(new Map([[4, at(late.port)]]));
    calling.all.send(4, ping(3), Array(20_000).fill(new Uint8Array(0)));
    calling.all.send(4, ping(4), []);
    expect([await late.heard.next(), await late.heard.next()]).toEqual([HELLO, ping(4)]);
  });

  it('is quiet after close', async () => {
    const there = await server();
    const { all } = peers(new Map([[2, at(there.port)]]));
    all.send(2, ping(0), []);
    all.close();
    all.send(2, ping(1), []);
    const other = peers(new Map([[2, at(there.port)]]), { peer: 8, inc: 0, job: JOB });
    other.all.send(2, ping(2), []);
    expect(await there.heard.next()).toMatchObject({ t: 'hello', peer: 8 });
    expect(await there.heard.next()).toEqual(ping(2));
  });
});
