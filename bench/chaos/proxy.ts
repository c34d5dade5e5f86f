/**
 * A TCP proxy in front of one role, so that connections can be cut and held while both ends live. It mirrors
 * its target: when that process dies its port must refuse at once, as a real one does, or failures would look
 * like silence.
 *
 * Each proxy is a process. On one event loop for all, what an attack pulls from a PS stood before heartbeats
 * and before new connections, for seconds on a busy machine. No network does that.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { KintsugiError } from '../../src/common/errors.js';

const SCRIPT = new URL('./proxy-process.js', import.meta.url);

/** Sent to the process of a proxy. */
export type ProxyOrder =
  | { t: 'aim'; port: number }
  | { t: 'lose' | 'hold' | 'release' }
  | { t: 'cut'; which: number[] };

/** Sent by it: once that it listens, and then each number of open connections. */
export type ProxyReport = { t: 'listens'; port: number } | { t: 'connections'; count: number };

export class TcpProxy {
  /** Number of open connections, as far as reported. */
  connections = 0;
  private closed = false;

  private constructor(
    private readonly child: ChildProcess,
    readonly port: number,
  ) {
    child.on('message', (report: ProxyReport) => {
      if (report.t === 'connections') this.connections = report.count;
    });
    child.on('exit', (code, signal) => {
      if (!this.closed) throw endedEarly(code, signal);
    });
    child.unref();
    child.channel?.unref();
  }

  /**
   * The port stays the same for the life of the proxy.
   * @param patient connections that come before the target is known wait for it, instead of being refused
   */
  static async start(patient: boolean, script = SCRIPT): Promise<TcpProxy> {
    const child = fork(fileURLToPath(script), [`${patient}`], {
      ...{ execArgv: [], stdio: ['ignore', 'ignore', 'inherit', 'ipc'] },
    });
    const port = await new Promise<number>((resolve, reject) => {
      child.once('message', (report: ProxyReport & { t: 'listens' }) => resolve(report.port));
      child.once('error', reject);
      child.once('exit', (code, signal) => reject(endedEarly(code, signal)));
    });
    return new TcpProxy(child, port);
  }

  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  aim(port: number): void {
    this.order({ t: 'aim', port });
  }

  /** The process behind is gone for good, and so are its port and its connections. */
  close(): void {
    this.closed = true;
    this.child.kill('SIGKILL');
  }

  /** The process behind is gone, another will come: end what is open. */
  lose(): void {
    this.order({ t: 'lose' });
  }

  /** Ends connections by their ranks, the oldest is 0, without a goodbye. */
  cut(which: number[]): void {
    this.order({ t: 'cut', which });
  }

  /** Lets no byte pass until `release`; senders see a full socket. */
  hold(): void {
    this.order({ t: 'hold' });
  }

  release(): void {
    this.order({ t: 'release' });
  }

  private order(order: ProxyOrder): void {
    if (!this.closed) this.child.send(order);
  }
}

function endedEarly(code: number | null, signal: NodeJS.Signals | null): KintsugiError {
  return new KintsugiError('INTERNAL', `a proxy ended early (${signal ?? code})`);
}
