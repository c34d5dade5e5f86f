/** The load clients of a run, seen from the process that makes the trouble. */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { KintsugiError } from '../../src/common/errors.js';
import type { ChaosLoadOptions, LoadReport } from './load.js';

const LOAD_PATH = fileURLToPath(new URL('./load.js', import.meta.url));

export type LoadDone = LoadReport & { kind: 'done' };

export class LoadClient {
  readonly done: Promise<LoadDone>;
  /** Resolves when the process has ended, in whatever way. */
  readonly gone: Promise<unknown>;
  /** Id of the client in the job; -1 until the process runs. */
  id = -1;
  acknowledged = 0;
  /**
   * Number of the last push that the process has begun, and when it saw each acknowledged, as far as
   * reported.
   */
  sent = 0;
  readonly acknowledgedAt = new Map<number, number>();
  /** Milliseconds without an acknowledgement, by its last report. */
  stalledMs = 0;
  private readonly process: ChildProcess;
  private started: () => void = () => {};
  /** Resolves when a first push is durable. */
  readonly running = new Promise<void>((resolve) => {
    this.started = resolve;
  });

  constructor(
    readonly options: ChaosLoadOptions,
    private readonly onWrong: (what: string) => void,
    onLine?: (line: string) => void,
    token = '',
    /** Words before the program on the command line, which put it on its machine. */
    prefix: readonly string[] = [],
  ) {
    const [execPath, ...execArgv] = [...prefix, process.execPath];
    this.process = fork(LOAD_PATH, [JSON.stringify(options)], {
      ...{ execPath, execArgv },
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      env: { ...process.env, KINTSUGI_TOKEN: token, KINTSUGI_NODE_TOKEN: '' },
    });
    let rest = '';
    this.process.stderr?.on('data', (chunk: Buffer) => {
      const lines = (rest + chunk.toString()).split('\n');
      rest = lines.pop()!;
      for (const line of lines) onLine?.(line);
    });
    this.done = new Promise((resolve, reject) => {
      let result: LoadDone | undefined;
      this.process.on('message', (report: LoadReport) => {
        if (report.kind === 'done') {
          result = report;
          // A short load may end without a report of progress.
          this.started();
        } else this.onReport(report);
      });
      this.process.on('exit', (code, signal) => {
        if (result) resolve(result);
        else {
          const how = `ended early (${signal ?? code})${rest ? `: ${rest}` : ''}`;
          reject(new KintsugiError('INTERNAL', `load client ${options.client} ${how}`));
        }
      });
    });
    // Reports may arrive after the end of the process.
    const silent = new Promise((resolve) => this.process.once('disconnect', resolve));
    this.gone = Promise.all([this.done.catch(() => {}), silent]);
  }

  private onReport(report: Exclude<LoadReport, LoadDone>): void {
    if (report.kind === 'wrong') {
      this.onWrong(`client ${this.options.client}: ${report.code}: ${report.what}`);
      return;
    }
    switch (report.kind) {
      case 'sent':
        this.sent = report.push;
        return;
      case 'acknowledged':
        this.acknowledgedAt.set(report.push, report.mono);
        return;
      case 'connected':
        this.id = report.id;
        return;
      case 'progress':
        this.id = report.id;
        this.acknowledged = report.acknowledged;
        this.stalledMs = report.stalledMs;
        if (report.acknowledged > 0) this.started();
    }
  }

  /** No new pushes; `done` resolves when those under way are durable. */
  stop(): void {
    if (this.process.connected) this.process.send('stop');
  }

  kill(): void {
    this.process.kill('SIGKILL');
  }
}
