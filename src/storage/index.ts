/** Durable state of the scheduler, behind the smallest interface that does: entries by key. */
import type { KintsugiError } from '../errors.js';

/** Values by key: plain values as JSON has them. In changes, undefined deletes the key. */
export type Entries = ReadonlyMap<string, unknown>;

export interface StateStore {
  /** Everything; empty when nothing was ever written. @throws BAD_ARGUMENT, STORE_FAILED */
  load(): Promise<Entries>;
  /**
   * One transaction: all of the changes or none. Resolves when they will survive a crash of the machine.
   * Writes are applied in call order. @throws STORE_FAILED
   */
  write(changes: Entries): Promise<void>;
  close(): Promise<void>;
  /** Where several schedulers may use the store at once: one of them leads. */
  readonly election?: Election;
}

export interface ElectionEvents {
  /** Who leads meanwhile, by its address; undefined: nobody, as far as is known. */
  onLeader(address: string | undefined): void;
  /** Why the store cannot be reached; undefined: it can be, again. What is written meanwhile waits. */
  onReach(problem: string | undefined): void;
  /**
   * The store could not be reached for the time of the lease, so another one may lead by now. Told again and
   * again as long as that lasts, after longer and longer pauses.
   */
  onDoubt(): void;
  /** This process led and does not any more (DEPOSED). */
  onDeposed(error: KintsugiError): void;
}

export interface Election {
  /**
   * Resolves when this process leads. Until then, and from when it does not any more, it must neither load
   * nor write. `address`: where others reach it. @throws STORE_FAILED, CLOSED
   */
  lead(address: string, events: ElectionEvents): Promise<void>;
}

/** For embedded clusters and tests: survives nothing. */
export class MemoryStore implements StateStore {
  private readonly entries = new Map<string, unknown>();

  load(): Promise<Entries> {
    return Promise.resolve(new Map(this.entries));
  }

  write(changes: Entries): Promise<void> {
    apply(this.entries, changes);
    return Promise.resolve();
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/** What the entries are after the changes. */
export function apply(entries: Map<string, unknown>, changes: Entries): void {
  for (const [key, value] of changes) {
    if (value === undefined) entries.delete(key);
    else entries.set(key, value);
  }
}
