/**
 * Durable state of the scheduler, behind the smallest interface that does: one value, replaced atomically.
 */

export interface StateStore<T> {
  load(): Promise<T | undefined>;
  /**
   * Resolves when the value will survive a crash of the machine. Saves are applied in call order. @throws
   * STORE_FAILED
   */
  save(value: T): Promise<void>;
  close(): Promise<void>;
}

/** For embedded clusters and tests: survives nothing. */
export class MemoryStore<T> implements StateStore<T> {
  private value: T | undefined;

  load(): Promise<T | undefined> {
    return Promise.resolve(this.value);
  }

  save(value: T): Promise<void> {
    this.value = value;
    return Promise.resolve();
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
