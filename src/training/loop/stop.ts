/** Ends waits for something else when the work is stopped. */

export class Stop {
  private stopped = false;
  /**
   * Waits that are under way, and no others. Racing one promise that lives as long as the worker would be
   * shorter, but that promise would keep a reaction of every wait that there ever was.
   */
  private readonly waiters = new Set<() => void>();

  /** Number of waits under way. */
  get waiting(): number {
    return this.waiters.size;
  }

  get isStopped(): boolean {
    return this.stopped;
  }

  stop(): void {
    this.stopped = true;
    for (const wake of [...this.waiters]) wake();
  }

  /** Result of `promise`; undefined if the stop comes first. */
  async orStopped<T>(promise: Promise<T>): Promise<T | undefined> {
    if (this.stopped) return Promise.race([promise, undefined]);
    let wake = () => {};
    const woken = new Promise<undefined>((resolve) => {
      wake = () => resolve(undefined);
    });
    this.waiters.add(wake);
    try {
      return await Promise.race([promise, woken]);
    } finally {
      this.waiters.delete(wake);
    }
  }
}
