/**
 * The yardstick: what the transport moves when nothing is behind it. Frames as large as those of the
 * library's requests.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { dial, type Link } from '../../../src/net/transport/index.js';
import { type Contender, ending } from './measure.js';

const SERVER = fileURLToPath(new URL('./bare-server.js', import.meta.url));

export class BareTransport {
  private readonly waiting = new Map<number, () => void>();
  private nextId = 1;
  private readonly ending = ending('bare transport');
  private readonly gone: Promise<unknown>;
  /** Bytes of answers; so that nothing is optimised away. */
  received = 0;

  private constructor(
    private readonly server: ChildProcess,
    private link: Link | undefined,
  ) {
    this.gone = once(server, 'exit');
    server.on('exit', (code, signal) => this.ending.end(`its server has ended (${signal ?? code})`));
  }

  static async start(): Promise<BareTransport> {
    const server = fork(SERVER, { stdio: 'inherit' });
    const bare = new BareTransport(server, undefined);
    const ready = once(server, 'message') as Promise<[{ port: number }]>;
    const [{ port }] = await Promise.race([ready, bare.ending.ended]);
    bare.link = await dial({
      host: '127.0.0.1',
      port,
      handlers: {
        onOpen: () => {},
        onMessage: (_, header, parts) => bare.onAnswer(header, parts),
        onClose: (_, reason) => bare.ending.end(`its connection was closed (${reason})`),
      },
    });
    return bare;
  }

  private onAnswer(header: Record<string, unknown>, parts: readonly Uint8Array[]): void {
    const { id, items } = header as { id?: number; items: number[][] };
    const key = id ?? items[0]![2]!;
    for (const part of parts) this.received += part.byteLength;
    this.waiting.get(key)?.();
    this.waiting.delete(key);
  }

  /** Requests of `requestBytes` and answers of `answerBytes`, in frames like those of a pull or a push. */
  contender(t: 'pull' | 'push', requestBytes: number, answerBytes: number): Contender {
    const part = new Uint8Array(requestBytes);
    return {
      name: 'bare transport',
      serverPid: this.server.pid ?? 0,
      ended: this.ending.ended,
      request: () =>
        new Promise((resolve) => {
          const id = this.nextId++;
          this.waiting.set(id, resolve);
          this.link?.send({ t, epoch: 1, id, items: [[0, 0]], answerBytes }, [part]);
        }),
    };
  }

  async close(): Promise<void> {
    this.link?.close();
    if (this.server.connected) this.server.disconnect();
    await this.gone;
  }
}
