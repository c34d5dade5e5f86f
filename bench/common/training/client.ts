/** A client process of a run, seen from its parent. */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { KintsugiError } from '../../../src/errors.js';
import type { ClientOptions, ClientReport } from './child.js';

const PATH = fileURLToPath(new URL('./child.js', import.meta.url));

export type ClientDone = ClientReport & { kind: 'done' };

export class BenchClient {
  /** Rejects when it ends without its last report. */
  readonly done: Promise<ClientDone>;
  private readonly process: ChildProcess;
  private readonly waiters: ((report: ClientReport) => void)[] = [];

  constructor(options: ClientOptions, onReport: (report: ClientReport) => void = () => {}) {
    this.process = fork(PATH, [JSON.stringify(options)], { stdio: ['ignore', 'ignore', 'pipe', 'ipc'] });
    let said = '';
    this.process.stderr?.on('data', (chunk: Buffer) => {
      said = (said + chunk.toString()).slice(-1000);
    });
    this.done = new Promise((resolve, reject) => {
      let done: ClientDone | undefined;
      this.process.on('message', (report: ClientReport) => {
        if (report.kind === 'done') done = report;
        onReport(report);
        for (const waiter of this.waiters.splice(0)) waiter(report);
      });
      this.process.on('close', (code, signal) => {
        if (done) resolve(done);
        else {
          const how = `the ${options.job} client ended early (${signal ?? code}): ${said.trim()}`;
          reject(new KintsugiError('INTERNAL', how));
        }
      });
    });
    this.done.catch(() => {});
  }

  get pid(): number | undefined {
    return this.process.pid;
  }

  /** Resolves with the first report that fits. @throws what `done` does */
  async report<R extends ClientReport>(fits: (report: ClientReport) => report is R): Promise<R> {
    const ended = this.done.then((): never => {
      throw new KintsugiError('INTERNAL', 'a client has ended');
    });
    for (;;) {
      const next = new Promise<ClientReport>((resolve) => this.waiters.push(resolve));
      const report = await Promise.race([next, ended]);
      if (fits(report)) return report;
    }
  }

  send(order: 'stop' | 'save' | 'pause' | 'resume'): void {
    if (this.process.connected) this.process.send(order);
  }

  kill(): void {
    this.process.kill('SIGKILL');
  }
}
