/** Real etcd servers for tests: one process each, on ports and in a directory of its own. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { EventEmitter, on, once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { onTestFinished } from 'vitest';
import { freePort } from '../../free-port.js';

export const hasEtcd = spawnSync('etcd', ['--version'], { stdio: 'ignore' }).status === 0;
if (!hasEtcd) {
  const what = 'the tests of etcd: it is not installed (Debian: apt-get install etcd-server)';
  if (process.env.CI) throw new Error(`cannot leave out ${what}`);
  console.error(`\nLEFT OUT: ${what}`);
}

export interface EtcdTls {
  certFile: string;
  keyFile: string;
  caFile: string;
}

export class Etcd {
  private child: ChildProcess | undefined;
  private readonly said = new EventEmitter();

  private constructor(
    readonly port: number,
    private readonly peerPort: number,
    private readonly directory: string,
    private readonly tls: EtcdTls | undefined,
    private readonly host: string,
  ) {}

  /** With `tls` clients must show a certificate. Ends with the test. */
  static async start(tls?: EtcdTls, host = '127.0.0.1'): Promise<Etcd> {
    const directory = mkdtempSync(join(tmpdir(), 'kintsugi-etcd-'));
    const etcd = new Etcd(await freePort(), await freePort(), directory, tls, host);
    onTestFinished(async () => {
      await etcd.kill();
      rmSync(directory, { recursive: true, force: true });
    });
    await etcd.start();
    return etcd;
  }

  /** After `kill`: on the same directory and ports. */
  async start(tls = this.tls): Promise<void> {
    const client = `${tls ? 'https' : 'http'}://${this.host}:${this.port}`;
    const peer = `http://127.0.0.1:${this.peerPort}`;
    const args = ['--data-dir', join(this.directory, 'data'), '--name', 'one'];
    args.push('--listen-client-urls', client, '--advertise-client-urls', client);
    args.push('--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer);
    args.push('--initial-cluster', `one=${peer}`);
    if (tls) {
      args.push('--cert-file', tls.certFile, '--key-file', tls.keyFile);
      args.push('--client-cert-auth', '--trusted-ca-file', tls.caFile);
    }
    const child = spawn('etcd', args, { stdio: ['ignore', 'ignore', 'pipe'] });
    this.child = child;
    const lines: string[] = [];
    await new Promise<void>((resolve, reject) => {
      createInterface({ input: child.stderr! }).on('line', (line) => {
        lines.push(line);
        this.said.emit('line', line);
        if (line.includes('ready to serve client requests')) resolve();
      });
      child.once('exit', () => reject(new Error(`etcd ended: ${lines.slice(-5).join(' | ')}`)));
    });
  }

  /** The next line of its log with this text. */
  async says(text: string): Promise<void> {
    for await (const [line] of on(this.said, 'line')) if (line.includes(text)) return;
  }

  /** Stops the process for so long, as a disk that hangs would. */
  async stall(ms: number): Promise<void> {
    this.child!.kill('SIGSTOP');
    await new Promise((resolve) => setTimeout(resolve, ms));
    this.child!.kill('SIGCONT');
  }

  async kill(): Promise<void> {
    const { child } = this;
    this.child = undefined;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
  }

  /** After `kill`: it has nothing when it starts again, as with a new disk. */
  loseData(): void {
    rmSync(join(this.directory, 'data'), { recursive: true, force: true });
  }

  url(prefix = 'jobs/test', credentials = ''): string {
    return `etcd${this.tls ? 's' : ''}://${credentials}${this.host}:${this.port}/${prefix}`;
  }

  /** Answer of the gateway to a request, without TLS. */
  async ask(path: string, body: object, token?: string): Promise<Record<string, unknown>> {
    const url = `http://${this.host}:${this.port}${path}`;
    const headers = token === undefined ? {} : { authorization: token };
    const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
    return (await answer.json()) as Record<string, unknown>;
  }

  /** As when the lease of the leader ends. */
  async dropLeader(prefix = 'jobs/test'): Promise<void> {
    const key = Buffer.from(`${prefix}/leader`).toString('base64');
    await this.ask('/v3/kv/deleterange', { key });
  }
}
