/** Processes of step-worker.ts, which keep a job busy that is measured. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { KintsugiError } from '../../common/errors.js';
import { sumOf } from '../../common/statistics.js';
import { cpuSeconds } from './processor-time.js';
import type { StepJob, StepOrder } from './step-worker.js';

const WORKER = fileURLToPath(new URL('./step-worker.js', import.meta.url));

export class StepWorkers {
  private readonly children: ChildProcess[] = [];
  /** Callbacks for the answers that each child owes, in their order. */
  private readonly waiting = new Map<ChildProcess, ((steps: number) => void)[]>();
  /** Rejects when a child ends that was not told to. */
  readonly failed: Promise<never>;
  private reject: (error: Error) => void = () => {};
  private closed = false;

  constructor() {
    this.failed = new Promise((_, reject) => {
      this.reject = reject;
    });
    this.failed.catch(() => {});
  }

  /** Resolves when all are connected. @throws INTERNAL */
  async start(count: number, scheduler: string): Promise<void> {
    const connected = Array.from({ length: count }, () => {
      const child = fork(WORKER, [scheduler], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
      this.children.push(child);
      this.waiting.set(child, []);
      child.on('message', (steps: number) => this.waiting.get(child)!.shift()?.(steps));
      child.on('exit', () => {
        if (!this.closed) this.reject(new KintsugiError('INTERNAL', 'a worker that makes steps has ended'));
      });
      return this.answer(child);
    });
    await Promise.race([Promise.all(connected), this.failed]);
  }

  /** Begins steps, each child with keys of its own. */
  async begin(job: Omit<StepJob, 'seed'>): Promise<void> {
    await this.tell((index) => ({ begin: { ...job, seed: index + 1 } }));
  }

  /** Resolves when no step is under way. */
  async stop(): Promise<void> {
    await this.tell(() => 'stop');
  }

  /** Steps that all children have made since they were started. */
  async steps(): Promise<number> {
    return sumOf(await this.tell(() => 'steps'), (steps) => steps);
  }

  /** Processor seconds that all children have used. */
  cpu(): number {
    return sumOf(this.children, ({ pid }) => cpuSeconds(pid));
  }

  async close(): Promise<void> {
    this.closed = true;
    for (const child of this.children) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
  }

  private tell(order: (index: number) => StepOrder): Promise<number[]> {
    const answers = this.children.map((child, index) => {
      const answered = this.answer(child);
      child.send(order(index));
      return answered;
    });
    return Promise.race([Promise.all(answers), this.failed]);
  }

  private answer(child: ChildProcess): Promise<number> {
    return new Promise((resolve) => this.waiting.get(child)!.push(resolve));
  }
}
