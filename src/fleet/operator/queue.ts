/**
 * A queue of keys that want a pass: at most one at a time for each. A pass that fails is repeated after a
 * pause that grows with each failure of its key.
 * Why not client-node (1.4.0, 2.0.1): it has no work queue.
 */
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 30_000;

export interface QueueOptions {
  /** Makes a pass over a key. */
  pass(key: string): Promise<void>;
  onFailed(key: string, error: unknown): void;
  /** Most passes at the same time. */
  atOnce: number;
  /** The clock, in milliseconds. */
  now(): number;
}

export class WorkQueue {
  /** Time at which each waiting key is due. */
  private readonly due = new Map<string, number>();
  private readonly running = new Map<string, Promise<void>>();
  private readonly failures = new Map<string, number>();
  /** Number of passes that ended, by outcome. */
  readonly passed = new Map<'done' | 'failed', number>();
  private timer: NodeJS.Timeout | undefined;
  private stopped = false;

  constructor(private readonly options: QueueOptions) {}

  /** Keys that wait or run. */
  get length(): number {
    return new Set([...this.due.keys(), ...this.running.keys()]).size;
  }

  /** Asks for a pass over a key, not before `at`. The earliest of several times counts. */
  add(key: string, at = 0): void {
    if (this.stopped) return;
    this.due.set(key, Math.min(at, this.due.get(key) ?? Number.POSITIVE_INFINITY));
    this.turn();
  }

  /** Resolves when no pass runs any more. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.due.clear();
    clearTimeout(this.timer);
    await Promise.all(this.running.values());
  }

  private count(outcome: 'done' | 'failed'): void {
    this.passed.set(outcome, (this.passed.get(outcome) ?? 0) + 1);
  }

  private turn(): void {
    clearTimeout(this.timer);
    const now = this.options.now();
    let next = Number.POSITIVE_INFINITY;
    for (const [key, at] of this.due) {
      if (this.running.has(key)) continue;
      if (at > now) next = Math.min(next, at);
      else if (this.running.size < this.options.atOnce) this.begin(key);
    }
    if (next < Number.POSITIVE_INFINITY) {
      this.timer = setTimeout(() => this.turn(), Math.min(next - now, 2 ** 30));
      this.timer.unref();
    }
  }

  private begin(key: string): void {
    this.due.delete(key);
    const run = this.options.pass(key).then(
      () => {
        this.failures.delete(key);
        this.count('done');
      },
      (error: unknown) => {
        this.count('failed');
        const failures = (this.failures.get(key) ?? 0) + 1;
        this.failures.set(key, failures);
        this.options.onFailed(key, error);
        const pauseMs = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failures - 1));
        if (!this.stopped) this.due.set(key, this.options.now() + pauseMs);
      },
    );
    this.running.set(
      key,
      run.finally(() => {
        this.running.delete(key);
        if (!this.stopped) this.turn();
      }),
    );
  }
}
