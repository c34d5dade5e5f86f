/**
 * A TCP proxy in front of one role, so that connections can be cut and held while both ends live. It mirrors
 * its target: when that process dies its port must refuse at once, as a real one does, or failures would look
 * like silence.
 */
import { createServer, connect as dial, type Server, type Socket } from 'node:net';

interface ProxyPair {
  inner: Socket | undefined;
  outer: Socket;
}

export class TcpProxy {
  private server: Server | undefined;
  private target: number | undefined;
  private readonly pairs = new Set<ProxyPair>();
  private held = false;
  port = 0;

  /** @param patient connections that come before the target is known wait for it, instead of being refused */
  constructor(private readonly patient: boolean) {}

  /** The port stays the same for the life of this proxy. */
  async open(): Promise<void> {
    const server = createServer({ pauseOnConnect: true }, (socket) => this.accept(socket));
    this.server = server;
    await new Promise<void>((resolve, reject) => {
      server.on('error', reject);
      server.listen(this.port, '127.0.0.1', resolve);
    });
    const address = server.address();
    if (address && typeof address === 'object') this.port = address.port;
  }

  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  get connections(): number {
    return this.pairs.size;
  }

  aim(port: number): void {
    this.target = port;
    for (const pair of this.pairs) if (!pair.inner) this.join(pair);
  }

  /** The process behind is gone for good: refuse, and end what is open. */
  close(): void {
    this.server?.close();
    this.server = undefined;
    this.lose();
  }

  /** The process behind is gone, another will come: end what is open. */
  lose(): void {
    this.target = undefined;
    this.held = false;
    this.cut(() => true);
  }

  /** Ends the connections that `choose` picks, with a reset, without a goodbye; returns how many. */
  cut(choose: () => boolean): number {
    let count = 0;
    for (const pair of [...this.pairs]) {
      if (!choose()) continue;
      count++;
      this.end(pair);
    }
    return count;
  }

  /** Lets no byte pass until `release`; senders see a full socket. */
  hold(): void {
    this.held = true;
    for (const { inner, outer } of this.pairs) {
      if (!inner) continue;
      inner.pause();
      outer.pause();
    }
  }

  release(): void {
    this.held = false;
    for (const { inner, outer } of this.pairs) {
      if (!inner) continue;
      inner.resume();
      outer.resume();
    }
  }

  private accept(outer: Socket): void {
    const pair: ProxyPair = { inner: undefined, outer };
    this.pairs.add(pair);
    outer.setNoDelay(true);
    outer.on('error', () => this.end(pair));
    outer.on('close', () => this.end(pair));
    if (this.target !== undefined) this.join(pair);
    else if (!this.patient) this.end(pair);
  }

  private join(pair: ProxyPair): void {
    const { outer } = pair;
    const inner = dial({ host: '127.0.0.1', port: this.target!, noDelay: true });
    pair.inner = inner;
    inner.on('error', () => this.end(pair));
    inner.on('close', () => this.end(pair));
    const carry = (from: Socket, to: Socket) => {
      from.on('data', (chunk) => {
        if (!to.write(chunk)) from.pause();
      });
      to.on('drain', () => this.held || from.resume());
      from.on('end', () => to.end());
    };
    carry(outer, inner);
    carry(inner, outer);
    if (!this.held) {
      outer.resume();
      return;
    }
    inner.pause();
    outer.pause();
  }

  private end(pair: ProxyPair): void {
    if (!this.pairs.delete(pair)) return;
    pair.outer.resetAndDestroy();
    pair.inner?.destroy();
  }
}
