/** Durable state of the scheduler, behind the smallest interface that suffices: entries by key. */
import type { KintsugiError } from '../../common/errors.js';

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
  /**
   * Removes what other stores have at places inside this one whose names begin with `name`, before anything
   * is written here. Absent: there are no places inside. @throws DEPOSED, STORE_FAILED
   */
  clearInside?(name: string): Promise<void>;
  /** True: other stores have something at such places. Absent as `clearInside` is. @throws STORE_FAILED */
  hasInside?(name: string): Promise<boolean>;
  close(): Promise<void>;
  /** Where several schedulers may use the store at once: one of them leads. */
  readonly election?: Election;
}

export interface ElectionEvents {
  /** Address of the scheduler that leads now; undefined: none is known. */
  onLeader(address: string | undefined): void;
  /**
   * Why the store cannot be reached, at each attempt; undefined: it can be, again. Writes wait meanwhile.
   */
  onReach(problem: string | undefined): void;
  /**
   * The store could not be reached for the time of the lease, so another scheduler may lead by now. Called
   * again and again as long as that lasts, after longer and longer pauses.
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
  /** The store has had entries, as this process has seen in this term or in an earlier one. */
  readonly hadEntries: boolean;
  /**
   * A store for the next term, after this one has ended. A write of this term stays refused (DEPOSED), so
   * what was decided in one term is never written in another.
   */
  again(): StateStore;
  /**
   * Removes everything that the store has of the job, in one transaction, while this process leads. Nothing
   * is written afterwards. @throws DEPOSED, STORE_FAILED
   */
  clear(): Promise<void>;
}

/** A store in memory, for embedded clusters and tests: it survives nothing. */
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

/** Applies the changes to the entries; undefined deletes one. */
export function apply(entries: Map<string, unknown>, changes: Entries): void {
  for (const [key, value] of changes) {
    if (value === undefined) entries.delete(key);
    else entries.set(key, value);
  }
}
