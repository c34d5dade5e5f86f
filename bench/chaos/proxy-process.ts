/** The process of a proxy (proxy.ts). */
import { createServer, connect as dial, type Socket } from 'node:net';
import type { ProxyOrder, ProxyReport } from './proxy.js';

interface ProxyPair {
  inner: Socket | undefined;
  outer: Socket;
}

const patient = process.argv[2] === 'true';

function report(what: ProxyReport): void {
  process.send?.(what);
}

class ProxyServer {
  private target: number | undefined;
  private readonly pairs = new Set<ProxyPair>();
  private held = false;
  private reporting = false;

  /** Resolves with the port. */
  async open(): Promise<number> {
    const server = createServer({ pauseOnConnect: true }, (socket) => this.accept(socket));
    await new Promise<void>((resolve, reject) => {
      server.on('error', reject);
      server.listen(0, '127.0.0.1', resolve);
    });
    return (server.address() as { port: number }).port;
  }

  obey(order: ProxyOrder): void {
    switch (order.t) {
      case 'aim':
        this.target = order.port;
        for (const pair of this.pairs) if (!pair.inner) this.join(pair);
        return;
      case 'lose':
        return this.lose();
      case 'cut': {
        const pairs = [...this.pairs];
        for (const index of order.which) if (pairs[index]) this.end(pairs[index]);
        return;
      }
      case 'hold':
      case 'release':
        return this.hold(order.t === 'hold');
    }
  }

  private lose(): void {
    this.target = undefined;
    this.held = false;
    for (const pair of [...this.pairs]) this.end(pair);
  }

  private hold(held: boolean): void {
    this.held = held;
    for (const pair of this.pairs) this.flow(pair);
  }

  /** Bytes of a pair that is joined pass, unless they are held. */
  private flow({ inner, outer }: ProxyPair): void {
    if (!inner) return;
    for (const socket of [inner, outer]) {
      if (this.held) socket.pause();
      else socket.resume();
    }
  }

  private accept(outer: Socket): void {
    const pair: ProxyPair = { inner: undefined, outer };
    this.pairs.add(pair);
    this.counted();
    outer.setNoDelay(true);
    this.watch(pair, outer);
    if (this.target !== undefined) this.join(pair);
    else if (!patient) this.end(pair);
  }

  private join(pair: ProxyPair): void {
    const { outer } = pair;
    const inner = dial({ host: '127.0.0.1', port: this.target!, noDelay: true });
    pair.inner = inner;
    this.watch(pair, inner);
    const carry = (from: Socket, to: Socket) => {
      from.on('data', (chunk) => {
        if (!to.write(chunk)) from.pause();
      });
      to.on('drain', () => this.held || from.resume());
      from.on('end', () => to.end());
    };
    carry(outer, inner);
    carry(inner, outer);
    this.flow(pair);
  }

  private watch(pair: ProxyPair, socket: Socket): void {
    socket.on('error', () => this.end(pair));
    socket.on('close', () => this.end(pair));
  }

  /** Without a goodbye. */
  private end(pair: ProxyPair): void {
    if (!this.pairs.delete(pair)) return;
    this.counted();
    const { outer, inner } = pair;
    // A reset waits until all that is written has been read, and fails behind an end.
    if (outer.writableLength > 0 || outer.writableEnded) outer.destroy();
    else outer.resetAndDestroy();
    inner?.destroy();
  }

  private counted(): void {
    if (this.reporting) return;
    this.reporting = true;
    setImmediate(() => {
      this.reporting = false;
      report({ t: 'connections', count: this.pairs.size });
    });
  }
}

const proxy = new ProxyServer();
process.on('message', (order: ProxyOrder) => proxy.obey(order));
// The process ends with the harness. A terminal interrupts both.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => {});
process.on('disconnect', () => process.exit());
report({ t: 'listens', port: await proxy.open() });
