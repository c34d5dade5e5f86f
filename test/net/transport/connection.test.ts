/** The states of a connection, over a socket that only records. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { KintsugiError } from '../../../src/common/errors.js';
import { Connection, type ConnectionOptions, type Socket } from '../../../src/net/transport/connection.js';
import { TRANSPORT_LIMITS } from '../../../src/net/transport/index.js';
import { decodeMessages, encodeFrame, encodeMessages } from '../../../src/protocol/frame.js';
import { Recorder } from './support.js';

class FakeSocket implements Socket {
  readonly fd = -1;
  ping(): boolean {
    return false;
  }
  readonly remote = 'nowhere';
  bufferedBytes = 0;
  readonly log: string[] = [];
  allocate(bytes: number): Uint8Array {
    return new Uint8Array(bytes);
  }
  send(frame: Uint8Array): void {
    this.log.push(
      `send ${decodeMessages(frame)
        .map(({ header }) => header.t)
        .join()}`,
    );
  }
  end(code: number, reason: string): void {
    this.log.push(`end ${code} ${reason}`);
  }
  destroy(): void {
    this.log.push('destroy');
  }
}

/** A connection whose handshake is one message, `hello`, answered by `welcome`. */
function make(options: Partial<ConnectionOptions> = {}): [Connection, FakeSocket, Recorder] {
  const socket = new FakeSocket();
  const handlers = new Recorder();
  const connection = new Connection(socket, {
    outgoing: false,
    limits: TRANSPORT_LIMITS,
    handlers,
    handshake: {
      start: () => ({ t: 'first' }),
      step: (header) => {
        if (header.t !== 'hello') throw new KintsugiError('UNAUTHORIZED', 'no');
        return { send: { t: 'welcome' }, done: true };
      },
    },
    ...options,
  });
  connection.start();
  cleanups.push(() => connection.close());
  return [connection, socket, handlers];
}
const hello = encodeFrame({ t: 'hello' });

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup();
  vi.restoreAllMocks();
});

describe('connection', () => {
  it('sends nothing of its user before the handshake is over', async () => {
    const ready = vi.fn();
    const [connection, socket, handlers] = make({ onReady: ready });
    expect(connection.send({ t: 'early' })).toBe(false);
    expect([ready.mock.calls.length, handlers.events.length]).toEqual([0, 0]);
    connection.receive(hello);
    expect(ready).toHaveBeenCalledOnce();
    expect((await handlers.take('open')).link).toBe(connection);
    expect(connection.send({ t: 'now' })).toBe(true);
    expect(socket.log).toEqual(['send first', 'send welcome', 'send now']);
  });

  it('tells a refusal to its owner and nothing to the handlers', async () => {
    const refused = new Promise<KintsugiError>((resolve) => {
      const [connection, socket, handlers] = make({ onRefused: resolve });
      connection.receive(encodeFrame({ t: 'wrong' }));
      connection.receive(hello);
      expect(socket.log).toEqual(['send first', 'end 4401 UNAUTHORIZED']);
      expect(handlers.events).toEqual([]);
    });
    expect((await refused).code).toBe('UNAUTHORIZED');
  });

  it('ignores what arrives after a close, and a second close', async () => {
    const [connection, socket, handlers] = make();
    connection.receive(hello);
    await handlers.take('open');
    connection.close('first');
    connection.receive(encodeFrame({ t: 'late' }));
    connection.reject('late as well');
    connection.closed(1006, 'and the socket');
    connection.close('second');
    expect((await handlers.take('close')).reason).toBe('first');
    expect(handlers.events).toEqual([]);
    expect(socket.log.slice(2)).toEqual(['end 1000 first']);
  });

  it('sends several messages as one frame, and hands the messages of a frame over one by one', async () => {
    const [connection, socket, handlers] = make();
    connection.receive(hello);
    await handlers.take('open');
    expect(
      connection.sendAll([
        [{ t: 'a' }, []],
        [{ t: 'b' }, [Uint8Array.of(1)]],
      ]),
    ).toBe(true);
    expect(socket.log.at(-1)).toBe('send a,b');
    connection.receive(
      encodeMessages([
        [{ t: 'c' }, [Uint8Array.of(2)]],
        [{ t: 'd' }, []],
      ]),
    );
    expect(await handlers.take('message')).toMatchObject({ header: { t: 'c' }, parts: [Uint8Array.of(2)] });
    expect(await handlers.take('message')).toMatchObject({ header: { t: 'd' }, parts: [] });
  });

  it('ignores the rest of a frame when a message makes its handler close', async () => {
    const heard: unknown[] = [];
    const [connection] = make({
      handlers: {
        onOpen() {},
        onMessage(link, { t }) {
          heard.push(t);
          link.close();
        },
        onClose() {},
      },
    });
    connection.receive(hello);
    connection.receive(
      encodeMessages([
        [{ t: 'a' }, []],
        [{ t: 'b' }, []],
      ]),
    );
    expect(heard).toEqual(['a']);
  });

  it('shortens a reason to what a close message can carry', async () => {
    const [connection, socket, handlers] = make();
    connection.receive(hello);
    await handlers.take('open');
    connection.close('é'.repeat(500));
    expect(socket.log.at(-1)).toBe(`end 1000 ${'?'.repeat(123)}`);
    expect((await handlers.take('close')).reason.length).toBe(500);
  });

  it('destroys the socket, without waiting, above the limit of what is buffered', async () => {
    const [connection, socket, handlers] = make({ limits: { ...TRANSPORT_LIMITS, maxBufferedBytes: 100 } });
    connection.receive(hello);
    await handlers.take('open');
    socket.bufferedBytes = 100;
    expect(connection.send({ t: 'x' })).toBe(true);
    socket.bufferedBytes = 101;
    expect(connection.send({ t: 'x' })).toBe(false);
    expect(socket.log.at(-1)).toBe('destroy');
    expect((await handlers.take('close')).reason).toBe('101 bytes wait to be sent (maxBufferedBytes = 100)');
  });

  it('throws the error of a handler outside, when nobody else takes it', () => {
    const error = new Error('a bug');
    const [connection, socket] = make({
      handlers: {
        onOpen() {
          throw error;
        },
        onMessage() {},
        onClose() {},
      },
    });
    const tick = vi.spyOn(process, 'nextTick').mockImplementation(() => {});
    expect(() => connection.receive(hello)).not.toThrow();
    const later = tick.mock.calls.map(([callback]) => callback as () => void);
    tick.mockRestore();
    expect(later.length).toBe(1);
    expect(later[0]).toThrow(error);
    expect(socket.log.at(-1)).toBe('end 1011 INTERNAL');
  });

  it('reports an error of onClose', async () => {
    const handlers = new Recorder();
    const error = new Error('a bug');
    handlers.onClose = () => {
      throw error;
    };
    const [connection] = make({ handlers });
    connection.receive(hello);
    await handlers.take('open');
    connection.close();
    expect((await handlers.take('error')).error).toBe(error);
  });
});

it('a side that breaks the rules and does not read is not waited for: its bytes are free at once', () => {
  const cases = [
    [0, 'end'],
    [100_000, 'end'],
    [10_000_000, 'destroy'],
  ] as const;
  for (const [bufferedBytes, last] of cases) {
    const [connection, socket] = make();
    connection.receive(hello);
    socket.bufferedBytes = bufferedBytes;
    connection.receive(Uint8Array.of(1, 2, 3));
    expect(socket.log.at(-1)!.split(' ')[0]).toBe(last);
  }
});
