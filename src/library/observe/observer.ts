/**
 * Looks at a job again and again and keeps what it saw, for whoever draws, judges or decides. All that do so
 * share one observer: a job is asked once, however many look.
 */

import {
  checkFunction,
  checkInteger,
  checkOptions,
  checkSwitch,
  checkTimeout,
  type OptionKeys,
} from '../../common/options.js';
import type { JobSnapshot } from '../client/observe.js';

/** The part of a `Client` that an observer needs. */
export interface Observable {
  /** See `Client.observe`. */
  observe(options: { shards?: boolean }): Promise<JobSnapshot>;
}

/** Options of an {@link Observer}. */
export interface ObserverOptions {
  /** Milliseconds from one look to the next. Default: 2,000. */
  intervalMs?: number;
  /** Snapshots that are kept. Default: 300. */
  keep?: number;
  /** Counters of each data shard, too. Default: false. */
  shards?: boolean;
  /** A look that failed; the next one comes all the same. Default: nobody is told. */
  onError?: (error: unknown) => void;
}

const OBSERVER_OPTIONS = {
  intervalMs: true,
  keep: true,
  shards: checkSwitch,
  onError: checkFunction,
} satisfies OptionKeys<ObserverOptions>;

/** Looks at a job again and again, and keeps what it saw. */
export class Observer {
  private readonly snapshots: JobSnapshot[] = [];
  private readonly listeners = new Set<(snapshot: JobSnapshot) => void>();
  private timer: NodeJS.Timeout | undefined;
  private looking: Promise<void> | undefined;
  private readonly intervalMs: number;
  private readonly keep: number;
  private readonly shards: boolean;
  private readonly onError: ObserverOptions['onError'];

  /** @throws BAD_ARGUMENT */
  constructor(
    private readonly client: Observable,
    options: ObserverOptions = {},
  ) {
    checkOptions('Observer', options, OBSERVER_OPTIONS);
    checkFunction('Observer: the method observe of client', client?.observe);
    this.intervalMs = options.intervalMs ?? 2000;
    this.keep = options.keep ?? 300;
    this.shards = options.shards ?? false;
    this.onError = options.onError;
    checkTimeout('Observer: intervalMs', this.intervalMs, 1);
    checkInteger('Observer: keep', this.keep, 2);
  }

  /** Oldest first. */
  get history(): readonly JobSnapshot[] {
    return this.snapshots;
  }

  /** The newest snapshot; undefined before the first one. */
  get newest(): JobSnapshot | undefined {
    return this.snapshots.at(-1);
  }

  /** Calls back with every new snapshot. Returns what ends that. */
  on(listener: (snapshot: JobSnapshot) => void): () => void {
    checkFunction('Observer: a listener', listener);
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Looks now, and then at every interval. A look that takes longer than that is waited for. */
  start(): void {
    if (this.timer) return;
    this.timer = setInterval(() => void this.look(), this.intervalMs);
    void this.look();
  }

  /** Resolves when no look is under way. */
  async stop(): Promise<void> {
    clearInterval(this.timer);
    this.timer = undefined;
    await this.looking;
  }

  /** One look, or the one that is under way. Never throws. */
  look(): Promise<void> {
    this.looking ??= this.take().finally(() => {
      this.looking = undefined;
    });
    return this.looking;
  }

  private async take(): Promise<void> {
    let snapshot: JobSnapshot;
    try {
      snapshot = await this.client.observe({ shards: this.shards });
    } catch (error) {
      if (this.onError) tell(this.onError, error);
      return;
    }
    this.snapshots.push(snapshot);
    if (this.snapshots.length > this.keep) this.snapshots.shift();
    for (const listener of [...this.listeners]) tell(listener, snapshot);
  }
}

/** The error of a listener is the program's own: it is thrown in a turn of its own, after the others. */
function tell<T>(listener: (value: T) => void, value: T): void {
  try {
    listener(value);
  } catch (error) {
    setImmediate(() => {
      throw error;
    });
  }
}
