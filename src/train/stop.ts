/** Tells those who wait for something else that they need not wait any more. */

export class Stop {
  private stopped = false;
  /**
   * Of those who wait at the moment only. Racing one promise that lives as long as the worker would be
   * shorter, and that promise would keep what every wait has ever left on it.
   */
  private readonly waiters = new Set<() => void>();

  /** How many wait. */
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

  /** What `promise` gives; undefined when it has given nothing yet and all is stopped. */
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
