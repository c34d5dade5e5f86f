/**
 * A list of waiting messages or requests, in the order in which they came, bounded in number and in bytes.
 * Parts of a message are views that end with the call, so the list copies the parts that it keeps.
 */
import { copied } from './bytes.js';

/** Counts bytes against a limit. */
export interface BytesAccount {
  /** False: there is no room, and nothing was taken. */
  take(bytes: number): boolean;
  give(bytes: number): void;
}

export interface WaitingEntry<T> {
  readonly item: T;
  /** Copies of the parts of the message, which nobody else refers to. */
  readonly parts: readonly Uint8Array[];
  readonly bytes: number;
  /** Time at which the entry was added, in milliseconds of the caller's clock. */
  readonly since: number;
}

export interface WaitingOptions {
  maxCount: number;
  account: BytesAccount;
  /** At a limit either the oldest entries make room, or the new entry is refused. */
  atLimit: 'dropOldest' | 'refuse';
}

export class WaitingList<T> {
  /** The oldest entry comes first. The account holds their bytes. */
  private entries: WaitingEntry<T>[] = [];
  /** Bytes of all entries. */
  bytes = 0;

  constructor(private readonly options: WaitingOptions) {}

  get length(): number {
    return this.entries.length;
  }

  get first(): WaitingEntry<T> | undefined {
    return this.entries[0];
  }

  get last(): WaitingEntry<T> | undefined {
    return this.entries.at(-1);
  }

  /** The oldest entry that `matches`. */
  find(matches: (entry: WaitingEntry<T>) => boolean): WaitingEntry<T> | undefined {
    return this.entries.find(matches);
  }

  /** False when the entry was refused. `beside`: bytes of the item, which count as those of parts. */
  add(item: T, parts: readonly Uint8Array[], now = 0, beside = 0): boolean {
    const bytes = bytesOf(parts) + beside;
    if (!this.makeRoom(bytes)) return false;
    this.bytes += bytes;
    this.entries.push({ item, parts: parts.map(copied), bytes, since: now });
    return true;
  }

  private makeRoom(bytes: number): boolean {
    const { maxCount, account, atLimit } = this.options;
    if (atLimit === 'refuse') return this.entries.length < maxCount && account.take(bytes);
    if (this.entries.length >= maxCount) this.shift();
    while (!account.take(bytes)) {
      if (this.entries.length === 0) return false;
      this.shift();
    }
    return true;
  }

  /** Takes the oldest entry out. */
  shift(): WaitingEntry<T> | undefined {
    const entry = this.entries.shift();
    if (entry) this.give(entry);
    return entry;
  }

  private give({ bytes }: WaitingEntry<T>): void {
    this.bytes -= bytes;
    this.options.account.give(bytes);
  }

  /** Takes all entries out. */
  takeAll(): WaitingEntry<T>[] {
    const taken = this.entries;
    this.entries = [];
    for (const entry of taken) this.give(entry);
    return taken;
  }

  /** Takes out the entries that came before `time`. */
  takeBefore(time: number): WaitingEntry<T>[] {
    const taken: WaitingEntry<T>[] = [];
    while (this.first && this.first.since < time) taken.push(this.shift()!);
    return taken;
  }

  /**
   * Calls `keep` for each entry in order, and takes out those for which it returns false. `keep` must not add
   * entries to this list.
   */
  retain(keep: (entry: WaitingEntry<T>) => boolean): void {
    const before = this.entries;
    this.entries = [];
    for (const entry of before) {
      if (keep(entry)) this.entries.push(entry);
      else this.give(entry);
    }
  }
}

function bytesOf(parts: readonly Uint8Array[]): number {
  let bytes = 0;
  for (const part of parts) bytes += part.byteLength;
  return bytes;
}
