/** A client process of a run, seen from its parent. */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { KintsugiError } from '../../../src/common/errors.js';
import type { ClientOptions, ClientReport } from './child.js';

const PATH = fileURLToPath(new URL('./child.js', import.meta.url));

export type ClientDone = ClientReport & { kind: 'done' };

export class BenchClient {
  /** Rejects when it ends without its last report. */
  readonly done: Promise<ClientDone>;
  private readonly process: ChildProcess;
  private readonly waiters = new Set<(report: ClientReport) => void>();

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
        for (const waiter of this.waiters) waiter(report);
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

  /** Resolves with the first report from now on that fits. @throws what `done` does */
  report<R extends ClientReport>(fits: (report: ClientReport) => report is R): Promise<R> {
    return new Promise((resolve, reject) => {
      // Several reports may come in one turn, so this one listens until it has found what it looks for.
      const waiter = (report: ClientReport) => {
        if (!fits(report)) return;
        this.waiters.delete(waiter);
        resolve(report);
      };
      this.waiters.add(waiter);
      this.done.then(() => reject(new KintsugiError('INTERNAL', 'a client has ended')), reject);
    });
  }

  /** `pace 90`: from now on steps are due 90 times a second. */
  send(order: 'stop' | 'save' | 'pause' | 'resume' | `pace ${number}`): void {
    if (this.process.connected) this.process.send(order);
  }

  kill(): void {
    this.process.kill('SIGKILL');
  }
}
